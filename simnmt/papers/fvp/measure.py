"""Measure a study of a vocabulary: for each direction and part, rows for the study's file (FVP-08 to 11, FVP-16).

Contexts of a direction are decoded once and kept in memory. The file is written after each part of a direction, and what it
holds is not measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.base.random_streams import stream
from simnmt.calibrate.settings import CalibrationError
from simnmt.kernels.columns import Centroids
from simnmt.nmt.checkpoint import WEIGHTS_FILE
from simnmt.nmt.devices import torch_threads
from simnmt.nmt.output_layer import Output
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet
from simnmt.nmt.vocabulary.contexts import Clustering, Contexts, assign, cluster, collect, join_contexts
from simnmt.nmt.vocabulary.restricted_vocabulary import clustered, with_measured_cost
from simnmt.papers.fvp.decoding import PLAIN, Direction, Sentence, encode, identical_share, time_methods, timed_decoding
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
    quick: bool = False


QUICK = Sizes(
    quick=True,
    grid=dict.fromkeys((50, 100, 200), TOPS),
    train_sentences=2_000,
    clustered_contexts=20_000,
    heldout_sentences=100,
    volumes=3,
    volume_clusters=(100,),
    language_clusters=(50, 100),
    speed_clusters=(50, 200),
    speed_sentences=50,
    rounds=2,
)
"""Minutes instead of an hour: few sentences, clusters and rounds."""


def run_study(
    folder: Path,
    directions: Sequence[Direction],
    sizes: Sizes | None = None,
    *,
    out: Path | None = None,
    say: Say = lambda _: None,
    threads: int = 1,
) -> Study:
    """Measure each part of each direction that the file `out` lacks, for the trained model in `folder`.

    Raises `CalibrationError` if the file is of another model or of other texts, and what decoding and clustering raise.
    """
    sizes = sizes or Sizes()
    with torch_threads(threads):
        translator = Translator.load(folder)
        study = _begun(_studied(folder, translator), directions, sizes, out)
        bench = _Bench(translator, {direction.label: direction for direction in directions}, sizes, say)
        for part in PARTS:
            measured = {entry.label for entry in getattr(study, part)}
            for label in bench.directions:
                if label in measured or (part == "by_language" and len(bench.directions) < 2):
                    continue
                say(f"{label}: {part}")
                entries = tuple(bench.measured(part, label, study))
                run = part_run(PartRun, threads, LIBRARIES, part=part, labels=(label,))
                changed = {part: (*getattr(study, part), *entries), "runs": (*study.runs, run), "tool": TOOL}
                study = study.model_copy(update=changed)
                if out is not None:
                    write_study(out, study)
    return study


def _studied(folder: Path, translator: Translator) -> StudiedModel:
    model: Any = translator.model
    vocab, width = model.weight.shape
    parameters, name = sum(parameter.numel() for parameter in model.parameters()), folder.resolve().name
    checksum, kind = sha256(folder / WEIGHTS_FILE), model.architecture.kind
    return StudiedModel(name=name, kind=kind, sha256=checksum, vocab=vocab, width=width, parameters=parameters)


def _begun(model: StudiedModel, directions: Sequence[Direction], sizes: Sizes, out: Path | None) -> Study:
    """Return the study in the file `out`, or a new one, of these texts."""
    texts = tuple(text for direction in directions for text in direction.studied())
    train = {text.sha256 for text in texts if text.role == "train"}
    if both := [text.name for text in texts if text.role == "heldout" and text.sha256 in train]:
        problem = f"{both[0]} is held-out text and training text"
        raise CalibrationError(problem, remedy="hold out sentences that clusters are not made of")
    if out is None or not out.exists():
        return Study(tool=TOOL, quick=sizes.quick, model=model, texts=texts)
    study = read_study(out, Study)
    if (study.model.sha256, study.texts) != (model.sha256, texts):
        raise CalibrationError(
            f"a study of another model than {model.name}, or of other texts", path=out, remedy="choose another file"
        )
    return study


class DirectionContexts(NamedTuple):
    """Contexts of dense greedy decoding of one direction's texts, sentence by sentence."""

    training: Contexts
    development: Contexts


def by_sentence(contexts: Contexts) -> Contexts:
    """Return the contexts sentence by sentence, in the order of the steps."""
    return contexts.of(torch.sort(contexts.sentence, stable=True).indices)


def first_sentences(contexts: Contexts, sentences: int) -> Contexts:
    """Return the contexts of the first `sentences` sentences."""
    return replace(contexts.of(contexts.sentence < sentences), sentences=sentences)


def clustering_of(contexts: Contexts, clusters: int, sizes: Sizes, seed: int = 1) -> Clustering:
    """Cluster all contexts: k-means sees a random sample of many, and the others join their nearest centroid."""
    if len(contexts) <= sizes.clustered_contexts:
        return cluster(contexts, clusters, seed=seed)
    drawn = stream(seed, 0, "clustered contexts").choice(len(contexts), sizes.clustered_contexts, replace=False)
    clustering = cluster(contexts.hidden[torch.from_numpy(np.sort(drawn))], clusters, seed=seed)
    return replace(clustering, labels=assign(contexts.hidden, Centroids.of(clustering.centroids)))


def cell_of(
    contexts: DirectionContexts, training: Contexts, sets: ClusterSet, nearest: NDArray[np.int64], knowledge: Knowledge
) -> Cell:
    """Compare active sets with the tokens that dense greedy decoding of the development half wrote.

    `training`: the contexts that were clustered; `nearest`: cluster of each step of the development half.
    """
    development, vocab, columns = contexts.development, sets.sets.vocab, sets.sets.sizes().numpy()
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
        emitted=len(torch.unique(torch.cat([part.emitted for part in contexts]))),
        miss_rate=float(1.0 - hit.mean()),
        identical=float((np.bincount(sentence, weights=~hit) == 0).mean()),
    )


def chosen_of(swept: Sequence[Cell], vocab: int) -> Cell:
    """Return the cell that keeps most sentences with at most 15 % of V active on average.

    Of equals the one that multiplies least: a row at batch 1 with r + V' columns, centroids included (FVP-09).
    """
    within = [cell for cell in swept if cell.share_mean <= MOST_ACTIVE] or swept
    return min(within, key=lambda cell: (-cell.identical, cell.clusters + cell.share_mean * vocab))


@dataclass(frozen=True, slots=True)
class _Bench:
    """What the parts of a study share: the model, its texts, and their contexts."""

    translator: Translator
    directions: Mapping[str, Direction]
    sizes: Sizes
    say: Say
    _contexts: dict[str, DirectionContexts] = field(default_factory=dict)

    def measured(self, part: Part, label: str, study: Study) -> Iterator[Clusters]:
        """Measure a part of a direction; the chosen clusters are those of the study's sweep."""
        sizes, contexts = self.sizes, self.contexts(label)
        training = contexts.training
        if part == "chosen":
            return self.decodings(label, [cell for cell in study.sweep if cell.label == label])
        if part == "speeds":
            return self.speeds(label)
        if part == "sweep":  # every r and K of the grid (FVP-11)
            return self.cells(label, [(training, "both", *cell) for cell in sizes.grid.items()])
        if part == "volume":  # growing text (FVP-08)
            lengths = [max(1, training.sentences >> halvings) for halvings in reversed(range(sizes.volumes))]
            volumes = [first_sentences(training, length) for length in lengths]
            return self.cells(label, [(text, "both", r, sizes.tops) for text in volumes for r in sizes.volume_clusters])
        # Of one direction, and of all directions into its target (FVP-10).
        pooled = join_contexts([self.contexts(other).training for other in self.directions])
        known: list[tuple[Contexts, Knowledge]] = [(training, "both"), (pooled, "target")]
        return self.cells(label, [(*both, r, sizes.tops) for r in sizes.language_clusters for both in known])

    def contexts(self, label: str) -> DirectionContexts:
        """Return the contexts of a direction's texts; decode them on first use."""
        if label not in self._contexts:
            direction, top, model = self.directions[label], max(map(max, self.sizes.grid.values())), self.translator.model
            development = [source for source, _ in direction.held_out(self.sizes.heldout_sentences)[1]]
            both = []
            for lines in (direction.training_sources(self.sizes.train_sentences), development):
                self.say(f"{label}: decoding {len(lines):,} sentences")
                sources, max_len = self.translator.encode(lines), self.translator.max_len
                both.append(by_sentence(collect(model, sources, top, batch=CONTEXT_BATCH, max_len=max_len)))
            self._contexts[label] = DirectionContexts(*both)
        return self._contexts[label]

    def test_sentences(self, label: str) -> list[Sentence]:
        """Return the first half of a direction's held-out text."""
        return encode(self.translator, self.directions[label].held_out(self.sizes.heldout_sentences)[0])

    def cells(self, label: str, tried: Sequence[tuple[Contexts, Knowledge, int, Sequence[int]]]) -> Iterator[Cell]:
        """Yield a cell for each clustering (contexts, what is known of their languages, r) and each of its values of K."""
        contexts = self.contexts(label)
        for training, knowledge, clusters, tops in tried:
            self.say(f"{label}: {clusters:,} clusters")
            clustering = clustering_of(training, clusters, self.sizes)
            nearest = assign(contexts.development.hidden, Centroids.of(clustering.centroids)).numpy()
            for top in tops:
                sets = ClusterSet.of(label, training, clustering, self.translator.model, top=top)
                yield cell_of(contexts, training, sets, nearest, knowledge)

    def output(self, label: str, clustering: Clustering, top: int) -> Output:
        """Return the output layer with these clusters, by the fastest products on this box."""
        sets = ClusterSet.of(label, self.contexts(label).training, clustering, self.translator.model, top=top)
        return Output(vocabulary=with_measured_cost(clustered(sets), self.translator.model))

    def decodings(self, label: str, swept: Sequence[Cell]) -> Iterator[Decoded]:
        """Decode the test half with the chosen clusters and each search, in turn with all of the vocabulary (FVP-16)."""
        cell = chosen_of(swept, self.translator.model.vocab)
        output = self.output(label, clustering_of(self.contexts(label).training, cell.clusters, self.sizes), cell.top)
        sample = self.test_sentences(label)
        names: dict[str, Any] = {"label": label, "emitted": cell.emitted, "clusters": cell.clusters, "top": cell.top}
        for beam, batch in self.sizes.searches:
            self.say(f"{label}: decoding with beam {beam}, batch {batch}")
            yield timed_decoding(self.translator, sample, beam, batch, output, self.sizes.rounds, **names)

    def speeds(self, label: str) -> Iterator[Speed]:
        """Time decoding at many r and K, in turn with all of the vocabulary (figure 3)."""
        sizes = self.sizes
        cells, methods = list[Clusters](), {"dense": PLAIN}
        for clusters in sizes.speed_clusters:
            clustering = clustering_of(self.contexts(label).training, clusters, sizes)
            for top in sizes.tops:
                cells.append(Clusters(label=label, clusters=clusters, top=top))
                methods[cells[-1].method] = self.output(label, clustering, top)
        sample = self.test_sentences(label)[: sizes.speed_sentences]
        for beam, batch in sizes.searches:
            self.say(f"{label}: speed of {len(cells)} cluster sets, beam {beam}, batch {batch}")
            timed = time_methods(self.translator, sample, beam, batch, methods, sizes.rounds)
            for cell in cells:
                yield Speed(
                    **cell.model_dump(),
                    beam=beam,
                    batch=batch,
                    sentences=len(sample),
                    identical=identical_share(timed.hypotheses["dense"], timed.hypotheses[cell.method]),
                    conclusive=timed.conclusive,
                    gains=timed.ratios("tokens_per_s", cell.method, "dense"),
                )
