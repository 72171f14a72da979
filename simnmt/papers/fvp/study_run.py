"""Measure a study of a vocabulary part by part; each part is added to its file (FVP-08 to 12, FVP-16, SHARP-02).

A study that was stopped continues with the parts that its file lacks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simnmt.calibrate import processor_use
from simnmt.calibrate.box import describe
from simnmt.calibrate.round_guard import RoundGuard
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.checkpoint import WEIGHTS_FILE
from simnmt.nmt.devices import torch_threads
from simnmt.nmt.recurrent_model import RecurrentModel
from simnmt.nmt.slot_decoder import BatchedRun
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.active_columns import clustered, listed, with_measured_cost
from simnmt.nmt.vocabulary.builders import Align, build_candidates
from simnmt.nmt.vocabulary.bundle_file import model_bytes
from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet
from simnmt.nmt.vocabulary.contexts import Contexts, check_method, join_contexts
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, SubsetAccount
from simnmt.papers.fvp.study import (
    PARTS,
    TIMED_PARTS,
    Cell,
    ClusterSizes,
    Decoded,
    Knowledge,
    Memory,
    Part,
    PartRun,
    Speed,
    StudiedModel,
    Study,
    StudySettings,
    TriedCell,
)
from simnmt.papers.fvp.study_clusters import (
    Clusterer,
    DirectionContexts,
    KeptContexts,
    active_mass,
    cells,
    choose,
    cluster_sets,
    columns_of,
    contenders,
    first_contexts,
    first_sentences,
    memory,
    sizes,
    try_contenders,
)
from simnmt.papers.fvp.study_decoding import (
    MakeVocabulary,
    Runner,
    Sentences,
    VocabularyPart,
    decode_in_rounds,
    measure_speeds,
    similarity,
)
from simnmt.papers.fvp.study_texts import (
    Direction,
    check_held_out,
    check_same,
    held_out,
    sha256_of,
    studied_texts,
    training_lines,
    training_pairs,
)
from simnmt.papers.kit.study import TOOL, PartClock, read_study, write_study
from simnmt.profile.projection_cost import ProjectionCost

Say = Callable[[str], None]
"""Reports progress."""


_LIBRARIES = ("torch", "numpy", "scikit-learn", "faiss-cpu", "sacrebleu", "sentencepiece")


class StudyBench:
    """Measures the parts of a study for one model and the texts of its directions: the method `measure_PART` for each part."""

    def __init__(
        self,
        study: Study,
        translator: Translator,
        directions: Sequence[Direction],
        settings: StudySettings,
        kept: KeptContexts,
        say: Say,
        guard: RoundGuard,
    ) -> None:
        self.study = study
        """The results so far, from whose sweep r and K are chosen."""
        self._translator, self._model, self._settings = translator, translator.model, settings
        self._directions, self._kept, self._say = {direction.label: direction for direction in directions}, kept, say
        self._guard = guard
        self._clusterer = Clusterer(settings.seed, settings.clustered_contexts, settings.method, kept.folder)
        self._contexts: dict[str, DirectionContexts] = {}
        self._dense: dict[tuple[str, int, int], tuple[BatchedRun, float | None]] = {}
        self._cost: ProjectionCost | None = None

    def labels(self, part: Part) -> list[str]:
        """Return the directions for which a part can be measured. Raises `CalibrationError` if there is none."""
        directions = self._directions.items()
        labels = [label for label, direction in directions if part != "candidates" or direction.train_targets is not None]
        if not labels:
            problem = "no translations of any training text, which word alignments need"
            raise CalibrationError(problem, remedy="give the targets of a direction too")
        if part == "by_language" and len(labels) < 2:
            problem = "one direction has no other to be mixed with"
            raise CalibrationError(problem, remedy="give the texts of two directions of one model")
        return labels

    def notes(self, part: Part, entries: Sequence[Any]) -> Iterator[str]:
        """Describe what was left out or sampled, how r and K were chosen, and what was disturbed, in one sentence each."""
        if left := sorted(set(self._directions) - set(self.labels(part))):
            yield f"{', '.join(left)}: left out, since no translations of the training text were given."
        lines = {(text.label, text.role): text.lines for text in self.study.texts}
        for label, contexts in self._contexts.items():
            read, seen = contexts.training.sentences, self._settings.clustered_contexts
            if read < (available := lines.get((label, "train"), read)):
                yield f"{label}: the first {read:,} sentences that are not empty, of {available:,} lines of training text."
            if len(contexts.training) > seen and part != "candidates":
                yield (
                    f"{label}: k-means saw {seen:,} of {len(contexts.training):,} contexts, drawn at random; the others joined "
                    "their nearest centroid, and active sets are made of all."
                )
        if part == "chosen":
            yield from self._choice_notes()
        if part in TIMED_PARTS:
            kept = list({id(entry.rounds): entry.rounds for entry in entries}.values())
            others = max((rounds.worst_others_cpus or 0.0 for rounds in kept), default=0.0)
            change = max((rounds.worst_reference_spread for rounds in kept), default=0.0)
            yield (
                f"{sum(rounds.rejected for rounds in kept)} of {sum(rounds.measured for rounds in kept)} timed stretches of "
                f"rounds were disturbed: others used up to {others:.1f} CPUs, and reference work beside a stretch varied by up "
                f"to {100 * change:.0f} %."
            )

    def _choice_notes(self) -> Iterator[str]:
        settings = self._settings
        for label in self._directions:
            if label in settings.chosen:
                yield f"{label}: r and K were named."
                continue
            tried = self._trials_of(label)
            enough = any(all(trial.good for trial in tried if trial.columns == candidate.columns) for candidate in tried)
            rule = (
                f"the cell that multiplies least of those that keep {settings.least_identical:.0%} of the sentences, and BLEU "
                f"within {settings.most_bleu_change:g}, with every search, with at most {settings.most_share:.0%} of V active "
                "on average at batch 1"
            )
            exception = "" if enough else "; none did, so the one that keeps most with the search that keeps fewest"
            yield f"{label}: r and K were chosen on {tried[0].sentences:,} other held-out sentences, {rule}{exception}."
        yield (
            "Scores are log-probabilities among active columns alone: a beam may rank hypotheses otherwise even where no token "
            "is missed."
        )

    def add(self, entries: Sequence[Any], run: PartRun) -> None:
        """Put `entries` in place of the study's entries of this part for the run's directions.

        A new sweep discards the trials that an earlier one led to.
        """
        study = self.study
        stay = [entry for entry in getattr(study, run.part) if entry.label not in run.labels]
        changed = {run.part: (*stay, *entries), "runs": (*study.runs, run), "tool": TOOL}
        if run.part == "sweep":
            changed["tried"] = tuple(trial for trial in study.tried if trial.label not in run.labels)
        self.study = study.model_copy(update=changed)

    def measure_sweep(self) -> Iterator[Cell]:
        """Measure every r and K of the grid (FVP-11)."""
        for label in self._directions:
            contexts = self._contexts_of(label)
            for clusters, tops in self._settings.grid.items():
                self._say(f"{label}: {clusters:,} clusters")
                yield from cells(self._model, contexts, contexts.training, clusters, tops, self._clusterer)

    def measure_volume(self) -> Iterator[Cell]:
        """Measure clusters of growing training text."""
        settings = self._settings
        for label in self._directions:
            contexts = self._contexts_of(label)
            for halvings in reversed(range(settings.volumes)):
                training = first_sentences(contexts.training, max(1, contexts.training.sentences >> halvings))
                for clusters in settings.volume_clusters:
                    self._say(f"{label}: {clusters:,} clusters of {training.sentences:,} sentences")
                    yield from cells(self._model, contexts, training, clusters, settings.tops, self._clusterer)

    def measure_by_language(self) -> Iterator[Cell]:
        """Measure clusters of one direction and of all directions into its target (FVP-10)."""
        settings = self._settings
        directions = [self._contexts_of(label) for label in self._directions]
        mixed = join_contexts([contexts.training for contexts in directions])
        same_size = {contexts.label: _mix(directions, len(contexts.training)) for contexts in directions}
        for clusters in settings.language_clusters:
            for contexts in directions:
                self._say(f"{contexts.label}: {clusters:,} clusters, by direction and by target")
                trainings: dict[Knowledge, Contexts] = {
                    "both": contexts.training,
                    "target": mixed,
                    "mixed, same size": same_size[contexts.label],
                }
                for knowledge, training in trainings.items():
                    yield from cells(self._model, contexts, training, clusters, settings.tops, self._clusterer, knowledge)

    def measure_per_cluster(self) -> Iterator[ClusterSizes]:
        """Count the active columns of every cluster (figure 4)."""
        for label in self._directions:
            yield from map(sizes, self._sets(label, self._settings.shown_clusters, self._settings.tops))

    def measure_memory(self) -> Iterator[Memory]:
        """Count the bytes of the shown and of the chosen clusters (FVP-12)."""
        settings = self._settings
        for label in self._directions:
            chosen, top = self._choice(label)
            for clusters in sorted({chosen, settings.shown_clusters}):
                tops = settings.tops if clusters == settings.shown_clusters else (top,)
                for cluster_set in self._sets(label, clusters, tops):
                    yield memory(self._model, cluster_set)

    def measure_chosen(self) -> Iterator[Decoded]:
        """Decode the test half with the chosen clusters (FVP-16)."""
        for label in self._directions:
            clusters, top = self._choice(label)
            (cluster_set,) = self._sets(label, clusters, (top,))
            part = VocabularyPart("clustered", clusters=clusters, top=top)
            mass = active_mass(self._model, self._contexts_of(label), cluster_set)
            yield from self._decoded(label, self._maker(clustered, cluster_set), part, mass)

    def measure_speeds(self) -> Iterator[Speed]:
        """Time decoding at many r and K (figure 3)."""
        settings = self._settings
        for label in self._directions:
            sets = [cluster_set for r in settings.speed_clusters for cluster_set in self._sets(label, r, settings.tops)]
            sentences = self._test_half(label).first(settings.speed_sentences)
            for beam, batch in settings.searches:
                self._say(f"{label}: speed of {len(sets)} cluster sets, beam {beam}, batch {batch}")
                yield from measure_speeds(
                    self._translator,
                    sentences,
                    [self._maker(clustered, cluster_set) for cluster_set in sets],
                    [(len(cluster_set.sets), cluster_set.top) for cluster_set in sets],
                    label=label,
                    beam=beam,
                    batch=batch,
                    rounds=settings.rounds,
                    guard=self._guard,
                )

    def measure_candidates(self) -> Iterator[Decoded]:
        """Decode the test half with lists of candidate words (SHARP-02)."""
        settings = self._settings
        blind = isinstance(self._model, RecurrentModel) and self._model.score is None
        aligners: tuple[Align, ...] = ("ibm1",) if blind else ("ibm1", "attention")
        for label in self.labels("candidates"):
            sources, targets = zip(*training_pairs(self._directions[label], settings.train_sentences), strict=True)
            for align in aligners:
                for always in settings.always:
                    self._say(f"{label}: {settings.candidates} candidates a word by {align}, {always:,} always")
                    lists = build_candidates(
                        self._translator, sources, targets, count=settings.candidates, align=align, always=always
                    )
                    part = VocabularyPart(align, candidates=settings.candidates, always=always)
                    yield from self._decoded(label, self._maker(listed, lists), part)

    def _decoded(
        self, label: str, make_vocabulary: MakeVocabulary, part: VocabularyPart, mass: float | None = None
    ) -> Iterator[Decoded]:
        settings = self._settings
        self._say(f"{label}: decoding with {part.selection} columns, {len(settings.searches)} searches in turn")
        for beam, batch in settings.searches:
            yield decode_in_rounds(
                self._translator,
                self._test_half(label),
                make_vocabulary,
                part,
                label=label,
                beam=beam,
                batch=batch,
                rounds=settings.rounds,
                emitted=self._contexts_of(label).emitted,
                active_mass=mass,
                guard=self._guard,
            )

    def _test_half(self, label: str) -> Sentences:
        return Sentences.of(self._translator, held_out(self._directions[label], self._settings.heldout_sentences)[0])

    def _contexts_of(self, label: str) -> DirectionContexts:
        """Return the contexts of a direction's texts; decode them on first use."""
        if label not in self._contexts:
            direction, settings, top = self._directions[label], self._settings, self._settings.most_top
            training = self._kept.of(f"{label}, training", training_lines(direction, settings.train_sentences), top)
            _, development = held_out(direction, settings.heldout_sentences)
            heldout = self._kept.of(f"{label}, held out", development.sources, top)
            self._contexts[label] = DirectionContexts(label, training, heldout)
        return self._contexts[label]

    def _sets(self, label: str, clusters: int, tops: Sequence[int]) -> Iterator[ClusterSet]:
        self._say(f"{label}: {clusters:,} clusters")
        return cluster_sets(self._model, label, self._contexts_of(label).training, clusters, tops, self._clusterer)

    def _trials_of(self, label: str) -> list[TriedCell]:
        return [trial for trial in self.study.tried if trial.label == label]

    def _choice(self, label: str) -> tuple[int, int]:
        """Return r and K of a direction: from the settings, from earlier trials, or from trials run now."""
        settings = self._settings
        if label in settings.chosen:
            return settings.chosen[label]
        tried = self._trials_of(label)
        if not tried:
            swept_cells = [cell for cell in self.study.sweep if cell.label == label]
            if not swept_cells:
                problem = f"no measured cell to choose r and K of {label} by"
                raise CalibrationError(problem, remedy="measure the sweep first, or name them")
            worth = contenders(swept_cells, settings.least_identical, settings.most_share)
            tried = try_contenders(worth, self._try)
            self.study = self.study.model_copy(update={"tried": (*self.study.tried, *tried)})
        return choose(tried)

    def _try(self, cell: Cell) -> list[TriedCell]:
        """Try a cell with every search, the widest first, until one is not good; dense decoding runs once a search."""
        settings, trials = self._settings, list[TriedCell]()
        (cluster_set,) = self._sets(cell.label, cell.clusters, (cell.top,))
        _, development = held_out(self._directions[cell.label], settings.heldout_sentences)
        sentences = Sentences.of(self._translator, development).first(settings.tried_sentences)
        for beam, batch in reversed(settings.searches):
            self._say(f"{cell.label}: trying {cell.clusters:,} clusters, K {cell.top}, beam {beam}, batch {batch}")
            runner = Runner(self._translator, sentences, beam, batch, self._maker(clustered, cluster_set))
            if (cell.label, beam, batch) not in self._dense:
                dense = runner.run("dense")
                self._dense[cell.label, beam, batch] = dense, runner.bleu(dense)
            (before, bleu_dense), after = self._dense[cell.label, beam, batch], runner.run("part")
            same, bleu = similarity(before, after), runner.bleu(after)
            near = bleu is None or bleu_dense is None or abs(bleu - bleu_dense) <= settings.most_bleu_change
            trials.append(
                TriedCell(
                    label=cell.label,
                    clusters=cell.clusters,
                    top=cell.top,
                    columns=columns_of(cell),
                    beam=beam,
                    batch=batch,
                    sentences=len(sentences.sources),
                    bleu_dense=bleu_dense,
                    bleu=bleu,
                    **same._asdict(),
                    good=near and same.identical >= settings.least_identical,
                )
            )
            if not trials[-1].good:
                break
        return trials

    def _maker(self, restrict: Callable[..., RestrictedVocabulary], columns: ClusterSet | CandidateLists) -> MakeVocabulary:
        """Return what makes the vocabulary with `restrict`, `clustered` or `listed`."""

        def make(audit: bool, account: SubsetAccount) -> RestrictedVocabulary:
            return self._costed(restrict(columns, audit=audit, account=account))

        return make

    def _costed(self, vocabulary: RestrictedVocabulary) -> RestrictedVocabulary:
        """Return the vocabulary with the measured cost of products, which is measured once and shared."""
        if self._cost is None:
            self._cost = with_measured_cost(vocabulary, self._model).cost
        return replace(vocabulary, cost=self._cost)


def _mix(directions: Sequence[DirectionContexts], count: int) -> Contexts:
    """Join the first contexts of every direction to `count` in all, as equally as their numbers allow."""
    parts, left = [], count
    for at, contexts in enumerate(sorted(directions, key=lambda contexts: len(contexts.training))):
        parts.append(first_contexts(contexts.training, max(1, left // (len(directions) - at))))
        left -= len(parts[-1])
    return join_contexts(parts)


def run_study(
    folder: Path,
    directions: Sequence[Direction],
    *,
    settings: StudySettings | None = None,
    parts: Sequence[Part] = PARTS,
    out: Path | None = None,
    kept: Path | None = None,
    threads: int = 1,
    progress: Callable[[str], None] = lambda _: None,
    guard: RoundGuard | None = None,
) -> Study:
    """Measure `parts` for these directions of the model in `folder`, in the order of `PARTS`.

    `out`: the study's file; entries of other parts and directions stay, and the file is rewritten after each part.
    `kept`: a folder for contexts, which every part needs and which take minutes to decode; `guard`: checks the timed rounds.
    Raises `CalibrationError` for a file of another model and for directions with the same label, and what reading,
    clustering and decoding raise.
    """
    labels = [direction.label for direction in directions]
    if not labels or len(set(labels)) < len(labels):
        what = f"directions labelled {', '.join(labels) or 'not at all'}"
        raise CalibrationError(what, remedy="give texts of one or more directions, each with a label of its own")
    settings = settings or StudySettings()
    with torch_threads(threads):
        translator = Translator.load(folder)
        study = _begun(_studied(folder, translator), directions, out)
        contexts = KeptContexts(translator, study.model.sha256, kept, progress)
        bench = StudyBench(study, translator, directions, settings, contexts, progress, guard or RoundGuard(say=progress))
        for part in (name for name in PARTS if name in parts):
            clock = PartClock(threads)
            others = clock.others_cpus
            if part in TIMED_PARTS and others is not None and processor_use.is_busy(others, describe(libraries=False)):
                progress(f"{part}: others use {others:.1f} CPUs here; what is timed now is disturbed")
            labels = bench.labels(part)
            if left := [direction.label for direction in directions if direction.label not in labels]:
                progress(f"{part}: not of {', '.join(left)}, since no translations of the training text were given")
            entries = tuple(getattr(bench, f"measure_{part}")())
            run = clock.run(
                PartRun,
                _LIBRARIES,
                part=part,
                labels=tuple(labels),
                method=None if part == "candidates" else check_method(settings.method),
                settings=settings,
                notes=tuple(bench.notes(part, entries)),
            )
            bench.add(entries, run)
            if out is not None:
                write_study(out, bench.study)
    return bench.study


def _begun(model: StudiedModel, directions: Sequence[Direction], out: Path | None) -> Study:
    """Return the study in the file `out`, or a new one, with the texts of these directions."""
    texts = studied_texts(directions)
    check_held_out(texts)
    if out is None or not out.exists():
        return Study(tool=TOOL, model=model, texts=texts)
    study = read_study(out, Study)
    check_same(study, model.sha256, texts, out)
    now = {(text.label, text.role) for text in texts}
    stay = [text for text in study.texts if (text.label, text.role) not in now]
    return study.model_copy(update={"texts": (*stay, *texts)})


def _studied(folder: Path, translator: Translator) -> StudiedModel:
    model: Any = translator.model
    vocab, width = model.weight.shape
    return StudiedModel(
        name=Path(os.path.realpath(folder)).name,
        kind=model.architecture.kind,
        sha256=sha256_of(folder / WEIGHTS_FILE),
        vocab=vocab,
        width=width,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        parameter_bytes=model_bytes(model),
    )
