"""Measure a study of a vocabulary: for each direction and part, rows for the study's file (FVP-08 to 11, FVP-16).

Contexts of a direction are decoded once and kept in memory. The file is written after each part of a direction, and what it
holds is not measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from simnmt.base.random_streams import stream
from simnmt.calibrate.settings import CalibrationError
from simnmt.kernels.columns import Centroids
from simnmt.nmt.checkpoint import WEIGHTS_FILE
from simnmt.nmt.devices import torch_threads
from simnmt.nmt.output_layer import Output
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet
from simnmt.nmt.vocabulary.contexts import Clustering, Contexts, assign, cluster, collect, join_contexts
from simnmt.nmt.vocabulary.restricted_vocabulary import clustered
from simnmt.papers.fvp.decoding import PLAIN, Direction, encode, time_methods, timed_decoding
from simnmt.papers.fvp.published import MOST_ACTIVE
from simnmt.papers.fvp.study import Cell, Clusters, Decoded, Knowledge, Part, PartRun, Speed, StudiedModel, Study
from simnmt.papers.kit.study import TOOL, part_run, read_study, write_study
from simnmt.results.run_directory import sha256

PARTS: tuple[Part, ...] = get_args(Part)
"""Measured one by one; the last two time real decoding and need a quiet box."""
Say = Callable[[str], None]
"""Reports progress."""
CONTEXT_BATCH = 128
"""Sentences decoded together for contexts: 1.3 times as fast on one thread as 64."""
LIBRARIES = ("torch", "numpy", "scikit-learn", "sacrebleu", "sentencepiece")
TOPS = (1, 3, 5)
"""K of the paper's grid (FVP-11)."""
FINE = dict.fromkeys((50, 100, 200, 300, 500, 1_000), (5, 10, 20))
"""K by r beside the paper's grid, where quality is sought: few clusters with many tokens each miss least."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of a study is measured; by default the paper's grid (FVP-10, FVP-11)."""

    grid: Mapping[int, Sequence[int]] = field(
        default_factory=lambda: {
            r: sorted({*(TOPS if r >= 100 else ()), *FINE.get(r, ())}) for r in (50, *range(100, 2_001, 100))
        }
    )
    """The values of K by r."""
    tops: Sequence[int] = TOPS
    """The values of K of all parts but the sweep."""
    train_sentences: int = 100_000
    """Sentences whose contexts are clustered: about 900,000 contexts of short sentences."""
    clustered_contexts: int = 100_000
    """Contexts that k-means sees at most: with all of them a sweep takes hours; active sets are made of all."""
    heldout_sentences: int = 2_000
    """Sentences of each half of a held-out text."""
    volumes: int = 5
    """Steps of the training text, each twice the one before, up to all of it."""
    volume_clusters: Sequence[int] = (300, 1_000)
    language_clusters: Sequence[int] = (100, 200, 300, 400, 500)
    searches: Sequence[tuple[int, int]] = ((1, 1), (2, 20))
    """Beam and batch: the paper's b1 and b2."""
    speed_clusters: Sequence[int] = (100, 300, 500, 900, 1_300, 2_000)
    speed_sentences: int = 300
    rounds: int = 3


def run_study(
    folder: Path,
    directions: Sequence[Direction],
    sizes: Sizes | None = None,
    *,
    out: Path | None = None,
    say: Say = lambda _: None,
) -> Study:
    """Measure on one thread each part of each direction that the file `out` lacks, for the trained model in `folder`.

    Raises `CalibrationError` if the file is of another model or of other texts, and what decoding and clustering raise.
    """
    sizes = sizes or Sizes()
    with torch_threads(1):
        translator = Translator.load(folder)
        study = _begun(folder, translator, directions, out)
        labs = [_Lab(translator, direction, sizes, say) for direction in directions]
        for part in PARTS:
            measured = {entry.label for entry in getattr(study, part)}
            for lab in labs:
                if lab.label in measured or (part == "by_language" and len(labs) < 2):
                    continue
                say(f"{lab.label}: {part}")
                entries = tuple(lab.measured(part, study, labs))
                run = part_run(PartRun, 1, LIBRARIES, part=part, labels=(lab.label,))
                changed = {part: (*getattr(study, part), *entries), "runs": (*study.runs, run), "tool": TOOL}
                study = study.model_copy(update=changed)
                if out is not None:
                    write_study(out, study)
    return study


def _begun(folder: Path, translator: Translator, directions: Sequence[Direction], out: Path | None) -> Study:
    """Return the study in the file `out`, or a new one, of this model and these texts."""
    model: Any = translator.model
    studied = StudiedModel(
        name=folder.resolve().name,
        kind=model.architecture.kind,
        sha256=sha256(folder / WEIGHTS_FILE),
        vocab=model.weight.shape[0],
        width=model.weight.shape[1],
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )
    texts = tuple(text for direction in directions for text in direction.studied())
    train = {text.sha256 for text in texts if text.role == "train"}
    if both := [text.name for text in texts if text.role == "heldout" and text.sha256 in train]:
        what = f"{both[0]} is held-out text and training text"
        raise CalibrationError(what, remedy="hold out sentences that clusters are not made of")
    if out is None or not out.exists():
        return Study(tool=TOOL, model=studied, texts=texts)
    study = read_study(out, Study)
    if (study.model.sha256, study.texts) != (studied.sha256, texts):
        what = f"a study of another model than {studied.name}, or of other texts"
        raise CalibrationError(what, path=out, remedy="choose another file")
    return study


def first_sentences(contexts: Contexts, sentences: int) -> Contexts:
    return replace(contexts.of(contexts.sentence < sentences), sentences=sentences)


def clustering_of(contexts: Contexts, clusters: int, most: int = 100_000) -> Clustering:
    """Cluster all contexts: k-means sees a random sample of `most`, and the others join their nearest centroid."""
    if len(contexts) <= most:
        return cluster(contexts, clusters, seed=1)
    drawn = stream(1, 0, "clustered contexts").choice(len(contexts), most, replace=False)
    clustering = cluster(contexts.hidden[torch.from_numpy(np.sort(drawn))], clusters, seed=1)
    return replace(clustering, labels=assign(contexts.hidden, Centroids.of(clustering.centroids)))


def cell_of(training: Contexts, development: Contexts, sets: ClusterSet, knowledge: Knowledge, emitted: int) -> Cell:
    """Compare the active sets of clustered contexts with the tokens that dense greedy decoding of other text wrote."""
    vocab, columns = sets.sets.vocab, sets.sets.sizes().numpy()
    nearest = assign(development.hidden, sets.centroids).numpy()
    active = np.zeros((len(columns), vocab), dtype=bool)
    active[np.repeat(np.arange(len(columns)), columns), sets.sets.columns.numpy()] = True
    hit = active[nearest, development.top[:, 0].long().numpy()]
    _, sentence = np.unique(development.sentence.numpy(), return_inverse=True)
    return Cell(
        label=sets.label,
        knowledge=knowledge,
        clusters=len(columns),
        top=sets.top,
        training_sentences=training.sentences,
        heldout_tokens=len(hit),
        share_mean=float(columns[nearest].mean()) / vocab,
        share_most=float(columns[nearest].max()) / vocab,
        set_most=float(columns.max()) / vocab,
        emitted=emitted,
        miss_rate=float(1.0 - hit.mean()),
        identical=float((np.bincount(sentence, weights=~hit) == 0).mean()),
    )


def chosen_of(swept: Sequence[Cell], vocab: int) -> Cell:
    """Return the cell that keeps most sentences with at most 15 % of V active on average.

    Of equals the one that multiplies least: a row at batch 1 with r + V' columns, centroids included (FVP-09).
    """
    within = [cell for cell in swept if cell.share_mean <= MOST_ACTIVE] or swept
    return min(within, key=lambda cell: (-cell.identical, cell.clusters + cell.share_mean * vocab))


class _Lab:
    """A direction of a study: the model, the direction's texts, and their contexts."""

    def __init__(self, translator: Translator, direction: Direction, sizes: Sizes, say: Say) -> None:
        self.translator, self.direction, self.sizes, self.say = translator, direction, sizes, say
        self.label, self.halves = direction.label, direction.held_out(sizes.heldout_sentences)

    def measured(self, part: Part, study: Study, labs: Sequence[_Lab]) -> Iterator[Clusters]:
        """Measure a part; the chosen clusters are those of the study's sweep."""
        sizes, (training, _) = self.sizes, self.contexts
        if part == "chosen":
            return self.decodings([cell for cell in study.sweep if cell.label == self.label])
        if part == "speeds":
            return self.speeds()
        if part == "sweep":  # every r and K of the grid (FVP-11)
            return self.cells([(training, "both", *cell) for cell in sizes.grid.items()])
        if part == "volume":  # growing text (FVP-08)
            lengths = [max(1, training.sentences >> halvings) for halvings in reversed(range(sizes.volumes))]
            volumes = [first_sentences(training, length) for length in lengths]
            return self.cells([(text, "both", r, sizes.tops) for text in volumes for r in sizes.volume_clusters])
        # Of one direction, and of all directions into its target (FVP-10).
        pooled = join_contexts([lab.contexts[0] for lab in labs])
        known: list[tuple[Contexts, Knowledge]] = [(training, "both"), (pooled, "target")]
        return self.cells([(*both, r, sizes.tops) for r in sizes.language_clusters for both in known])

    @cached_property
    def contexts(self) -> tuple[Contexts, Contexts]:
        """The contexts of dense greedy decoding of the training text, and of the development half."""
        translator, top = self.translator, max(map(max, self.sizes.grid.values()))

        def collected(lines: Sequence[str]) -> Contexts:
            self.say(f"{self.label}: decoding {len(lines):,} sentences")
            sources, most = translator.encode(lines), translator.max_len
            return collect(translator.model, sources, top, batch=CONTEXT_BATCH, max_len=most)

        training = self.direction.training_sources(self.sizes.train_sentences)
        return collected(training), collected([source for source, _ in self.halves[1]])

    def cells(self, tried: Sequence[tuple[Contexts, Knowledge, int, Sequence[int]]]) -> Iterator[Cell]:
        """Yield a cell for each clustering (contexts, what is known of their languages, r) and each of its values of K."""
        emitted = len(torch.unique(torch.cat([contexts.emitted for contexts in self.contexts])))
        for training, knowledge, clusters, tops in tried:
            self.say(f"{self.label}: {clusters:,} clusters")
            for sets in self.sets(training, clusters, tops):
                yield cell_of(training, self.contexts[1], sets, knowledge, emitted)

    def sets(self, training: Contexts, clusters: int, tops: Sequence[int]) -> Iterator[ClusterSet]:
        clustering = clustering_of(training, clusters, self.sizes.clustered_contexts)
        for top in tops:
            yield ClusterSet.of(self.label, training, clustering, self.translator.model, top=top)

    def outputs(self, clusters: int, tops: Sequence[int]) -> list[Output]:
        """Return the output layers with clusters of the training text for each K, by the fastest products on this box."""
        parts = [clustered(sets) for sets in self.sets(self.contexts[0], clusters, tops)]
        return [Output(vocabulary=part) for part in parts]

    def decodings(self, swept: Sequence[Cell]) -> Iterator[Decoded]:
        """Decode the test half with the chosen clusters and each search, in turn with all of the vocabulary (FVP-16)."""
        cell = chosen_of(swept, self.translator.model.vocab)
        (output,), sample = self.outputs(cell.clusters, [cell.top]), encode(self.translator, self.halves[0])
        names: dict[str, Any] = {"label": self.label, "emitted": cell.emitted, "clusters": cell.clusters, "top": cell.top}
        for beam, batch in self.sizes.searches:
            self.say(f"{self.label}: decoding with beam {beam}, batch {batch}")
            yield timed_decoding(self.translator, sample, beam, batch, output, self.sizes.rounds, **names)

    def speeds(self) -> Iterator[Speed]:
        """Time decoding at many r and K, in turn with all of the vocabulary (figure 3)."""
        sizes = self.sizes
        cells = [Clusters(label=self.label, clusters=r, top=top) for r in sizes.speed_clusters for top in sizes.tops]
        outputs = chain.from_iterable(self.outputs(clusters, sizes.tops) for clusters in sizes.speed_clusters)
        methods = {"dense": PLAIN, **{cell.method: output for cell, output in zip(cells, outputs, strict=True)}}
        sample = encode(self.translator, self.halves[0])[: sizes.speed_sentences]
        for beam, batch in sizes.searches:
            self.say(f"{self.label}: speed of {len(cells)} cluster sets, beam {beam}, batch {batch}")
            timed = time_methods(self.translator, sample, beam, batch, methods, sizes.rounds)
            for cell in cells:
                yield Speed(**cell.model_dump(), beam=beam, batch=batch, **timed.beside_dense(cell.method))
