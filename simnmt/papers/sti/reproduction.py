"""The whole reproduction of elastic pipelines: studies, a measured pipeline, verdicts, tables and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnmt.base.errors import InputError
from simnmt.base.text_tables import format_table
from simnmt.papers.kit.claim import Records, describe_verdicts, format_claims
from simnmt.papers.sti import comparison, published, study_rows
from simnmt.papers.sti.evidence import NEEDS, Say, StudySource, read_studies, shipped_studies, study_model
from simnmt.papers.sti.paper_claims import derived, paper_claims
from simnmt.papers.sti.pipeline import pipeline_claims, pipeline_rows, read_pipeline, shipped_pipeline, simulated_rows
from simnmt.papers.sti.study_claims import accuracy_claims, fidelity_claims, resource_claims
from simnmt.papers.sti.study_rows import timelines

if TYPE_CHECKING:
    from simnmt.papers.sti.study import Study


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements, and what trained classifiers and a real pipeline of ours say of them."""

    studies: Sequence[Study] = ()
    pipeline: Mapping[str, Any] | None = None
    """What `python -m benchmarks.sti_pipeline --out` wrote."""
    claims: Records = field(default_factory=list)


def all_claims(studies: Sequence[Study] = (), pipeline: Mapping[str, Any] | None = None) -> Reproduction:
    """Verdicts over what was measured, of each study in turn; without one, over what is printed."""
    claims: Records = []
    for study in studies or (None,):
        claims += [*accuracy_claims(study), *resource_claims(study), *fidelity_claims(study)]
    claims += [*pipeline_claims(pipeline), *paper_claims()]
    return Reproduction(studies, pipeline, claims)


def reproduce(
    *,
    studies: Sequence[Path] | None = None,
    pipeline: Path | None = None,
    studied: StudySource | None = None,
    say: Say = lambda _: None,
) -> Reproduction:
    """What the paper's text gives with what `studies` and `pipeline` say of it; of either the shipped ones where none is named.

    With `studied` that model is studied instead, minutes on one core; of `studies` the one that is named is then the file that
    its study is kept in and gone on with. Raises `InputError`.
    """
    measured = read_pipeline(pipeline) if pipeline is not None else shipped_pipeline()
    if studied is None or not studied.asked:
        return all_claims(read_studies(shipped_studies() if studies is None else studies), measured)
    if studies and len(studies) > 1:
        raise InputError("more than one --study beside --store", remedy="give the one file that its study is kept in")
    return all_claims([study_model(studied, studies[0] if studies else None, say)], measured)


def summary(reproduction: Reproduction) -> str:
    """Return a line per model and device on what planning gains, then how many claims hold."""
    lines = []
    for study in reproduction.studies:
        for device in study.devices:
            planned = comparison.of(study, device, "STI")
            if not planned:
                continue
            in_time, gains_all_deadlines = [], []
            for method in ("Load&Exec", "StdPL-32", "StdPL-2", "StdPL-6", "PreloadModel-32"):
                other = comparison.of(study, device, method)
                gain, kept = comparison.gain(study, planned, other), comparison.in_time(planned, other)
                if gain is None:
                    continue
                gain_in_time = comparison.gain(study, planned, other, kept)
                points = "none" if gain_in_time is None else f"{comparison.POINTS * gain_in_time.difference:+.1f}"
                in_time.append(f"{points} over {method} ({len(kept)})")
                gains_all_deadlines.append(f"{comparison.POINTS * gain.difference:+.1f}")
            if in_time:
                count = len(planned)
                lines.append(
                    f"{study.name}, costs of {device.name}: points where both are in time, and under how many of {count} "
                    f"deadlines, {', '.join(in_time)}; late answers included {', '.join(gains_all_deadlines)}; "
                    f"{count - len(comparison.missed(planned))} of {count} kept."
                )
    if not reproduction.studies:
        lines.append(f"Published figures alone; what is ours {NEEDS}.")
    return "\n".join([*lines, f"{describe_verdicts(reproduction.claims)}."])


def document(reproduction: Reproduction) -> dict[str, Any]:
    """Return the document that `--json` prints."""
    return {
        "paper": published.REFERENCE,
        "summary": summary(reproduction),
        "claims": reproduction.claims,
        "tables": tables(reproduction),
        "timelines": timelines(reproduction.studies),
        "models": study_rows.models(reproduction.studies),
        "slips": list(published.SLIPS),
        "notes": notes(reproduction),
    }


def tables(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return the tables, each with `id`, `title` and `rows`; a part that was not measured has no rows."""
    studies = reproduction.studies
    return [
        {
            "id": "setting",
            "title": "The paper's setting (STI-20)",
            "rows": [{"what": what, "said": text} for what, text in published.SETTING],
        },
        {"id": "lost", "title": "Not in source text (STI-26)", "rows": [asdict(lost) for lost in published.LOST]},
        {"id": "gains", "title": "Points gained over each other way", "rows": study_rows.gains(studies)},
        {"id": "submodels", "title": "Submodels by deadline", "rows": study_rows.submodels(studies)},
        {"id": "upgrades", "title": "Shards raised by importance and at random", "rows": study_rows.upgrades(studies)},
        {"id": "sizes", "title": "Sizes of the preload buffer", "rows": study_rows.sizes(studies)},
        {"id": "uniform", "title": "Bits, layers and slices", "rows": study_rows.uniform(studies)},
        {"id": "greedy", "title": "The planner beside the exact one", "rows": study_rows.greedy(studies)},
        {"id": "pipeline", "title": "Real pipelines of BERT's base size", "rows": pipeline_rows(reproduction.pipeline)},
        {"id": "simulated", "title": "Simulated beside measured latency", "rows": simulated_rows(reproduction.pipeline)},
        {
            "id": "said",
            "title": "Single figures of the text",
            "rows": [{"what": what, "said": text} for what, text in published.SAID],
        },
        {"id": "derived", "title": "What follows from the printed figures", "rows": [asdict(figure) for figure in derived()]},
        {"id": "grid", "title": "Every way under every deadline", "rows": study_rows.grid(studies)},
        {"id": "devices", "title": "The costs that plans were made by", "rows": study_rows.devices(studies)},
        {"id": "runs", "title": "How it was measured", "rows": study_rows.runs(studies)},
    ]


def notes(reproduction: Reproduction) -> list[str]:
    """Return the limits of the numbers, one sentence or paragraph each."""
    limits = [
        "The paper’s tables and figures are not in the source text: what its sentences give stands here, and nothing was read "
        "off a picture.",
        "Published figures are of DynaBERT on GLUE, on two boards of 2022.",
    ]
    if not reproduction.studies:
        return [*limits, f"Published figures alone; what is ours {NEEDS}."]
    limits += [
        "Accuracy is measured: each plan’s submodel answered every example. It is of small classifiers that were trained here, "
        "which stand for fine-tuned ones (STI-27). Streaming at fewer bits is not exact: `agreement` is the share of the "
        "examples that the whole model in 32 bits answers alike (XP-03).",
        "Deadlines, latencies and stalls are of a device’s costs by our timeline. Costs that are `inferred` are the paper’s "
        "own times of a layer, with shards as large as BERT’s: the classifier that answers is smaller, and stands for one of "
        "that size with as many layers and slices.",
        "Intervals are of 95 %, over examples, of pairs: the same examples under the same deadlines, both ways. What a verdict "
        "cannot tell from nothing is `not distinguishable`.",
        "Where nothing meets a deadline, the smallest submodel that the way has is run late, and counted as missed.",
    ]
    limits += [_ranked(row) for row in study_rows.models(reproduction.studies)]
    if any(run.quick for study in reproduction.studies for run in study.runs):
        limits.append("A quick look: few deadlines, orders and examples, whose verdicts say little.")
    return [*limits, *_run_notes(reproduction.studies)]


def _run_notes(studies: Sequence[Any]) -> list[str]:
    return [f"{study.name}, {run.part}: {note}" for study in studies for run in study.runs for note in run.notes]


def _ranked(row: dict[str, Any]) -> str:
    """Return a note on the examples by which shards were ranked."""
    if row["importance_on_same"]:
        return (
            f"{row['study']}: shards were ranked on the very examples that accuracy is measured on. What planning gains over "
            "ways without an order, and importance over random orders, looks larger than it is."
        )
    file = row["importance_task"] or "another file"
    note = f"{row['study']}: shards were ranked on examples of {file}"
    if row["importance_shared"] is None:
        return f"{note}; how many of their texts also judge is not known."
    note += ", which judge nothing"
    if row["importance_shared"]:
        note += f", but for {row['importance_shared']:,} of {row['importance_examples']:,}, which are among those that do"
    return f"{note}."


Rows = list[dict[str, Any]]


def as_text(reproduction: Reproduction) -> str:
    """Format gains, submodels, raised shards, real pipelines, derived and lost figures, and a line per claim."""
    rows = {table["id"]: table["rows"] for table in tables(reproduction)}
    sections = [
        summary(reproduction),
        _gains(rows["gains"]),
        _submodels(rows["submodels"]),
        _upgrades(rows["upgrades"]),
        _pipeline(rows["pipeline"]),
        _derived(rows["derived"]),
        _lost(rows["lost"]),
        format_claims(reproduction.claims),
    ]
    return "\n\n".join(part for part in sections if part)


def _gains(rows: Rows) -> str:
    lines = [
        (
            f"{row['study']}, {row['device']}, {row['method']}",
            row["kind"],
            *_in_time(row),
            "" if row["kind"] == "published" else f"{row['gain']:+.2f}",
            "" if row["missed"] is None else f"{row['missed']} and {row['missed_other']} of {row['deadlines']}",
            _shown(row["shards_ratio"], 1, ".2f"),
        )
        for row in rows
    ]
    head = ("STI over", "kind", "points", "95 %", "deadlines", "STI, %", "other, %", "all deadlines", "missed", "shards, times")
    heading = "Points of accuracy gained where both are in time; beside them over all deadlines, late answers included"
    return f"{heading}\n{format_table(head, lines)}"


def _in_time(row: dict[str, Any]) -> tuple[str, ...]:
    """Points, interval, deadlines and both accuracies where neither is late; the printed points of the paper."""
    if row["kind"] == "published":
        return (f"{row['gain']:+.2f}", "", "", "", "")
    low = row["low_in_time"]
    return (
        _shown(row["gain_in_time"], 1, "+.2f"),
        "" if low is None else f"{low:+.2f} to {row['high_in_time']:+.2f}",
        f"{row['deadlines_in_time']} of {row['deadlines']}",
        _shown(row["accuracy_in_time"], 100, ".1f"),
        _shown(row["accuracy_other_in_time"], 100, ".1f"),
    )


def _submodels(rows: Rows) -> str:
    if not rows:
        return ""
    shares = list(dict.fromkeys(share for row in rows for share in row["sizes"]))
    lines = [
        (
            f"{row['study']}, {row['device']}, {method_label(row)}",
            *(" x ".join(map(str, row["sizes"][share])) if share in row["sizes"] else "" for share in shares),
            f"{row['held_mb']:,.4g}",
            f"{100 * row['accuracy']:.1f}",
        )
        for row in rows
    ]
    return format_table(("Submodels at", *(f"{share} %" for share in shares), "held, MB", "accuracy, %"), lines)


def method_label(row: dict[str, Any]) -> str:
    """Return a label of the method; for STI with its buffer."""
    if row["preload_share"] is None:
        return str(row["method"])
    buffer = f"buffer of {100 * row['preload_share']:.2f} %" if row["preload_share"] else "no buffer"
    return f"{row['method']}, {buffer}"


def _upgrades(rows: Rows) -> str:
    lines = [
        (
            f"{row['study']}, {row['layers']} x {row['slices']}",
            f"{row['raised']} to {row['to_bits']}",
            f"{100 * row['base']:.1f}",
            f"{100 * row['best']:.1f}",
            _shown(row["random_mean"], 100, ".1f"),
            _shown(row["gain"], 1, "+.2f"),
            "" if row["low"] is None else f"{row['low']:+.2f} to {row['high']:+.2f}",
            f"{row['beaten']} of {row['orders']}",
        )
        for row in rows
    ]
    head = ("Raised", "shards to bits", "none, %", "by importance", "at random", "points", "95 %", "orders no better")
    return format_table(head, lines) if lines else ""


def _pipeline(rows: Rows) -> str:
    if not rows:
        return ""
    lines = [
        (
            row["what"],
            f"{row['pace_mb_s']:g}" if row["pace_mb_s"] else "",
            f"{row['latency_ms']:,.1f}",
            _shown(row["ratio"], 1, ".2f"),
        )
        for row in rows
    ]
    return format_table(("Real pipeline", "MB/s", "ms", "times as fast as load, then run"), lines)


def _derived(rows: Rows) -> str:
    lines = [
        (row["what"], f"{row['value']:,.4g}" if row["value"] < 1e4 else f"{row['value']:,.0f}", row["unit"], row["said"])
        for row in rows
    ]
    return format_table(("What follows", "value", "unit", "the text says"), lines)


def _lost(rows: Rows) -> str:
    return format_table(
        ("Not in source text", "in its place"), [(f"{row['what']}: {row['held']}", row["stands"]) for row in rows]
    )


def _shown(value: float | None, times: float, form: str) -> str:
    return "" if value is None else format(times * value, form)
