"""The whole reproduction of vocabulary projection: the paper's figures, studies of trained models, and the verdicts on both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean
from simnmt.calibrate.projection_bench import ProjectionBench, read_bench
from simnmt.papers.fvp import published
from simnmt.papers.fvp.bench_claims import bench_claims, name_of
from simnmt.papers.fvp.charts import all_charts
from simnmt.papers.fvp.paper_claims import paper_claims
from simnmt.papers.fvp.presets import memory_claims
from simnmt.papers.fvp.study import PARTS, QUICK, Part, PartRun, Study, StudySettings
from simnmt.papers.fvp.study_claims import NEEDS, study_claims
from simnmt.papers.fvp.tables import all_tables, models, sweep_ends
from simnmt.papers.kit.claim import ClaimRecord, describe_verdicts, format_span
from simnmt.papers.kit.report import PaperReport
from simnmt.papers.kit.study import read_distinct, read_studies, read_study, shipped_measurements

if TYPE_CHECKING:
    from simnmt.papers.fvp.study_texts import Direction

Say = Callable[[str], None]
"""Receives a line of progress before each step."""
HEADING = "Fast vocabulary projection via clustering, reproduced"
SUMMARY = (
    "The paper multiplies a decoder's states with few columns of the output layer: those of the clusters that the states fall "
    "into. It prints up to 25 % more tokens per second with the same BLEU."
)
MAIN_CLAIMS = ("FVP-08 (a)", "FVP-08 (b)", "FVP-20 (d)", "FVP-20 (e)", "FVP-20 (f)", "FVP-18 (a)")


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements, and the evidence of our trained models on them."""

    studies: Sequence[Study] = ()
    quick: bool = False
    claims: Sequence[ClaimRecord] = field(default_factory=list)
    benches: Sequence[ProjectionBench] = ()
    """Measurements of the output layer by itself."""

    def report(self) -> PaperReport:
        """Return the reproduction for readers: JSON, text and page."""
        tables, figures = all_tables(self.studies, self.benches), summary(self)
        (sweep,) = (table for table in tables if table.id == "sweep")
        marks = {
            "figure_2": published.FIGURE_2,
            "figure_2_clusters": published.FIGURE_2_CLUSTERS,
            "figure_3_best": published.FIGURE_3_BEST,
            "figure_4": {str(top): share for top, share in published.FIGURE_4.items()},
        }
        return PaperReport(
            heading=HEADING,
            paper=published.REFERENCE,
            claims=self.claims,
            tables=tables,
            charts=all_charts(tables),
            setting=published.SETTING,
            setting_title="The paper's setting (FVP-13)",
            slips=published.SLIPS,
            notes=notes(self),
            summary=f"{SUMMARY}\n{figures}",
            main_claims=MAIN_CLAIMS,
            main_charts=("figure-3-drawn", "figure-2-drawn"),
            matrix_note="By model; claims that the paper's own figures decide are below.",
            remarks=[sweep_ends(sweep, self.studies), figures] if sweep.rows else [figures],
            more={"summary": figures, "marks": marks, "models": models(self.studies)},
        )


def judge(studies: Sequence[Study] = (), benches: Sequence[ProjectionBench] = (), *, quick: bool = False) -> Reproduction:
    """Judge the claims by every study and by the benches; without studies, by the printed figures alone."""
    measured = [record for study in studies or (None,) for record in study_claims(study)]
    claims = [*measured, *bench_claims(benches), *memory_claims(), *paper_claims()]
    return Reproduction(studies, quick, claims, benches)


def reproduce(
    *,
    studies: Sequence[Path] | None = None,
    benches: Sequence[Path] | None = None,
    model: Path | None = None,
    directions: Sequence[Direction] = (),
    parts: Sequence[str] = (),
    quick: bool = False,
    say: Say = lambda _: None,
) -> Reproduction:
    """Reproduce the paper by `studies` and `benches`, by default the shipped ones.

    With a `model` and its texts, that model is studied instead, which takes an hour or, if `quick`, minutes; the one named
    file of `studies` then keeps the study and continues it.

    Args:
        studies: files of studies.
        benches: files of `simnmt vocab bench`.
        model: folder of a trained model.
        directions: its texts.
        parts: parts to measure, even if the file has them; by default all that are missing.
        quick: study fewer sentences, clusters and rounds.
        say: receives progress.

    Raises:
        InputError: a model without texts, or texts without a model.
    """
    bench_files = shipped_measurements("vocabulary", "bench") if benches is None else benches
    layers = read_distinct(bench_files, read_bench, name_of, "measurements")
    if model is None:
        given = {"--text": directions, "--part": parts, "--quick": quick}
        if options := [option for option, value in given.items() if value]:
            raise InputError(f"{options[0]} without a model to study", remedy="give --model FOLDER as well")
        return judge(read_studies(shipped_measurements("vocabulary", "study") if studies is None else studies, Study), layers)
    if not directions:
        remedy = "give both for each direction: --text fr-en=FILE --heldout fr-en=FILE"
        raise InputError("--model without --text and --heldout", remedy=remedy)
    if studies and len(studies) > 1:
        raise InputError("more than one --study beside --model", remedy="give the one file that its study is kept in")
    kept = studies[0] if studies else None
    return judge([study_model(model, directions, kept=kept, parts=parts, quick=quick, say=say)], layers, quick=quick)


def study_model(
    model: Path, directions: Sequence[Direction], *, kept: Path | None = None, parts: Sequence[str] = (), quick: bool, say: Say
) -> Study:
    """Measure `parts`, or all that the file `kept` lacks or measured less of and that the texts suffice for.

    Contexts are kept beside the file, so that a stopped run continues. Raises `InputError` for unknown parts, and the errors
    of studying, such as `CalibrationError` for a file of another model or other texts.
    """
    for name in parts:
        if name not in PARTS:
            raise InputError(f"--part {name} is not a part of a study", remedy=did_you_mean(name, PARTS))
    settings = QUICK if quick else StudySettings()
    wanted = [part for part in PARTS if part in parts]
    if not wanted:
        before = read_study(kept, Study) if kept is not None and kept.exists() else None
        for part in PARTS:
            labels = _measurable(part, directions)
            if not labels:
                say(f"{part}: left out, which needs {'--targets' if part == 'candidates' else 'two directions'}")
            elif before is None or not _has(before, part, labels, settings):
                wanted.append(part)
        if before is not None and not wanted:
            from simnmt.nmt.checkpoint import WEIGHTS_FILE
            from simnmt.papers.fvp.study_texts import check_same, sha256_of, studied_texts

            check_same(before, sha256_of(model / WEIGHTS_FILE), studied_texts(directions), kept)
            return before
    # Here, since reading alone needs no torch.
    from simnmt.papers.fvp.study_run import run_study

    contexts = None if kept is None else kept.with_name(f"{kept.stem}.contexts")
    return run_study(model, directions, settings=settings, parts=wanted, out=kept, kept=contexts, progress=say)


def _measurable(part: Part, directions: Sequence[Direction]) -> set[str]:
    """Return the directions of which a part can be measured."""
    if part == "by_language" and len(directions) < 2:
        return set()
    return {direction.label for direction in directions if part != "candidates" or direction.train_targets is not None}


def _has(study: Study, part: Part, labels: Iterable[str], settings: StudySettings) -> bool:
    """Return True if the last measurement of the part covers as much in each direction."""
    runs = [run for run in reversed(study.runs) if run.part == part]
    last = (next((run for run in runs if label in run.labels), None) for label in labels)
    return all(run is not None and settings.measured_by(run) for run in last)


def summary(reproduction: Reproduction) -> str:
    """Describe the kept quality and the gains of a part of the vocabulary on each model, and how many claims hold."""
    sentences = []
    for study in reproduction.studies:
        if not study.chosen:
            continue
        same = format_span([100 * decoding.identical for decoding in study.chosen], ".1f")
        share = format_span([100 * decoding.share.mean for decoding in study.chosen], ".1f")
        gain = format_span([100 * (decoding.measured - 1.0) for decoding in study.chosen], "+.1f")
        changes = [change for decoding in study.chosen if (change := decoding.bleu_change) is not None]
        methods = " and ".join(dict.fromkeys(f"{decoding.label} with {decoding.method_label}" for decoding in study.chosen))
        bleu = f", moving BLEU by {format_span(changes, '+.2f')}," if changes else ""
        sentences.append(
            f"{study.name} ({methods}): {share} % of {study.model.vocab:,} columns active a step leave {same} % of the "
            f"sentences as they were{bleu} and change the speed of decoding by {gain} %."
        )
    if not reproduction.studies:
        sentences.append(f"Published figures alone; what is ours {NEEDS}.")
    return " ".join([*sentences, f"{describe_verdicts(reproduction.claims)}."])


def notes(reproduction: Reproduction) -> list[str]:
    """Return the limits of the figures, one note each."""
    sentences = [
        "Published figures are of a V100 in float16 with vocabularies of 250,000 and 128,000; ours of one box’s processor in "
        "float32 with small models and small vocabularies. Shares and ratios can be compared, times cannot.",
        "Projecting onto a part of the vocabulary is not exact: every row states how many sentences stay the same, or that it "
        "is not printed. With all columns active it is dense decoding.",
        "The line through Table 2 and its break-even are of six points a model; ZCode M3’s lie between 12 and 16 %.",
        "The paper’s text holds single points of figures 2 to 4, which are marked; its curves are not in it.",
    ]
    if not reproduction.studies:
        return [*sentences, f"Published figures alone: what is ours {NEEDS}."]
    sentences += [
        "The share of V, over held-out steps at batch 1, is what dense decoding of held-out text would have had active; "
        "`identical` of a sweep counts sentences of greedy decoding without a miss, since up to its first miss a sentence is "
        "decoded alike both ways. What real decoding keeps is of its own beam and batch, in the row of that decoding alone.",
        "V is much larger than the set of tokens that is ever written, so shares of V look small: the tables also give shares "
        "of the tokens that dense decoding of the training text and the development half writes.",
        "With a part of the vocabulary scores are of this part alone, as if it were all, and a step of several rows has the "
        "columns of all of them: a translation may depend on which sentences are decoded together.",
        "Real decoding takes turns, round by round: with all of the vocabulary (plain, and with the fused output layer), and "
        "with a part of it. Amdahl’s prediction is from the output layer’s share of the plain decoder’s time.",
    ]
    if reproduction.quick or any(run.settings.quick for study in reproduction.studies for run in study.runs):
        sentences.append("A quick look: few sentences, clusters and rounds; its verdicts are not reliable.")
    for study in reproduction.studies:
        for run, labels in _last(study):
            sentences += [f"{study.name}, {run.part} of {', '.join(labels)}: {note}" for note in run.notes]
    return sentences


def _last(study: Study) -> list[tuple[PartRun, list[str]]]:
    """Return the runs whose figures the study holds, with the directions that no later run of the part measured again."""
    latest, known = [], set[tuple[str, str]]()
    for run in reversed(study.runs):
        labels = [label for label in run.labels if (run.part, label) not in known]
        known |= {(run.part, label) for label in labels}
        if labels:
            latest.append((run, labels))
    return latest[::-1]
