"""Measure a study of a vocabulary: for each direction and part, rows for the study's file (FVP-08 to 11, FVP-16).

Contexts of a direction are decoded once and kept in memory. The file is written after each part of a direction, and what it
holds is not measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

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
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, clustered, with_measured_cost
from simnmt.papers.fvp.decoding import (
    PLAIN,
    Sentences,
    bleu_of,
    decode,
    identical_share,
    time_methods,
    timed_decoding,
    tokens_per_s,
)
from simnmt.papers.fvp.published import LEAST_IDENTICAL, MOST_ACTIVE, MOST_BLEU_CHANGE
from simnmt.papers.fvp.study import (
    Cell,
    Decoded,
    Knowledge,
    Part,
    PartRun,
    Speed,
    StudiedModel,
    Study,
    format_clusters,
)
from simnmt.papers.fvp.texts import Direction, Sample, held_out, sha256_of, training_sources
from simnmt.papers.kit.study import TOOL, part_run, read_study, write_study

PARTS: tuple[Part, ...] = get_args(Part)
"""Measured one by one; the last two time real decoding and need a quiet box."""
Say = Callable[[str], None]
"""Reports progress."""
CONTEXT_BATCH = 128
"""Sentences decoded together for contexts: 1.3 times as fast on one thread as 64."""
LIBRARIES = ("torch", "numpy", "scikit-learn", "sacrebleu", "sentencepiece")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of a study is measured; by default the paper's grid (FVP-10, FVP-11)."""

    clusters: Sequence[int] = tuple(range(100, 2_001, 100))
    tops: Sequence[int] = (1, 3, 5)
    fine: Mapping[int, Sequence[int]] = field(
        default_factory=lambda: dict.fromkeys((50, 100, 200, 300, 500, 1_000), (5, 10, 20))
    )
    """K by r beside this grid, where quality is sought: few clusters with many tokens each miss least."""
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
    tried_sentences: int = 1_000
    """Sentences of the development half on which r and K are chosen."""
    quick: bool = False

    @property
    def grid(self) -> dict[int, list[int]]:
        """Return every r of the sweep with its values of K, both ascending."""
        tops: dict[int, set[int]] = {clusters: set(self.tops) for clusters in self.clusters}
        for clusters, more in self.fine.items():
            tops.setdefault(clusters, set()).update(more)
        return {clusters: sorted(tops[clusters]) for clusters in sorted(tops)}


QUICK = Sizes(
    quick=True,
    clusters=(50, 100, 200),
    fine={},
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
                run = part_run(PartRun, threads, LIBRARIES, part=part, labels=(label,), notes=bench.notes(label))
                changed = {part: (*getattr(study, part), *entries), "runs": (*study.runs, run), "tool": TOOL}
                study = study.model_copy(update=changed)
                if out is not None:
                    write_study(out, study)
    return study


def _studied(folder: Path, translator: Translator) -> StudiedModel:
    model: Any = translator.model
    vocab, width = model.weight.shape
    return StudiedModel(
        name=folder.resolve().name,
        kind=model.architecture.kind,
        sha256=sha256_of(folder / WEIGHTS_FILE),
        vocab=vocab,
        width=width,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )


def _begun(model: StudiedModel, directions: Sequence[Direction], sizes: Sizes, out: Path | None) -> Study:
    """Return the study in the file `out`, or a new one, with the texts of these directions."""
    texts = [text for direction in directions for text in direction.studied()]
    train = {text.sha256: text for text in texts if text.role == "train"}
    for text in texts:
        if text.role == "heldout" and text.sha256 in train:
            problem = f"{text.name} is {text.label}'s held-out text and {train[text.sha256].label}'s training text"
            raise CalibrationError(problem, remedy="hold out sentences that clusters are not made of")
    if out is None or not out.exists():
        return Study(tool=TOOL, quick=sizes.quick, model=model, texts=tuple(texts))
    study = read_study(out, Study)
    if study.model.sha256 != model.sha256:
        raise CalibrationError(f"a study of another model, {study.model.name}", path=out, remedy="choose another file")
    known = {(text.label, text.role): text for text in texts}
    for before in study.texts:
        if known.pop((before.label, before.role), before).sha256 != before.sha256:
            problem = f"a study of another text {before.name} for {before.label}"
            raise CalibrationError(problem, path=out, remedy="choose another file")
    return study.model_copy(update={"texts": (*study.texts, *known.values())})


@dataclass(frozen=True, slots=True)
class DirectionContexts:
    """Contexts of dense greedy decoding of one direction's texts, sentence by sentence."""

    training: Contexts
    development: Contexts

    @property
    def emitted(self) -> int:
        """Return the number of distinct tokens that dense decoding wrote for both texts."""
        return len(torch.unique(torch.cat((self.training.emitted, self.development.emitted))))


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


def active_of(sets: ClusterSet) -> NDArray[np.bool_]:
    """Return the active sets as truth values, shape (clusters, vocab)."""
    starts = sets.sets.starts.numpy()
    active = np.zeros((len(starts) - 1, sets.sets.vocab), dtype=bool)
    active[np.repeat(np.arange(len(starts) - 1), np.diff(starts)), sets.sets.columns.numpy()] = True
    return active


def cell_of(
    contexts: DirectionContexts, training: Contexts, sets: ClusterSet, nearest: NDArray[np.int64], knowledge: Knowledge
) -> Cell:
    """Compare active sets with the tokens that dense greedy decoding of the development half wrote.

    `training`: the contexts that were clustered; `nearest`: cluster of each step of the development half.
    """
    active, development = active_of(sets), contexts.development
    columns, vocab = active.sum(axis=1), active.shape[1]
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
        emitted=contexts.emitted,
        miss_rate=float(1.0 - hit.mean()),
        identical=float((np.bincount(sentence, weights=~hit) == 0).mean()),
    )


def columns_of(cell: Cell, vocab: int) -> float:
    """Return r + V', the mean columns that a row is multiplied with at batch 1, centroids included (FVP-09)."""
    return cell.clusters + cell.share_mean * vocab


def contenders(swept: Sequence[Cell], vocab: int) -> list[Cell]:
    """Return the cells worth decoding, in rising order both of products and of greedily identical sentences.

    Leaves out cells with more than 15 % of V active on average, and those that multiply more than another without keeping more.
    """
    within = [cell for cell in swept if cell.share_mean <= MOST_ACTIVE] or list(swept)
    front: list[Cell] = []
    for cell in sorted(within, key=lambda cell: (columns_of(cell, vocab), -cell.identical, cell.clusters)):
        if not front or cell.identical > front[-1].identical:
            front.append(cell)
    return [cell for cell in front if cell.identical >= LEAST_IDENTICAL] or front[-1:]


@dataclass(frozen=True, slots=True)
class _Bench:
    """What the parts of a study share: the model, its texts, and their contexts."""

    translator: Translator
    directions: Mapping[str, Direction]
    sizes: Sizes
    say: Say
    _contexts: dict[str, DirectionContexts] = field(default_factory=dict)

    def measured(self, part: Part, label: str, study: Study) -> Iterator[Cell | Decoded | Speed]:
        """Measure a part of a direction; the chosen clusters are those of the study's sweep."""
        if part == "chosen":
            return self.decodings(label, [cell for cell in study.sweep if cell.label == label])
        if part == "speeds":
            return self.speeds(label)
        return self.cells(part, label)

    def notes(self, label: str) -> tuple[str, ...]:
        """Describe what was sampled."""
        contexts, seen = self._contexts.get(label), self.sizes.clustered_contexts
        if contexts is None or len(contexts.training) <= seen:
            return ()
        return (
            f"k-means saw {seen:,} of {len(contexts.training):,} contexts, drawn at random; the others joined their nearest "
            "centroid, and active sets are made of all.",
        )

    def contexts(self, label: str) -> DirectionContexts:
        """Return the contexts of a direction's texts; decode them on first use."""
        if label not in self._contexts:
            sizes, top = self.sizes, max(top for tops in self.sizes.grid.values() for top in tops)
            both = []
            for lines in (training_sources(self.directions[label], sizes.train_sentences), self.held_out(label)[1].sources):
                self.say(f"{label}: decoding {len(lines):,} sentences")
                sources, max_len = self.translator.encode(lines), self.translator.max_len
                both.append(by_sentence(collect(self.translator.model, sources, top, batch=CONTEXT_BATCH, max_len=max_len)))
            self._contexts[label] = DirectionContexts(*both)
        return self._contexts[label]

    def held_out(self, label: str) -> tuple[Sample, Sample]:
        """Return the halves of a direction's held-out text."""
        return held_out(self.directions[label], self.sizes.heldout_sentences)

    def clusterings(self, part: Part, label: str) -> Iterator[tuple[int, Sequence[int], Contexts, Knowledge]]:
        """Yield r, the values of K and the contexts of every clustering of a part, and what is known of their languages."""
        sizes, training = self.sizes, self.contexts(label).training
        if part == "sweep":  # every r and K of the grid (FVP-11)
            for clusters, tops in sizes.grid.items():
                yield clusters, tops, training, "both"
        elif part == "volume":  # growing text (FVP-08)
            for halvings in reversed(range(sizes.volumes)):
                beginning = first_sentences(training, max(1, training.sentences >> halvings))
                for clusters in sizes.volume_clusters:
                    yield clusters, sizes.tops, beginning, "both"
        else:  # of one direction and of all directions into its target (FVP-10)
            pooled = join_contexts([self.contexts(other).training for other in self.directions])
            for clusters in sizes.language_clusters:
                yield clusters, sizes.tops, training, "both"
                yield clusters, sizes.tops, pooled, "target"

    def cells(self, part: Part, label: str) -> Iterator[Cell]:
        """Yield the cells of every clustering of a part, one for each K."""
        contexts, model = self.contexts(label), self.translator.model
        for clusters, tops, training, knowledge in self.clusterings(part, label):
            self.say(f"{label}: {clusters:,} clusters")
            clustering = clustering_of(training, clusters, self.sizes)
            nearest = assign(contexts.development.hidden, Centroids.of(clustering.centroids)).numpy()
            for top in tops:
                sets = ClusterSet.of(label, training, clustering, model, top=top)
                yield cell_of(contexts, training, sets, nearest, knowledge)

    def choice(self, label: str, swept: Sequence[Cell]) -> tuple[Cell, RestrictedVocabulary]:
        """Return, of the cells that multiply least, the first that keeps enough with every search, else the last."""
        training, model, cost = self.contexts(label).training, self.translator.model, None
        sentences = Sentences.of(self.translator, self.held_out(label)[1])
        sentences = sentences.at(range(min(self.sizes.tried_sentences, len(sentences.sources))))
        dense = {search: self.tokens(sentences, search, PLAIN) for search in self.sizes.searches}
        for cell in contenders(swept, model.vocab):
            self.say(f"{label}: {format_clusters(cell.clusters, cell.top)}")
            clustering = clustering_of(training, cell.clusters, self.sizes)
            part = clustered(ClusterSet.of(label, training, clustering, model, top=cell.top))
            cost = cost or with_measured_cost(part, model).cost
            part = replace(part, cost=cost)
            output = Output(vocabulary=part)
            if all(self.is_good(sentences, dense[search], self.tokens(sentences, search, output)) for search in dense):
                break
        return cell, part

    def tokens(self, sentences: Sentences, search: tuple[int, int], output: Output) -> list[tuple[int, ...]]:
        """Return the tokens of a decoding by sentence."""
        return [hypothesis.tokens for hypothesis in decode(self.translator, sentences, *search, output).hypotheses]

    def is_good(self, sentences: Sentences, dense: Sequence[Any], part: Sequence[Any]) -> bool:
        """Return True if enough of the sentences are identical, and BLEU is near enough."""
        before, after = (bleu_of(self.translator, sentences, tokens) for tokens in (dense, part))
        near = before is None or after is None or abs(after - before) <= MOST_BLEU_CHANGE
        return near and identical_share(dense, part) >= LEAST_IDENTICAL

    def decodings(self, label: str, swept: Sequence[Cell]) -> Iterator[Decoded]:
        """Decode the test half with the chosen clusters and each search, in turn with all of the vocabulary (FVP-16)."""
        cell, part = self.choice(label, swept)
        sample = Sentences.of(self.translator, self.held_out(label)[0])
        names: dict[str, Any] = {"label": label, "emitted": cell.emitted, "clusters": cell.clusters, "top": cell.top}
        for beam, batch in self.sizes.searches:
            self.say(f"{label}: decoding with beam {beam}, batch {batch}")
            yield timed_decoding(self.translator, sample, beam, batch, part, self.sizes.rounds, **names)

    def speeds(self, label: str) -> Iterator[Speed]:
        """Time decoding at many r and K, in turn with all of the vocabulary (figure 3)."""
        sizes, training, model = self.sizes, self.contexts(label).training, self.translator.model
        methods = {"dense": PLAIN}
        measured: dict[str, dict[str, Any]] = {}
        for clusters in sizes.speed_clusters:
            clustering = clustering_of(training, clusters, sizes)
            for top in sizes.tops:
                name = format_clusters(clusters, top)
                sets = ClusterSet.of(label, training, clustering, model, top=top)
                methods[name] = Output(vocabulary=with_measured_cost(clustered(sets), model))
                measured[name] = {"label": label, "clusters": clusters, "top": top}
        sample = Sentences.of(self.translator, self.held_out(label)[0])
        sample = sample.at(range(min(sizes.speed_sentences, len(sample.sources))))
        for beam, batch in sizes.searches:
            sentences = sample.in_batch_order(batch)
            self.say(f"{label}: speed of {len(measured)} cluster sets, beam {beam}, batch {batch}")
            timed = time_methods(self.translator, sentences, beam, batch, methods, sizes.rounds)
            for name, names in measured.items():
                yield Speed(
                    **names,
                    beam=beam,
                    batch=batch,
                    sentences=len(sentences.sources),
                    identical=identical_share(timed.tokens("dense"), timed.tokens(name)),
                    conclusive=timed.conclusive,
                    ratios=timed.ratios(tokens_per_s, name, "dense"),
                )
