"""Measure a study of a vocabulary part by part; each part is added to its file (FVP-08 to 12, FVP-16, SHARP-02).

A study that was stopped continues with the parts that its file lacks.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

from simnmt.base import VERSION
from simnmt.calibrate import processor_use
from simnmt.calibrate.box import describe
from simnmt.calibrate.box.describe import describe_machine
from simnmt.calibrate.settings import CalibrationError
from simnmt.calibrate.study import RoundGuard, read_study, write_study
from simnmt.nmt.checkpoint import WEIGHTS_FILE
from simnmt.nmt.devices import installed_versions, torch_threads
from simnmt.nmt.recurrent_model import RecurrentModel
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.active_columns import clustered, listed, with_measured_cost
from simnmt.nmt.vocabulary.builders import Align, build_candidates
from simnmt.nmt.vocabulary.bundle_file import model_bytes
from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet
from simnmt.nmt.vocabulary.contexts import Contexts, join_contexts
from simnmt.nmt.vocabulary.kmeans import check_method
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, SubsetAccount
from simnmt.papers.fvp.study import (
    PARTS,
    TIMED_PARTS,
    Cell,
    ClusterSizes,
    Decoded,
    Memory,
    Part,
    PartRun,
    Speed,
    StudiedModel,
    Study,
    TriedCell,
)
from simnmt.papers.fvp.study_choice import Trials, choice, contenders, try_contenders
from simnmt.papers.fvp.study_decoding import VocabularyPart, decode_with_searches, speeds
from simnmt.papers.fvp.study_runners import MakeVocabulary, Sentences
from simnmt.papers.fvp.study_settings import (
    Direction,
    StudySettings,
    check_held_out,
    check_texts,
    held_out,
    sha256_of,
    studied_texts,
    training_lines,
    training_pairs,
)
from simnmt.papers.fvp.study_sweep import (
    Clusterer,
    DirectionContexts,
    KeptContexts,
    active_mass,
    beginning,
    cells,
    cluster_sets,
    first_contexts,
    memory,
    sizes,
)
from simnmt.profile.projection_cost import ProjectionCost

Say = Callable[[str], None]
"""Reports progress."""


class StudyBench:
    """Measure the parts of a study for one model and the texts of its directions, with one method a part."""

    def __init__(
        self,
        translator: Translator,
        directions: Sequence[Direction],
        settings: StudySettings,
        kept: KeptContexts,
        say: Say,
        guard: RoundGuard,
    ) -> None:
        self._translator, self._model, self._settings = translator, translator.model, settings
        self._directions, self._kept, self._say = {direction.label: direction for direction in directions}, kept, say
        self._guard = guard
        self._clusterer = Clusterer(settings.seed, settings.clustered_contexts, settings.method, kept.folder)
        self._contexts: dict[str, DirectionContexts] = {}
        self._cost: ProjectionCost | None = None
        self.tried: dict[str, tuple[TriedCell, ...]] = {}
        """By direction, the trials that chose r and K during this run."""

    def labels(self, part: Part) -> list[str]:
        """Return the directions for which a part can be measured. Raises `CalibrationError` if there is none."""
        directions = self._directions.items()
        labels = [label for label, direction in directions if part != "candidates" or direction.train_targets is not None]
        if not labels:
            _refuse("no translations of any training text, which word alignments need", "give the targets of a direction too")
        if part == "by_language" and len(labels) < 2:
            _refuse("one direction has no other to be mixed with", "give the texts of two directions of one model")
        return labels

    def measured(self, part: Part, study: Study) -> Iterator[Any]:
        """Measure and yield the entries of a part; `study`: the results so far, from whose sweep r and K are chosen."""
        entries_of: Mapping[Part, Callable[[Study], Iterator[Any]]] = {
            "sweep": self._sweep,
            "volume": self._volume,
            "by_language": self._by_language,
            "per_cluster": self._per_cluster,
            "memory": self._memory,
            "chosen": self._chosen,
            "speeds": self._speeds,
            "candidates": self._candidates,
        }
        return entries_of[part](study)

    def notes(self, part: Part, study: Study) -> list[str]:
        """Describe what was left out or sampled, and how r and K were chosen, in one sentence each."""
        settings, notes = self._settings, list[str]()
        if left := sorted(set(self._directions) - set(self.labels(part))):
            notes.append(f"{', '.join(left)}: left out, since no translations of the training text were given.")
        lines = {(text.label, text.role): text.lines for text in study.texts}
        for label, of in self._contexts.items():
            read, seen = of.training.sentences, settings.clustered_contexts
            if read < (there := lines.get((label, "train"), read)):
                notes.append(f"{label}: the first {read:,} sentences that are not empty, of {there:,} lines of training text.")
            if len(of.training) > seen and part != "candidates":
                notes.append(
                    f"{label}: k-means saw {seen:,} of {len(of.training):,} contexts, drawn at random; the others joined their "
                    "nearest centroid, and active sets are made of all."
                )
        if part == "chosen":
            notes += self._how_chosen(study)
        return notes

    @staticmethod
    def guard_note(entries: Sequence[Any]) -> str:
        """Summarise what the guard rejected among the timed entries of a part."""
        kept = list({id(entry.rounds): entry.rounds for entry in entries}.values())
        rejected, measured = sum(rounds.rejected for rounds in kept), sum(rounds.measured for rounds in kept)
        others = max((rounds.worst_others_cpus or 0.0 for rounds in kept), default=0.0)
        spread = max((rounds.worst_reference_spread for rounds in kept), default=0.0)
        return (
            f"{rejected} of {measured} timed stretches of rounds were disturbed: others used up to "
            f"{others:.1f} CPUs, and reference work beside a stretch varied by up to {100 * spread:.0f} %."
        )

    def _how_chosen(self, study: Study) -> Iterator[str]:
        settings = self._settings
        for label in self._directions:
            if label in settings.chosen:
                yield f"{label}: r and K were named."
                continue
            tried = self.tried.get(label) or tuple(trial for trial in study.tried if trial.label == label)
            enough = any(all(trial.good for trial in tried if trial.columns == candidate.columns) for candidate in tried)
            rule = (
                f"the cell that multiplies least of those that keep {settings.least_identical:.0%} of the sentences, and BLEU "
                f"within {settings.most_bleu_change:g}, with every search, with at most {settings.most_share:.0%} of V active "
                "on average at batch 1"
            )
            else_ = "" if enough else "; none did, so the one that keeps most with the search that keeps fewest"
            yield f"{label}: r and K were chosen on {tried[0].sentences:,} other held-out sentences, {rule}{else_}."
        yield (
            "Scores are log-probabilities among active columns alone: a beam may rank hypotheses otherwise even where no token "
            "is missed."
        )

    def _sweep(self, study: Study) -> Iterator[Cell]:
        settings = self._settings
        for label in self._directions:
            of = self._of(label)
            for clusters, tops in settings.grid.items():
                self._say(f"{label}: {clusters:,} clusters")
                yield from cells(self._model, of, of.training, clusters, tops, self._clusterer)

    def _volume(self, study: Study) -> Iterator[Cell]:
        settings = self._settings
        for label in self._directions:
            of = self._of(label)
            for halvings in reversed(range(settings.volumes)):
                training = beginning(of.training, max(1, of.training.sentences >> halvings))
                for clusters in settings.volume_clusters:
                    self._say(f"{label}: {clusters:,} clusters of {training.sentences:,} sentences")
                    yield from cells(self._model, of, training, clusters, settings.tops, self._clusterer)

    def _by_language(self, study: Study) -> Iterator[Cell]:
        settings = self._settings
        contexts_of = {label: self._of(label) for label in self._directions}
        mixed = join_contexts([contexts.training for contexts in contexts_of.values()])
        directions = list(contexts_of.values())
        alike_large = {label: _mix(directions, len(contexts.training)) for label, contexts in contexts_of.items()}
        for clusters in settings.language_clusters:
            for label, contexts in contexts_of.items():
                self._say(f"{label}: {clusters:,} clusters, by direction and by target")
                yield from cells(self._model, contexts, contexts.training, clusters, settings.tops, self._clusterer, "both")
                yield from cells(self._model, contexts, mixed, clusters, settings.tops, self._clusterer, "target")
                same = alike_large[label]
                yield from cells(self._model, contexts, same, clusters, settings.tops, self._clusterer, "mixed, same size")

    def _per_cluster(self, study: Study) -> Iterator[ClusterSizes]:
        for label in self._directions:
            yield from map(sizes, self._sets(label, self._settings.shown_clusters, self._settings.tops))

    def _memory(self, study: Study) -> Iterator[Memory]:
        settings = self._settings
        for label in self._directions:
            chosen, top = self._choice(label, study)
            for clusters in sorted({chosen, settings.shown_clusters}):
                tops = settings.tops if clusters == settings.shown_clusters else (top,)
                for cluster_set in self._sets(label, clusters, tops):
                    yield memory(self._model, cluster_set)

    def _chosen(self, study: Study) -> Iterator[Decoded]:
        for label, direction in self._directions.items():
            clusters, top = self._choice(label, study)
            (cluster_set,) = self._sets(label, clusters, (top,))
            cut = VocabularyPart("clustered", clusters=clusters, top=top)
            mass = active_mass(self._model, self._of(label), cluster_set)
            yield from self._decoded(direction, self._make_clustered(cluster_set), cut, mass)

    def _speeds(self, study: Study) -> Iterator[Speed]:
        settings = self._settings
        for label, direction in self._directions.items():
            sets = [cluster_set for r in settings.speed_clusters for cluster_set in self._sets(label, r, settings.tops)]
            sentences = self._test(direction).first(settings.speed_sentences)
            for beam, batch in settings.searches:
                self._say(f"{label}: speed of {len(sets)} cluster sets, beam {beam}, batch {batch}")
                makers = [self._make_clustered(cluster_set) for cluster_set in sets]
                measured_speeds = speeds(
                    self._translator, sentences, makers, beam=beam, batch=batch, rounds=settings.rounds, guard=self._guard
                )
                for cluster_set, speed in zip(sets, measured_speeds, strict=True):
                    yield Speed(
                        label=label,
                        clusters=len(cluster_set.sets),
                        top=cluster_set.top,
                        beam=beam,
                        batch=batch,
                        sentences=len(sentences.sources),
                        ratios=speed.ratios,
                        gain=median(speed.ratios) - 1.0,
                        identical=speed.alike.identical,
                        token_agreement=speed.alike.token_agreement,
                        rounds=speed.kept,
                    )

    def _candidates(self, study: Study) -> Iterator[Decoded]:
        settings = self._settings
        for label in self.labels("candidates"):
            direction = self._directions[label]
            pairs = list(training_pairs(direction, settings.train_sentences))
            sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
            for align in self._aligners():
                for always in settings.always:
                    self._say(f"{label}: {settings.candidates} candidates a word by {align}, {always:,} always")
                    lists = build_candidates(
                        self._translator, sources, targets, count=settings.candidates, align=align, always=always
                    )
                    cut = VocabularyPart(align, candidates=settings.candidates, always=always)
                    yield from self._decoded(direction, self._make_listed(lists), cut)

    def _decoded(
        self, direction: Direction, make_vocabulary: MakeVocabulary, cut: VocabularyPart, mass: float | None = None
    ) -> Iterator[Decoded]:
        label, settings = direction.label, self._settings
        self._say(f"{label}: decoding with {cut.way} columns, {len(settings.searches)} searches in turn")
        yield from decode_with_searches(
            self._translator,
            self._test(direction),
            make_vocabulary,
            cut,
            label=label,
            searches=settings.searches,
            rounds=settings.rounds,
            emitted=self._of(label).emitted,
            active_mass=mass,
            guard=self._guard,
        )

    def _test(self, direction: Direction) -> Sentences:
        text = held_out(direction, self._settings.heldout_sentences)
        return Sentences.of(self._translator, text.test, text.test_references)

    def _of(self, label: str) -> DirectionContexts:
        """Return the contexts of a direction's texts; decode them on first use."""
        if label not in self._contexts:
            direction, settings, top = self._directions[label], self._settings, self._settings.most_top
            training = self._kept.of(f"{label}, training", training_lines(direction, settings.train_sentences), top)
            development = held_out(direction, settings.heldout_sentences).development
            self._contexts[label] = DirectionContexts(label, training, self._kept.of(f"{label}, held out", development, top))
        return self._contexts[label]

    def _sets(self, label: str, clusters: int, tops: Sequence[int]) -> Iterator[ClusterSet]:
        self._say(f"{label}: {clusters:,} clusters")
        return cluster_sets(self._model, label, self._of(label).training, clusters, tops, self._clusterer)

    def _choice(self, label: str, study: Study) -> tuple[int, int]:
        """Return r and K of a direction: from the settings, from earlier trials, or from trials run now."""
        settings = self._settings
        if label in settings.chosen:
            return settings.chosen[label]
        tried = self.tried.get(label) or tuple(trial for trial in study.tried if trial.label == label)
        if not tried:
            swept_cells = [cell for cell in study.sweep if cell.label == label]
            if not swept_cells:
                _refuse(f"nothing is known to choose r and K of {label} by", "measure the sweep first, or name them")
            worth = contenders(swept_cells, settings.least_identical, settings.most_share)
            tried = self.tried[label] = tuple(try_contenders(worth, self._trials(label)))
        return choice(tried)

    def _trials(self, label: str) -> Trials:
        settings = self._settings
        text = held_out(self._directions[label], settings.heldout_sentences)
        sentences = Sentences.of(self._translator, text.development, text.development_references)

        def make_vocabulary_of(cell: Cell) -> MakeVocabulary:
            (cluster_set,) = self._sets(label, cell.clusters, (cell.top,))
            return self._make_clustered(cluster_set)

        return Trials(self._translator, sentences.first(settings.tried_sentences), settings, make_vocabulary_of, self._say)

    def _make_clustered(self, cluster_set: ClusterSet) -> MakeVocabulary:
        def make(audit: bool, account: SubsetAccount) -> RestrictedVocabulary:
            return self._costed(clustered(cluster_set, audit=audit, account=account))

        return make

    def _make_listed(self, lists: CandidateLists) -> MakeVocabulary:
        def make(audit: bool, account: SubsetAccount) -> RestrictedVocabulary:
            return self._costed(listed(lists, audit=audit, account=account))

        return make

    def _costed(self, vocabulary: RestrictedVocabulary) -> RestrictedVocabulary:
        """Return the vocabulary with the measured cost of products, which is measured once and shared."""
        if self._cost is None:
            self._cost = with_measured_cost(vocabulary, self._model).cost
        return replace(vocabulary, cost=self._cost)

    def _aligners(self) -> tuple[Align, ...]:
        blind = isinstance(self._model, RecurrentModel) and self._model.score is None
        return ("ibm1",) if blind else ("ibm1", "attention")


def _mix(of: Sequence[DirectionContexts], count: int) -> Contexts:
    """Join the first contexts of every direction to `count` in all, as equally as their numbers allow."""
    parts, left = [], count
    for at, contexts in enumerate(sorted(of, key=lambda contexts: len(contexts.training))):
        parts.append(first_contexts(contexts.training, max(1, left // (len(of) - at))))
        left -= len(parts[-1])
    return join_contexts(parts)


def _refuse(what: str, remedy: str) -> NoReturn:
    raise CalibrationError(what, remedy=remedy)


TOOL = f"simnmt {VERSION}"
_LIBRARIES = ("torch", "numpy", "scikit-learn", "faiss-cpu", "sacrebleu", "sentencepiece")


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
        bench = StudyBench(translator, directions, settings, contexts, progress, guard or RoundGuard(say=progress))
        for part in (name for name in PARTS if name in parts):
            others, begin_s = processor_use.others_cpus(), time.perf_counter()
            if part in TIMED_PARTS and others is not None and processor_use.is_busy(others, describe(libraries=False)):
                progress(f"{part}: others use {others:.1f} CPUs here; what is timed now is disturbed")
            labels = bench.labels(part)
            if left := [direction.label for direction in directions if direction.label not in labels]:
                progress(f"{part}: not of {', '.join(left)}, since no translations of the training text were given")
            entries = tuple(bench.measured(part, study))
            run = PartRun(
                part=part,
                labels=tuple(labels),
                date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                seconds=time.perf_counter() - begin_s,
                threads=threads,
                machine=describe_machine(),
                others_cpus=others,
                versions={"python": platform.python_version(), **installed_versions(_LIBRARIES)},
                method=None if part == "candidates" else check_method(settings.method),
                seed=settings.seed,
                quick=settings.quick,
                settings=settings.told(),
                notes=(*bench.notes(part, study), *([bench.guard_note(entries)] if part in TIMED_PARTS else [])),
            )
            study = merge_part(study, part, entries, run, bench.tried)
            if out is not None:
                write_study(out, study)
    return study


def merge_part(
    study: Study, part: Part, entries: Sequence[Any], run: PartRun, tried: Mapping[str, tuple[TriedCell, ...]] | None = None
) -> Study:
    """Return the study with `entries` in place of its earlier entries of this part for the run's directions.

    `tried`: by direction, the trials that chose r and K; a new sweep discards earlier trials.
    """
    tried = tried or {}
    again = set(tried) | (set(run.labels) if part == "sweep" else set())
    choices = [trial for trial in study.tried if trial.label not in again]
    choices += [trial for trials in tried.values() for trial in trials]
    stay = [entry for entry in getattr(study, part) if entry.label not in run.labels]
    return study.model_copy(update={part: (*stay, *entries), "runs": (*study.runs, run), "tool": TOOL, "tried": tuple(choices)})


def _begun(model: StudiedModel, directions: Sequence[Direction], out: Path | None) -> Study:
    """Return the study in the file `out`, or a new one, with the texts of these directions."""
    texts = tuple(studied_texts(directions))
    check_held_out(texts)
    if out is None or not out.exists():
        return Study(tool=TOOL, model=model, texts=texts)
    study = read_study(out, Study)
    if study.model.sha256 != model.sha256:
        raise CalibrationError(f"a study of another model, {study.model.name}", path=out, remedy="choose another file")
    check_texts(study, texts, out)
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
