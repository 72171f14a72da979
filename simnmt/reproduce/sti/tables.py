"""The reproduction's tables, as JSON keeps them and the page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from simnmt.reproduce.sti import published, study_rows
from simnmt.reproduce.sti.derived import derived
from simnmt.reproduce.sti.pipelines import pipeline_rows, simulated_rows
from simnmt.reproduce.sti.reproduction import Reproduction
from simnmt.reproduce.sti.studies import NEEDS
from simnmt.reproduce.sti.summary import summary
from simnmt.reproduce.sti.timelines import timelines


def document(found: Reproduction) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "paper": published.REFERENCE,
        "summary": summary(found),
        "claims": found.claims,
        "tables": tables(found),
        "timelines": timelines(found.studies),
        "models": study_rows.models(found.studies),
        "slips": list(published.SLIPS),
        "notes": notes(found),
    }


def tables(found: Reproduction) -> list[dict[str, Any]]:
    """Each with `id`, `title` and `rows`; what was not measured has no rows."""
    own = found.studies
    return [
        {
            "id": "setting",
            "title": "The paper's setting (STI-20)",
            "rows": [{"what": what, "said": said} for what, said in published.SETTING],
        },
        {"id": "lost", "title": "Not in source text (STI-26)", "rows": [asdict(each) for each in published.LOST]},
        {"id": "gains", "title": "Points gained over each other way", "rows": study_rows.gains(own)},
        {"id": "submodels", "title": "Submodels by deadline", "rows": study_rows.submodels(own)},
        {"id": "upgrades", "title": "Shards raised by importance and at random", "rows": study_rows.upgrades(own)},
        {"id": "sizes", "title": "Sizes of the preload buffer", "rows": study_rows.sizes(own)},
        {"id": "uniform", "title": "Bits, layers and slices", "rows": study_rows.uniform(own)},
        {"id": "greedy", "title": "The planner beside the exact one", "rows": study_rows.greedy(own)},
        {"id": "pipeline", "title": "Real pipelines of BERT's base size", "rows": pipeline_rows(found.pipeline)},
        {"id": "simulated", "title": "Simulated beside measured latency", "rows": simulated_rows(found.pipeline)},
        {
            "id": "said",
            "title": "Single figures of the text",
            "rows": [{"what": what, "said": said} for what, said in published.SAID],
        },
        {"id": "derived", "title": "What follows from the printed figures", "rows": [asdict(each) for each in derived()]},
        {"id": "grid", "title": "Every way under every deadline", "rows": study_rows.grid(own)},
        {"id": "devices", "title": "The costs that plans were made by", "rows": study_rows.devices(own)},
        {"id": "runs", "title": "How it was measured", "rows": study_rows.runs(own)},
    ]


def notes(found: Reproduction) -> list[str]:
    """What limits the numbers."""
    said = [
        "The paper’s tables and figures are not in the source text: what its sentences give stands here, and nothing was read "
        "off a picture.",
        "Published figures are of DynaBERT on GLUE, on two boards of 2022.",
    ]
    if not found.studies:
        return [*said, f"Published figures alone; what is ours {NEEDS}."]
    said += [
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
    said += [_ranked(row) for row in study_rows.models(found.studies)]
    if any(run.quick for study in found.studies for run in study.runs):
        said.append("A quick look: few deadlines, orders and examples, whose verdicts say little.")
    return [*said, *_run_notes(found.studies)]


def _run_notes(studies: Sequence[Any]) -> list[str]:
    return [f"{study.name}, {run.part}: {note}" for study in studies for run in study.runs for note in run.notes]


def _ranked(row: dict[str, Any]) -> str:
    """On which examples shards were ranked."""
    if row["importance_on_same"]:
        return (
            f"{row['study']}: shards were ranked on the very examples that accuracy is measured on. What planning gains over "
            "ways without an order, and importance over random orders, looks larger than it is."
        )
    file = row["importance_task"] or "another file"
    told = f"{row['study']}: shards were ranked on examples of {file}"
    if row["importance_shared"] is None:
        return f"{told}; how many of their texts also judge is not known."
    told += ", which judge nothing"
    if row["importance_shared"]:
        told += f", but for {row['importance_shared']:,} of {row['importance_examples']:,}, which are among those that do"
    return f"{told}."
