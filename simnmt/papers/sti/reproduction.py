"""The reproduction of elastic pipelines: studies of trained classifiers, a measured pipeline, verdicts, tables and text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simnmt.base.errors import InputError
from simnmt.papers.kit.claim import ClaimRecord, describe_verdicts
from simnmt.papers.kit.report import PaperReport
from simnmt.papers.kit.study import read_studies, shipped_measurements
from simnmt.papers.sti import published
from simnmt.papers.sti.charts import all_charts, pictures, timelines
from simnmt.papers.sti.comparison import POINTS, comparisons
from simnmt.papers.sti.paper_claims import PAPER_CLAIMS
from simnmt.papers.sti.pipeline import PipelineMeasurement, pipeline_claims, read_pipeline, shipped_pipeline
from simnmt.papers.sti.study import StudiedDevice, Study, StudySource
from simnmt.papers.sti.study_claims import BASELINES, NEEDS, study_claims
from simnmt.papers.sti.tables import all_tables

Say = Callable[[str], None]
"""Receives a message on the next step."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements beside studies of trained classifiers and a measured pipeline."""

    studies: Sequence[Study] = ()
    pipeline: PipelineMeasurement | None = None

    @property
    def claims(self) -> list[ClaimRecord]:
        """The verdicts by each study, by the pipeline and by the printed figures."""
        records = [record for study in self.studies or (None,) for record in study_claims(study)]
        return [*records, *pipeline_claims(self.pipeline), *PAPER_CLAIMS]

    def report(self) -> PaperReport:
        """Return the reproduction as JSON, text and page."""
        tables = all_tables(self.studies, self.pipeline)
        rows = {table.id: table.rows for table in tables}
        claims, groups = self.claims, timelines(self.studies)
        summary = "\n".join([*_gain_lines(self.studies), f"{describe_verdicts(claims)}."])
        return PaperReport(
            heading="Elastic pipelining, reproduced",
            paper=published.REFERENCE,
            claims=claims,
            tables=tables,
            charts=all_charts(rows),
            setting=published.SETTING,
            slips=published.SLIPS,
            notes=notes(self.studies),
            summary=SUMMARY if self.studies else f"{SUMMARY} Published figures alone; a result of ours {NEEDS}.",
            main_claims=MAIN_CLAIMS,
            main_charts=("figure-7-drawn",),
            matrix_note="By model and device; the claims that the paper’s own figures decide are below.",
            pictures=pictures(groups),
            remarks=[summary],
            more={"summary": summary, "timelines": groups, "models": rows["studied"]},
        )


SUMMARY = (
    "A model that does not fit in memory is read from storage in shards while it is computed; the paper plans, for a deadline "
    "and a small preload buffer, which shards to read at how many bits. It claims accuracies far above those of plain "
    "pipelines and of loading first, about as high as with the whole model in memory, with 1 to 2 orders of magnitude less "
    "memory. Here small trained classifiers run every plan, on costs of the paper’s boards."
)
MAIN_CLAIMS = ("STI-22 (a)", "STI-22 (d)", "STI-22 (e)", "STI-22 (f)", "STI-23 (c)", "STI-24 (e)")


def reproduce(
    *,
    studies: Sequence[Path] | None = None,
    pipeline: Path | None = None,
    source: StudySource | None = None,
    say: Say = lambda _: None,
) -> Reproduction:
    """Return the paper's statements beside studies and a pipeline's measurement, by default the shipped ones.

    With a store in `source` that model is studied instead, minutes on one core, and `studies` may name the one file that its
    study is kept in and continued from. Raises `InputError`.
    """
    measured = shipped_pipeline() if pipeline is None else read_pipeline(pipeline)
    if source is None:
        return Reproduction(read_studies(shipped_measurements("sti", "study") if studies is None else studies, Study), measured)
    if studies and len(studies) > 1:
        raise InputError("more than one --study beside --store", remedy="give the one file that its study is kept in")
    # Here, since reading a study needs no torch.
    from simnmt.papers.sti.study_run import study_classifier

    return Reproduction([study_classifier(source, out=studies[0] if studies else None, say=say)], measured)


def _gain_lines(studies: Sequence[Study]) -> list[str]:
    """Return a line on the gains of planning for each model and device."""
    lines = [line for study in studies for device in study.devices if (line := _gain_line(study, device))]
    return lines if studies else [f"Published figures alone; a result of ours {NEEDS}."]


def _gain_line(study: Study, device: StudiedDevice) -> str:
    in_time, over_all, count, missed = [], [], 0, 0
    for method, compared in comparisons(study, device).items():
        if method in (*BASELINES, "PreloadModel-32"):
            kept, count, (missed, _) = compared.in_time, len(compared.pairs), compared.missed
            points = f"{POINTS * kept.gain.difference:+.1f}" if kept.pairs else "none"
            in_time.append(f"{points} over {method} ({len(kept.pairs)})")
            over_all.append(f"{POINTS * compared.gain.difference:+.1f}")
    if not in_time:
        return ""
    return (
        f"{study.name}, costs of {device.name}: points where both are in time, and under how many of {count} deadlines, "
        f"{', '.join(in_time)}; late answers included {', '.join(over_all)}; {count - missed} of {count} kept."
    )


def notes(studies: Sequence[Study]) -> list[str]:
    """Return the limits of the numbers, one sentence or paragraph each."""
    limits = [
        "The paper’s tables and figures are not in the source text: what its sentences give stands here, and nothing was read "
        "off a picture.",
        "Published figures are of DynaBERT on GLUE, on two boards of 2022.",
    ]
    if not studies:
        return [*limits, f"Published figures alone; a result of ours {NEEDS}."]
    limits += [
        "Accuracy is measured: each plan’s submodel answered every example. It is of small classifiers that were trained here, "
        "which stand for fine-tuned ones (STI-27). Streaming at fewer bits is not exact: `agreement` is the share of the "
        "examples that the whole model in 32 bits answers alike (XP-03).",
        "Deadlines, latencies and stalls are of a device’s costs by our timeline. Costs that are `inferred` are the paper’s "
        "own times of a layer, with shards as large as BERT’s: the classifier that answers is smaller, and stands for one of "
        "that size with as many layers and slices.",
        "Intervals are of 95 %, over examples, of pairs: the same examples under the same deadlines, with both methods. A "
        "difference whose interval contains 0 is `not distinguishable`.",
        "Where nothing meets a deadline, the smallest submodel of the method is run late, and counted as missed.",
        *map(_ranking_note, studies),
    ]
    if any(run.quick for study in studies for run in study.runs):
        limits.append("A quick look: few deadlines, orders and examples; its verdicts are not reliable.")
    return limits + [f"{study.name}, {run.part}: {note}" for study in studies for run in study.runs for note in run.notes]


def _ranking_note(study: Study) -> str:
    """Return a note on the examples by which shards were ranked."""
    if study.ranked_on_judged:
        return (
            f"{study.name}: shards were ranked on the very examples that accuracy is measured on. The gains of planning over "
            "methods without an order, and of importance over random orders, look larger than they are."
        )
    importance = study.importance
    note = f"{study.name}: shards were ranked on examples of {importance.task or 'another file'}"
    if importance.shared is None:
        return f"{note}; how many of their texts also judge is not known."
    if not importance.shared:
        return f"{note}, which judge nothing."
    return f"{note}, which judge nothing, but for {importance.shared:,} of {importance.examples:,}, which also judge."
