"""The chart of a comparison of runs: change of the mean latency of each policy, in percent, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

from simnmt.report.charts import SYMBOLS, Axis, Chart, Mark, plain, series_colour, short
from simnmt.report.typography import typeset_interval
from simnmt.results.summary import Row

_SPREAD = 0.5
"""Part of a policy's row over which the runs are spread."""


def change_chart(rows: Sequence[Row], runs: Sequence[str] = ()) -> Chart:
    """Draw a row for each policy, with a point and its whiskers for each run.

    Args:
        rows: the changes on one workload and network, of `Comparison`.
        runs: names of all runs after the first, whose order gives the colours; empty: those of `rows`.
    """
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    runs = runs or list(dict.fromkeys(row["run"] for row in rows))
    marks = []
    for place, name in enumerate(runs):
        of_run = [row for row in rows if row["run"] == name]
        offset = _SPREAD * ((place + 0.5) / len(runs) - 0.5)
        marks.append(
            Mark(
                "points",
                [row["change_percent"] for row in of_run],
                [policies.index(row["policy"]) + offset for row in of_run],
                short(name, 40),
                series_colour(place),
                symbol=SYMBOLS[place % len(SYMBOLS)],
                size=9.0,
                low=[row["low_percent"] for row in of_run],
                high=[row["high_percent"] for row in of_run],
                text=[plain(_describe_change(row)) for row in of_run],
                hover="%{text}",
                level=True,
            )
        )
    ticks = {float(place): short(policy, 20) for place, policy in enumerate(policies)}
    unpaired = [name for name in runs if any(row["run"] == name and not row["paired"] for row in rows)]
    reading = f"Unpaired, with the noise of both runs: {', '.join(unpaired)}." if unpaired else ""
    baseline = short(rows[0]["baseline"], 40) if rows else "the first run"
    change_axis = Axis(f"change of the mean latency against {baseline}, %", zero_line=True)
    message = "" if rows else "no workload, network and policy in common"
    return Chart(marks, change_axis, Axis(ticks=ticks, span=(len(policies) - 0.5, -0.5)), reading, message=message)


def _describe_change(row: Row) -> str:
    change, interval = typeset_interval(row["change_percent"], row["low_percent"], row["high_percent"])
    return f"{row['policy']}: {f'{change} {interval}'.rstrip()} %"
