"""Clusters of a direction's contexts at many r and K, each held against held-out text (FVP-08, FVP-10, FVP-11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from simnmt.calibrate.vocabulary.study.document import Cell, ClusterSizes, Knowledge, Memory
from simnmt.calibrate.vocabulary.study.held_cells import ActiveBits, outcome, spread
from simnmt.calibrate.vocabulary.study.kept_clusters import Clusterer
from simnmt.calibrate.vocabulary.study.kept_contexts import DirectionContexts
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.cluster_bundle import ClusterBundle, ClusterSet
from simnmt.nmt.vocabulary.contexts import Contexts
from simnmt.nmt.vocabulary.kmeans import assign

UNION_ROWS = 20
"""Of a step: the paper's batch."""
MASS_CONTEXTS = 4_096
"""Of which the probability is looked up, evenly taken: in about two seconds, to better than 0.1 %."""
_PIECE = 256
"""Contexts whose logits are held at a time."""


def cluster_sets(
    model: StepModel, label: str, contexts: Contexts, clusters: int, tops: Sequence[int], clusterer: Clusterer
) -> Iterator[ClusterSet]:
    """The same clusters with the active sets of each K."""
    clustering = clusterer.clusters(contexts, clusters)
    for top in tops:
        yield ClusterSet.of(label, contexts, clustering, model, top=top)


def cells(
    model: StepModel,
    of: DirectionContexts,
    training: Contexts,
    clusters: int,
    tops: Sequence[int],
    clusterer: Clusterer,
    knowledge: Knowledge = "both",
) -> Iterator[Cell]:
    """One for each K, from clusters of `training`, which may be of more than this direction, or of less of it."""
    nearest, heldout, emitted = None, of.tokens, of.emitted
    for own in cluster_sets(model, of.label, training, clusters, tops, clusterer):
        if nearest is None:
            nearest = assign(of.development.hidden, own.centroids).numpy()
        bits = active_bits(own)
        found = outcome(bits, nearest, heldout, UNION_ROWS)
        yield Cell(
            label=of.label,
            knowledge=knowledge,
            clusters=clusters,
            top=own.top,
            training_sentences=training.sentences,
            training_contexts=len(training),
            clustered_contexts=clusterer.seen(training),
            heldout_sentences=heldout.sentence_count,
            heldout_tokens=len(heldout.tokens),
            sets=spread(bits.sizes, bits.vocab),
            share=found.share,
            union=found.union,
            union_rows=found.union_rows,
            emitted=emitted,
            share_of_emitted=found.share.mean * bits.vocab / emitted,
            union_of_emitted=found.union.mean * bits.vocab / emitted,
            miss_rate=found.miss_rate,
            identical=found.identical,
            set_bytes=own.sets.columns.untyped_storage().nbytes(),
            bundle_bytes=own.sets.nbytes + own.centroids.nbytes,
        )


def active_bits(own: ClusterSet) -> ActiveBits:
    """Its active sets."""
    return ActiveBits(own.sets.starts.numpy(), own.sets.columns.numpy(), own.sets.vocab)


def sizes(own: ClusterSet) -> ClusterSizes:
    """How large its active sets are (figure 4)."""
    found = own.sets.sizes()
    return ClusterSizes(
        label=own.label,
        clusters=len(found),
        top=own.top,
        columns=tuple(found.sort(descending=True).values.tolist()),
        first=int(found[0]),
    )


def memory(model: StepModel, own: ClusterSet) -> Memory:
    """What it holds beside the model (FVP-12)."""
    account = ClusterBundle.of(model, [own]).account()
    assert account.share is not None, "a model has weights"
    return Memory(
        label=own.label,
        clusters=len(own.sets),
        top=own.top,
        centroid_bytes=account.centroids,
        norm_bytes=account.norms,
        set_bytes=account.indices,
        start_bytes=account.starts,
        flag_bytes=account.flags,
        total_bytes=account.total,
        share_of_model=account.share,
    )


def active_mass(model: StepModel, of: DirectionContexts, own: ClusterSet) -> float:
    """Of the model's probability, what lies on active columns at batch 1: the mean over contexts of the development half."""
    bits, hidden = active_bits(own), of.development.hidden
    hidden = hidden[:: max(1, -(-len(hidden) // MASS_CONTEXTS))].contiguous().to(model.weight.dtype)
    nearest = assign(hidden.float(), own.centroids).numpy()
    found = 0.0
    with torch.inference_mode():
        for first in range(0, len(hidden), _PIECE):
            logits = model.project(hidden[first : first + _PIECE]).float()
            if model.pad_token != model.eos_token:
                logits[:, model.pad_token] = -torch.inf
            active = torch.from_numpy(bits.of(nearest[first : first + _PIECE]))
            found += float((logits.softmax(dim=1) * active).sum())
    return min(1.0, found / len(hidden))
