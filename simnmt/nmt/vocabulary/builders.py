"""Build the clusters (FVP-02 to 04, FVP-10) and candidate lists (SHARP-02) of a trained model from text.

Clusters need unlabelled text alone, candidate lists parallel text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.alignment import EM_ITERATIONS, alignable, attention_alignment, ibm_model1
from simnmt.nmt.vocabulary.bundle_file import control_tokens
from simnmt.nmt.vocabulary.candidate_lists import CANDIDATES, CandidateLists, candidate_lists, most_frequent
from simnmt.nmt.vocabulary.cluster_bundle import ClusterBundle, ClusterSet
from simnmt.nmt.vocabulary.contexts import BATCH, ITERATIONS, Contexts, Progress, check_method, cluster, collect, join_contexts


def build_clusters(
    translator: Translator,
    texts: Mapping[str, Sequence[str]],
    clusters: int,
    top: int,
    *,
    pool: str | None = None,
    beam: int = 1,
    batch: int = BATCH,
    seed: int = 1,
    iterations: int = ITERATIONS,
    method: str | None = None,
    name: str = "",
    progress: Progress | None = None,
) -> ClusterBundle:
    """Clusters of each text by its label, or with `pool` one set of that label for all of them together (FVP-10).

    `name`: the model's, for people. Raises `NmtError` and `OutOfMemory` as `collect` and `cluster` do.
    """
    method = check_method(method)
    if clusters < 1 or iterations < 1:  # decoding may take long
        raise NmtError(f"{clusters:,} clusters by {iterations:,} iterations", remedy="give 1 or more of each")
    tell = progress or (lambda stage, share: None)

    def collected(label: str) -> Contexts:
        return collect(
            translator,
            texts[label],
            top,
            beam=beam,
            batch=batch,
            progress=lambda _, share: tell(f"decoding {label}", share),
        )

    def clustered(label: str, contexts: Contexts) -> ClusterSet:
        tell(f"clustering {label}", None)
        clustering = cluster(contexts, clusters, seed=seed, iterations=iterations, method=method)
        return ClusterSet.of(label, contexts, clustering, translator.model)

    if pool is None:
        sets = [clustered(label, collected(label)) for label in texts]
    else:
        sets = [clustered(pool, join_contexts([collected(label) for label in texts]))]
    return ClusterBundle.of(translator.model, sets, name=name)


def sample_evenly(lines: Sequence[str], count: int | None) -> list[str]:
    """So many of the lines, evenly spread over them in their order; all of them for None, or where there are no more."""
    if count is None or count >= len(lines):
        return list(lines)
    return [lines[at * len(lines) // count] for at in range(count)]


Align = Literal["ibm1", "attention"]


def build_candidates(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    count: int = CANDIDATES,
    align: Align = "ibm1",
    always: int = 0,
    iterations: int = EM_ITERATIONS,
    progress: Callable[[int], None] = lambda _: None,
) -> CandidateLists:
    """The `count` most probable target tokens of each source token, by the alignment of the lines.

    `targets[i]` translates `sources[i]`. `align`: ibm1, learnt in so many `iterations`, or the model's own attention.
    `progress` is told of how many pairs it is done. `always`: so many of the most frequent target tokens are candidates of
    every sentence, beside end mark and unknown; none by default. The source's end mark has no list, as the empty word that it
    is for the alignment: `always` holds what that would give. Pairs of which a side is empty, or is too long for a model that
    is to look at it, teach nothing; `CandidateLists.pairs` counts the others.

    Raises `NmtError` for sides of different lengths, without a pair, and for more candidates than the vocabulary holds.
    """
    model = translator.model
    if not 1 <= count <= model.vocab or not 0 <= always <= model.vocab:
        what = f"{count:,} candidates, and {always:,} always, with a vocabulary of {model.vocab:,}"
        raise NmtError(what, remedy="give fewer, and 1 or more a token")
    if len(sources) != len(targets):
        raise NmtError(f"{len(sources):,} sources but {len(targets):,} targets", remedy="line i must translate line i")
    src = translator.source.encode(sources)
    # Without their end, which every list has.
    tgt = [ids[:-1] for ids in translator.target.encode(targets)]
    pairs = alignable([ids if len(ids) > 1 else [] for ids in src], tgt, model.max_positions if align == "attention" else None)
    src, tgt = [list(one) for one, _ in pairs], [list(other) for _, other in pairs]
    if align == "attention":
        if not isinstance(model, StepModel):
            raise NmtError("a model whose attention is not known", remedy="align by ibm1")
        table = attention_alignment(model, src, tgt, progress=progress)
    else:
        sizes = translator.source.size, translator.target.size

        def tell(done: int) -> None:
            progress(len(src) * done // iterations)

        table = ibm_model1(src, tgt, src_vocab=sizes[0], tgt_vocab=sizes[1], iterations=iterations, progress=tell).table
    every = [*control_tokens(model), *most_frequent(tgt, always, model.vocab).tolist()]
    return candidate_lists(table, every, count=count, without=[translator.source.eos], pairs=len(pairs))
