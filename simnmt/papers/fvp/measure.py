"""Measure a study of a vocabulary: for each direction and part, rows for the study's file (FVP-08 to 11, FVP-16).

Contexts of a direction are decoded once and kept in memory. The file is written after each part of a direction, and what it
holds is not measured again. The harness times decoding stretch by stretch, a fraction of a second in which the methods take
turns, so that a disturbance of the box costs a stretch and not a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pandas as pd
import torch

from simnmt.base.errors import InputError
from simnmt.base.random_streams import stream
from simnmt.batching import mini
from simnmt.calibrate.harness import Case, counted, matrix_reference, nothing, rounds
from simnmt.calibrate.settings import CalibrationError
from simnmt.kernels.columns import Centroids
from simnmt.nmt.agreement import agreement
from simnmt.nmt.checkpoint import WEIGHTS_FILE
from simnmt.nmt.decoder import BatchedRun
from simnmt.nmt.decoder import decode as decode_sentences
from simnmt.nmt.devices import torch_threads
from simnmt.nmt.errors import need
from simnmt.nmt.output_layer import Laps, Output
from simnmt.nmt.search import Search
from simnmt.nmt.sentence_decoder import Hypothesis
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet
from simnmt.nmt.vocabulary.contexts import Clustering, Contexts, assign, cluster, collect, join_contexts
from simnmt.nmt.vocabulary.restricted_vocabulary import SubsetAccount, clustered
from simnmt.papers.fvp.published import MOST_ACTIVE
from simnmt.papers.fvp.study import Cell, Clusters, Decoded, Knowledge, Part, PartRun, Speed, StudiedModel, StudiedText, Study
from simnmt.papers.kit.study import TOOL, part_run, read_study, write_study
from simnmt.results.run_directory import sha256
from simnmt.workload.text_lines import TextLines

WARMING = 20
"""Sentences decoded with each method before timing starts."""
LEAST_STRETCH = 10
"""Sentences of a stretch at least, less than half a second of a small decoder: shared cores change their speed after that."""
PLAIN = Output()
"""All of the vocabulary: projection, softmax and search one after the other."""
LEAST_CALM = 2 / 3
"""Share of the stretches of all rounds that must be undisturbed for times to decide anything."""
Pair = tuple[str, str | None]
"""A sentence, and its translation if there are references."""


@dataclass(frozen=True, slots=True)
class Direction:
    """The texts of one language direction, one sentence a line."""

    label: str
    train: Path
    """Sources that clusters are made of."""
    heldout: Path
    """Other sources."""
    references: Path | None = None
    """Translations of `heldout`, for BLEU."""

    def studied(self) -> list[StudiedText]:
        files = {"train": self.train, "heldout": self.heldout, "references": self.references}
        named = [(role, path, len(_lines(path))) for role, path in files.items() if path is not None]
        return [
            StudiedText(label=self.label, role=role, name=path.name, sha256=sha256(path), lines=lines)  # type: ignore[arg-type]
            for role, path, lines in named
        ]

    def training_sources(self, most: int) -> list[str]:
        return [line for line in _lines(self.train) if line.strip()][:most]

    def held_out(self, most: int) -> tuple[list[Pair], list[Pair]]:
        """Return at most `most` sentences of each half of the held-out text, without empty ones.

        The second half chooses r and K, and the first half is decoded with them: the reported figures of the chosen cell come
        from other sentences than those that chose it. Raises `CalibrationError` for fewer than two sentences, and for
        references of another length.
        """
        lines = _lines(self.heldout)
        references: Sequence[str | None] = [None] * len(lines) if self.references is None else _lines(self.references)
        if len(references) != len(lines):
            remedy = "give one translation a line, in the order of the text"
            raise CalibrationError(f"not as many lines as {self.heldout}", path=self.references, remedy=remedy)
        kept = [pair for pair in zip(lines, references, strict=True) if all(text is None or text.strip() for text in pair)]
        if len(kept) < 2:
            raise CalibrationError("fewer than two sentences", path=self.heldout, remedy="give a text, one sentence a line")
        half = (len(kept) + 1) // 2
        return kept[:half][:most], kept[half:][:most]


def directions_of(texts: Iterable[str]) -> list[Direction]:
    """Return the directions of texts given as LABEL=TRAIN,HELDOUT[,REFERENCES].

    Raises `InputError` for another form and for a label given twice.
    """
    directions: dict[str, Direction] = {}
    for text in texts:
        label, _, files = text.partition("=")
        paths = [Path(file) for file in files.split(",") if file]
        if not label or label in directions or len(paths) not in (2, 3):
            what = f"--text {text}: no LABEL=TRAIN,HELDOUT[,REFERENCES], or of a label given twice"
            raise InputError(what, remedy="name the direction and its files: --text fr-en=train.fr,heldout.fr,heldout.en")
        directions[label] = Direction(label, *paths)
    return list(directions.values())


def _lines(path: Path) -> list[str]:
    return list(TextLines(path, kept=True, pipes=False))


Sentence = tuple[Sequence[int], str | None]
"""The tokens of a source as the model reads it, and its translation if there are references."""


def encode(translator: Translator, pairs: Iterable[Pair]) -> list[Sentence]:
    """Return the sentences as the model reads them, without those of no token."""
    sources, references = zip(*pairs, strict=True)
    return [(ids, reference) for ids, reference in zip(translator.encode(sources), references, strict=True) if ids]


def decode(translator: Translator, sentences: Sequence[Sentence], beam: int, batch: int, output: Output = PLAIN) -> BatchedRun:
    sources = [source for source, _ in sentences]
    most = [2 * len(source) + 10 for source in sources]
    return decode_sentences(translator.model, sources, mini(batch), search=Search(beam), output=output, max_len=most)


def bleu_of(translator: Translator, sentences: Sequence[Sentence], hypotheses: Iterable[Hypothesis]) -> float | None:
    """Return the BLEU of translations; None without references. Raises `NmtError` without sacrebleu."""
    references = [reference for _, reference in sentences]
    if references[0] is None:
        return None
    texts = translator.target.decode([list(hypothesis.tokens) for hypothesis in hypotheses])
    return float(need("sacrebleu.metrics").BLEU().corpus_score(texts, [references]).score)


class Timed(NamedTuple):
    """A text decoded in rounds by several methods, in turn, stretch by stretch."""

    by_round: pd.DataFrame
    """By round, over the stretches that count; columns are pairs of a value and a method (one is `dense`): `tokens_per_s`, end
    tokens included, `layer_s` and `body_s` (of a step), `layer_share` (of the time), `tokens`."""
    hypotheses: Mapping[str, list[Hypothesis]]
    """By method, of the whole text."""
    conclusive: bool
    """Enough stretches were undisturbed in all methods; else all of them count."""

    def ratios(self, value: str, above: str, below: str) -> tuple[float, ...]:
        return tuple((self.by_round[value, above] / self.by_round[value, below]).tolist())

    def beside_dense(self, method: str) -> dict[str, Any]:
        """Return the fields of `Speed` that compare a method with dense decoding; ties and rounding differ too."""
        pairs = zip(self.hypotheses["dense"], self.hypotheses[method], strict=True)
        same, gains = [dense.tokens == other.tokens for dense, other in pairs], self.ratios("tokens_per_s", method, "dense")
        return {"sentences": len(same), "identical": float(np.mean(same)), "conclusive": self.conclusive, "gains": gains}


def time_methods(
    translator: Translator,
    sentences: Sequence[Sentence],
    beam: int,
    batch: int,
    methods: Mapping[str, Output],
    count: int,
    stretch: int = LEAST_STRETCH,
) -> Timed:
    """Decode a text in `count` rounds, each stretch of it by all methods in turn, beside reference work.

    A stretch has `stretch` sentences at least: whole batches, so that they are those of the whole text.
    """
    size = batch * ceil(stretch / batch)
    pieces = [sentences[begin : begin + size] for begin in range(0, len(sentences), size)]
    written: dict[tuple[int, str], Sequence[Hypothesis]] = {}

    def run(place: int, name: str) -> dict[str, float]:
        laps = Laps()
        done = decode(translator, pieces[place], beam, batch, replace(methods[name], lap=laps))
        written[place, name] = done.hypotheses
        seconds = laps.seconds
        layer_s = sum(seconds[part] for part in ("project", "softmax", "search", "fused_product", "fused"))
        tokens = sum(len(hypothesis.tokens) + 1 for hypothesis in done.hypotheses)
        numbers = {"total_s": done.total_s, "body_s": seconds["body"], "layer_s": layer_s}
        return numbers | {"steps": len(done.active), "tokens": tokens}

    for output in methods.values():
        decode(translator, sentences[:WARMING], beam, batch, output)
    cases = {
        (place, name): Case(partial(run, place, name), prepare=nothing, about={"piece": place, "method": name})
        for place in range(len(pieces))
        for name in methods
    }
    rows = counted(rounds(cases, count, reference=matrix_reference(), name="stretches"), every=True)
    disturbed = rows.groupby(["round", "piece"])["disturbed"].transform("any")
    calm = 1.0 - float(disturbed.mean()) >= LEAST_CALM
    sums = (rows[~disturbed] if calm else rows).pivot_table(
        index="round", columns="method", values=["total_s", "body_s", "layer_s", "steps", "tokens"], aggfunc="sum"
    )
    values = {
        "tokens_per_s": sums["tokens"] / sums["total_s"],
        "layer_s": sums["layer_s"] / sums["steps"],
        "body_s": sums["body_s"] / sums["steps"],
        "layer_share": sums["layer_s"] / sums["total_s"],
        "tokens": sums["tokens"],
    }
    hypotheses = {name: list(chain.from_iterable(written[place, name] for place in range(len(pieces)))) for name in methods}
    return Timed(pd.concat(values, axis=1), hypotheses, calm)


def timed_decoding(
    translator: Translator, sentences: Sequence[Sentence], beam: int, batch: int, part: Output, count: int, **settings: Any
) -> Decoded:
    """Decode a text with one search, by all methods in turn; `settings`: further fields of the result."""
    methods = {"dense": PLAIN, "fused": Output(fused=True), "part": part}
    timed = time_methods(translator, sentences, beam, batch, methods, count)
    assert part.vocabulary is not None
    account, sources = SubsetAccount(), [source for source, _ in sentences]
    audit = replace(part, vocabulary=replace(part.vocabulary, audit=True, account=account))
    audited = decode(translator, sentences, beam, batch, audit)
    dense, most = timed.hypotheses["dense"], [2 * len(source) + 10 for source in sources]
    compared = agreement(translator.model, sources, dense, audited.hypotheses, beam=beam, max_len=most)
    medians = timed.by_round.median()
    return Decoded(
        beam=beam,
        batch=batch,
        token_agreement=compared.equal_tokens,
        bleu=bleu_of(translator, sentences, dense),
        bleu_part=bleu_of(translator, sentences, timed.hypotheses["part"]),
        tokens_per_s=medians["tokens_per_s", "dense"],
        tokens_per_s_fused=medians["tokens_per_s", "fused"],
        tokens_per_s_part=medians["tokens_per_s", "part"],
        layer_share=medians["layer_share", "dense"],
        layer_us=1e6 * medians["layer_s", "part"],
        body_ratio=medians["body_s", "dense"] / medians["body_s", "part"],
        near_ties=len(compared.near_ties),
        miss_rate=account.miss_rate,
        share_mean=float(account.share.mean()),
        share_most=float(account.share.max()),
        gains_over_fused=timed.ratios("tokens_per_s", "part", "fused"),
        layer_ratios=timed.ratios("layer_s", "dense", "part"),
        layer_ratios_over_fused=timed.ratios("layer_s", "fused", "part"),
        **timed.beside_dense("part"),
        **settings,
    )


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
