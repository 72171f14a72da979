"""Pipelines as the page on elastic pipelining draws them: every way under one deadline (STI-12, STI-21)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simnmt.report.pipeline_chart import Drawn, pipeline_svg


def pictures(timelines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One section, a picture for each group of pipelines."""
    if not timelines:
        return []
    return [
        {
            "id": "pipelines",
            "title": "Pipelines, drawn",
            "note": "Above what the disk reads, below what the processor computes and how long it waits; a box for each layer, "
            "a line for the deadline; MB: preloaded. Figure 8 itself is not in the source text.",
            "drawn": [
                {"heading": group["name"], "svg": pipeline_svg(group["name"], _all(group), group["deadline_s"])}
                for group in timelines
            ],
        }
    ]


def _all(group: Mapping[str, Any]) -> list[Drawn]:
    moments = ("load_begin", "load_end", "compute_begin", "compute_end", "stall")
    return [Drawn(each["name"], *(each[name] for name in moments)) for each in group["pipelines"]]
