"""Measure a study of a vocabulary part by part; each part is added to its file (FVP-08 to 12, FVP-16, SHARP-02).

A study that was stopped continues with the parts that its file lacks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from simnmt.calibrate import harness, processor_use
from simnmt.calibrate.box import describe
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.checkpoint import WEIGHTS_FILE
from simnmt.nmt.decoder import BatchedRun
from simnmt.nmt.devices import torch_threads
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.builders import build_candidates
from simnmt.nmt.vocabulary.bundle_file import model_bytes
from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet
from simnmt.nmt.vocabulary.contexts import METHOD, Contexts, join_contexts
from simnmt.nmt.vocabulary.restricted_vocabulary import (
    RestrictedVocabulary,
    SubsetAccount,
    clustered,
    listed,
    with_measured_cost,
)
from simnmt.papers.fvp import study as study_file
from simnmt.papers.fvp import study_clusters, study_decoding, study_texts
from simnmt.papers.fvp.study import PARTS, TIMED_PARTS, Cell, Knowledge, Part, PartRun, Study, StudySettings, TriedCell
from simnmt.papers.fvp.study_clusters import Clusterer, DirectionContexts, KeptContexts
from simnmt.papers.fvp.study_decoding import MakeVocabulary, Runner, Sentences, TimedSearch, VocabularyPart
from simnmt.papers.fvp.study_texts import Direction
from simnmt.papers.kit.study import TOOL, PartClock, read_study, write_study
from simnmt.profile.projection_cost import ProjectionCost

Say = Callable[[str], None]
"""Reports progress."""
_LIBRARIES = ("torch", "numpy", "scikit-learn", "sacrebleu", "sentencepiece")


@dataclass(slots=True)
class StudyBench:
    """Measures the parts of a study for one model and the texts of its directions."""

    study: Study
    """The results so far, from whose sweep r and K are chosen."""
    translator: Translator
    directions: Mapping[str, Direction]
    """Directions by label."""
    settings: StudySettings
    kept: KeptContexts
    say: Say
    reference: harness.Run | harness.Case
    _contexts: dict[str, DirectionContexts] = field(default_factory=dict)
    _dense: dict[tuple[str, int, int], tuple[BatchedRun, float | None]] = field(default_factory=dict)
    """Dense decodings of the development half with their BLEU, by direction, beam and batch."""
    _cost: ProjectionCost | None = None

    @property
    def _model(self) -> StepModel:
        return self.translator.model

    @property
    def _clusterer(self) -> Clusterer:
        settings = self.settings
        return Clusterer(settings.seed, settings.clustered_contexts, self.kept.folder)

    def labels(self, part: Part) -> list[str]:
        """Return the directions for which a part can be measured. Raises `CalibrationError` if there is none."""
        directions = self.directions.items()
        labels = [label for label, direction in directions if part != "candidates" or direction.train_targets is not None]
        if not labels:
            problem = "no translations of any training text, which word alignments need"
            raise CalibrationError(problem, remedy="give the targets of a direction too")
        if part == "by_language" and len(labels) < 2:
            problem = "one direction has no other to be mixed with"
            raise CalibrationError(problem, remedy="give the texts of two directions of one model")
        return labels

    def entries(self, part: Part) -> Iterable[Any]:
        """Yield the entries of a part, measured for all of its directions."""
        if part == "by_language":
            return self._by_language()
        return chain.from_iterable(getattr(self, f"_{part}")(label) for label in self.labels(part))

    def notes(self, part: Part, entries: Sequence[Any]) -> Iterator[str]:
        """Describe what was left out or sampled, how r and K were chosen, and what was disturbed, in one sentence each."""
        if left := sorted(set(self.directions) - set(self.labels(part))):
            yield f"{', '.join(left)}: left out, since no translations of the training text were given."
        lines = {(text.label, text.role): text.lines for text in self.study.texts}
        for label, contexts in self._contexts.items():
            read, seen = contexts.training.sentences, self.settings.clustered_contexts
            if read < (available := lines.get((label, "train"), read)):
                yield f"{label}: the first {read:,} sentences that are not empty, of {available:,} lines of training text."
            if len(contexts.training) > seen and part != "candidates":
                yield (
                    f"{label}: k-means saw {seen:,} of {len(contexts.training):,} contexts, drawn at random; the others joined "
                    "their nearest centroid, and active sets are made of all."
                )
        if part == "chosen":
            yield from map(self._choice_note, self.directions)
            yield (
                "Scores are log-probabilities among active columns alone: a beam may rank hypotheses otherwise even where no "
                "token is missed."
            )
        if part in TIMED_PARTS:
            kept = list({id(entry.rounds): entry.rounds for entry in entries}.values())
            others = max((rounds.worst_others_cpus or 0.0 for rounds in kept), default=0.0)
            change = max((rounds.worst_reference_spread for rounds in kept), default=0.0)
            yield (
                f"{sum(rounds.rejected for rounds in kept)} of {sum(rounds.measured for rounds in kept)} timed stretches of "
                f"rounds were disturbed: others used up to {others:.1f} CPUs, and reference work beside a stretch varied by up "
                f"to {100 * change:.0f} %."
            )

    def _choice_note(self, label: str) -> str:
        settings = self.settings
        if label in settings.chosen:
            return f"{label}: r and K were named."
        tried = self._trials_of(label)
        enough = any(all(trial.good for trial in tried if trial.columns == candidate.columns) for candidate in tried)
        exception = "" if enough else "; none did, so the one that keeps most with the search that keeps fewest"
        return (
            f"{label}: r and K were chosen on {tried[0].sentences:,} other held-out sentences, the cell that multiplies least "
            f"of those that keep {settings.least_identical:.0%} of the sentences, and BLEU within "
            f"{settings.most_bleu_change:g}, with every search, with at most {settings.most_share:.0%} of V active on average "
            f"at batch 1{exception}."
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

    def _cells(
        self, label: str, clusters: int, training: Contexts, tops: Sequence[int], knowledge: Knowledge = "both"
    ) -> Iterator[Cell]:
        self.say(f"{label}: {clusters:,} clusters of {training.sentences:,} sentences")
        return study_clusters.cells(self._model, self._contexts_of(label), training, clusters, tops, self._clusterer, knowledge)

    def _sweep(self, label: str) -> Iterator[Cell]:
        """Measure every r and K of the grid (FVP-11)."""
        for clusters, tops in self.settings.grid.items():
            yield from self._cells(label, clusters, self._contexts_of(label).training, tops)

    def _volume(self, label: str) -> Iterator[Cell]:
        """Measure clusters of growing training text."""
        settings, contexts = self.settings, self._contexts_of(label).training
        for halvings in reversed(range(settings.volumes)):
            training = study_clusters.first_sentences(contexts, max(1, contexts.sentences >> halvings))
            for clusters in settings.volume_clusters:
                yield from self._cells(label, clusters, training, settings.tops)

    def _by_language(self) -> Iterator[Cell]:
        """Measure clusters of one direction and of all directions into its target (FVP-10)."""
        settings = self.settings
        directions = [self._contexts_of(label) for label in self.directions]
        mixed = join_contexts([contexts.training for contexts in directions])
        same_size = {contexts.label: _mix(directions, len(contexts.training)) for contexts in directions}
        for clusters in settings.language_clusters:
            for contexts in directions:
                trainings: dict[Knowledge, Contexts] = {
                    "both": contexts.training,
                    "target": mixed,
                    "mixed, same size": same_size[contexts.label],
                }
                for knowledge, training in trainings.items():
                    yield from self._cells(contexts.label, clusters, training, settings.tops, knowledge)

    def _per_cluster(self, label: str) -> Iterator[study_file.ClusterSizes]:
        """Count the active columns of every cluster (figure 4)."""
        return map(study_clusters.sizes, self._sets(label, self.settings.shown_clusters, self.settings.tops))

    def _memory(self, label: str) -> Iterator[study_file.Memory]:
        """Count the bytes of the shown and of the chosen clusters (FVP-12)."""
        chosen, top = self._choice(label)
        shown, tops = self.settings.shown_clusters, self.settings.tops
        for clusters in sorted({chosen, shown}):
            for cluster_set in self._sets(label, clusters, tops if clusters == shown else (top,)):
                yield study_clusters.memory(self._model, cluster_set)

    def _chosen(self, label: str) -> Iterator[study_file.Decoded]:
        """Decode the test half with the chosen clusters (FVP-16)."""
        clusters, top = self._choice(label)
        (cluster_set,) = self._sets(label, clusters, (top,))
        part = VocabularyPart("clustered", clusters=clusters, top=top)
        mass = study_clusters.active_mass(self._model, self._contexts_of(label), cluster_set)
        return self._decoded(label, self._maker(clustered, cluster_set), part, mass)

    def _speeds(self, label: str) -> Iterator[study_file.Speed]:
        """Time decoding at many r and K (figure 3)."""
        settings = self.settings
        sets = [cluster_set for r in settings.speed_clusters for cluster_set in self._sets(label, r, settings.tops)]
        makers = {(len(cluster_set.sets), cluster_set.top): self._maker(clustered, cluster_set) for cluster_set in sets}
        sentences = self._test_half(label).first(settings.speed_sentences)
        for search in self._searches(label):
            self.say(f"{label}: speed of {len(sets)} cluster sets, beam {search.beam}, batch {search.batch}")
            yield from study_decoding.measure_speeds(self.translator, sentences, makers, search)

    def _candidates(self, label: str) -> Iterator[study_file.Decoded]:
        """Decode the test half with lists of candidate words (SHARP-02)."""
        settings, count = self.settings, self.settings.candidates
        sources, targets = zip(*study_texts.training_pairs(self.directions[label], settings.train_sentences), strict=True)
        for always in settings.always:
            self.say(f"{label}: {count} candidates a word, {always:,} always")
            lists = build_candidates(self.translator, sources, targets, count=count, always=always)
            part = VocabularyPart("ibm1", candidates=count, always=always)
            yield from self._decoded(label, self._maker(listed, lists), part)

    def _decoded(
        self, label: str, make_vocabulary: MakeVocabulary, part: VocabularyPart, mass: float | None = None
    ) -> Iterator[study_file.Decoded]:
        self.say(f"{label}: decoding with {part.selection} columns, {len(self.settings.searches)} searches in turn")
        emitted, sentences = self._contexts_of(label).emitted, self._test_half(label)
        for search in self._searches(label):
            yield study_decoding.decode_in_rounds(
                self.translator, sentences, make_vocabulary, part, search, emitted=emitted, active_mass=mass
            )

    def _searches(self, label: str) -> list[TimedSearch]:
        rounds, reference = self.settings.rounds, self.reference
        return [TimedSearch(label, beam, batch, rounds, reference) for beam, batch in self.settings.searches]

    def _test_half(self, label: str) -> Sentences:
        return Sentences.of(self.translator, self._heldout(label)[0])

    def _heldout(self, label: str) -> tuple[study_texts.Sample, study_texts.Sample]:
        return study_texts.held_out(self.directions[label], self.settings.heldout_sentences)

    def _contexts_of(self, label: str) -> DirectionContexts:
        """Return the contexts of a direction's texts; decode them on first use."""
        if label not in self._contexts:
            lines = study_texts.training_lines(self.directions[label], self.settings.train_sentences)
            training = self.kept.of(f"{label}, training", lines, self.settings.most_top)
            heldout = self.kept.of(f"{label}, held out", self._heldout(label)[1].sources, self.settings.most_top)
            self._contexts[label] = DirectionContexts(label, training, heldout)
        return self._contexts[label]

    def _sets(self, label: str, clusters: int, tops: Sequence[int]) -> Iterator[ClusterSet]:
        self.say(f"{label}: {clusters:,} clusters")
        training = self._contexts_of(label).training
        return study_clusters.cluster_sets(self._model, label, training, clusters, tops, self._clusterer)

    def _trials_of(self, label: str) -> list[TriedCell]:
        return [trial for trial in self.study.tried if trial.label == label]

    def _choice(self, label: str) -> tuple[int, int]:
        """Return r and K of a direction: from the settings, from earlier trials, or from trials run now."""
        settings = self.settings
        if label in settings.chosen:
            return settings.chosen[label]
        tried = self._trials_of(label)
        if not tried:
            swept_cells = [cell for cell in self.study.sweep if cell.label == label]
            if not swept_cells:
                problem = f"no measured cell to choose r and K of {label} by"
                raise CalibrationError(problem, remedy="measure the sweep first, or name them")
            worth = study_clusters.contenders(swept_cells, settings.least_identical, settings.most_share)
            tried = study_clusters.try_contenders(worth, self._try)
            self.study = self.study.model_copy(update={"tried": (*self.study.tried, *tried)})
        return study_clusters.choose(tried)

    def _try(self, cell: Cell) -> list[TriedCell]:
        """Try a cell with every search, the widest first, until one is not good; dense decoding runs once a search."""
        settings, trials = self.settings, list[TriedCell]()
        (cluster_set,) = self._sets(cell.label, cell.clusters, (cell.top,))
        sentences = Sentences.of(self.translator, self._heldout(cell.label)[1]).first(settings.tried_sentences)
        for beam, batch in reversed(settings.searches):
            self.say(f"{cell.label}: trying {cell.clusters:,} clusters, K {cell.top}, beam {beam}, batch {batch}")
            runner = Runner(self.translator, sentences, beam, batch, self._maker(clustered, cluster_set))
            if (cell.label, beam, batch) not in self._dense:
                dense = runner.run("dense")
                self._dense[cell.label, beam, batch] = dense, runner.bleu(dense)
            (before, bleu_dense), after = self._dense[cell.label, beam, batch], runner.run("part")
            same, bleu = study_decoding.similarity(before, after), runner.bleu(after)
            near = bleu is None or bleu_dense is None or abs(bleu - bleu_dense) <= settings.most_bleu_change
            trials.append(
                TriedCell(
                    label=cell.label,
                    clusters=cell.clusters,
                    top=cell.top,
                    columns=study_clusters.columns_of(cell),
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
        """Return what makes the vocabulary with `restrict`, `clustered` or `listed`; the cost of products is measured once."""

        def make(audit: bool, account: SubsetAccount) -> RestrictedVocabulary:
            vocabulary = replace(restrict(columns), audit=audit, account=account)
            if self._cost is None:
                self._cost = with_measured_cost(vocabulary, self._model).cost
            return replace(vocabulary, cost=self._cost)

        return make


def _mix(directions: Sequence[DirectionContexts], count: int) -> Contexts:
    """Join the first contexts of every direction to `count` in all, as equally as their numbers allow."""
    parts, left = [], count
    for at, contexts in enumerate(sorted(directions, key=lambda contexts: len(contexts.training))):
        parts.append(study_clusters.first_contexts(contexts.training, max(1, left // (len(directions) - at))))
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
    progress: Say = lambda _: None,
    reference: harness.Run | harness.Case | None = None,
) -> Study:
    """Measure `parts` for these directions of the model in `folder`, in the order of `PARTS`.

    Args:
        folder: the trained model.
        directions: its texts.
        settings: how much is measured; by default the paper's grid.
        parts: the parts to measure.
        out: the study's file, rewritten after each part; entries of other parts and directions stay.
        kept: a folder for contexts, which every part needs and which take minutes to decode.
        threads: torch's threads.
        progress: receives a line before each step.
        reference: work that is timed beside each round; by default `harness.matrix_reference`.

    Raises:
        CalibrationError: the file is of another model, or two directions have the same label. Errors of reading, clustering
            and decoding pass through.
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
        by_label = {direction.label: direction for direction in directions}
        bench = StudyBench(study, translator, by_label, settings, contexts, progress, reference or harness.matrix_reference())
        for part in (name for name in PARTS if name in parts):
            clock = PartClock(threads)
            others = clock.others_cpus
            if part in TIMED_PARTS and others is not None and processor_use.is_busy(others, describe()):
                progress(f"{part}: others use {others:.1f} CPUs here; what is timed now is disturbed")
            part_labels = bench.labels(part)
            if left := [label for label in labels if label not in part_labels]:
                progress(f"{part}: left out for {', '.join(left)}, since no translations of the training text were given")
            entries = tuple(bench.entries(part))
            run = clock.run(
                PartRun,
                _LIBRARIES,
                part=part,
                labels=tuple(part_labels),
                method=None if part == "candidates" else METHOD,
                settings=settings,
                notes=tuple(bench.notes(part, entries)),
            )
            bench.add(entries, run)
            if out is not None:
                write_study(out, bench.study)
    return bench.study


def _begun(model: study_file.StudiedModel, directions: Sequence[Direction], out: Path | None) -> Study:
    """Return the study in the file `out`, or a new one, with the texts of these directions."""
    texts = study_texts.studied_texts(directions)
    study_texts.check_held_out(texts)
    if out is None or not out.exists():
        return Study(tool=TOOL, model=model, texts=texts)
    study = read_study(out, Study)
    study_texts.check_same(study, model.sha256, texts, out)
    now = {(text.label, text.role) for text in texts}
    stay = [text for text in study.texts if (text.label, text.role) not in now]
    return study.model_copy(update={"texts": (*stay, *texts)})


def _studied(folder: Path, translator: Translator) -> study_file.StudiedModel:
    model: Any = translator.model
    vocab, width = model.weight.shape
    return study_file.StudiedModel(
        name=Path(os.path.realpath(folder)).name,
        kind=model.architecture.kind,
        sha256=study_texts.sha256_of(folder / WEIGHTS_FILE),
        vocab=vocab,
        width=width,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        parameter_bytes=model_bytes(model),
    )
