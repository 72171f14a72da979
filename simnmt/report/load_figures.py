"""The figure over the load: latency of every policy, or its change against a baseline, for workloads that differ in rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simnmt.base.suggestions import format_list
from simnmt.report.charts import Axis, Chart, Control, Mark, Panel, panel, short
from simnmt.report.figures import milliseconds, policy_line, time_scale
from simnmt.results.summary import Row, objective_column

OVER_LOAD: dict[str, str] = {name: objective_column(name) for name in ("mean", "p95")}
"""Figures over the load, with the keys of their values in the rows."""
_LATENCY_TITLES = {"mean": "mean latency", "p95": "p95 of the latency"}


@dataclass(frozen=True, slots=True)
class LoadSweep:
    """Workloads that differ in their rate alone, on one network: the changes of policies against a baseline over the load."""

    network: str
    baseline: str
    workloads: tuple[str, ...]
    sweeps: tuple[Row, ...]
    """One record of `RunResult.load_sweeps` for each policy that is compared."""

    @property
    def load(self) -> list[float]:
        """Load of the busiest box under the baseline, per workload."""
        return [round(point["load"], 4) for point in self.sweeps[0]["points"]]


def group_sweeps(sweeps: Sequence[Row]) -> list[LoadSweep]:
    """Return the sweeps over load, one for each network and baseline."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[Row]] = {}
    for sweep in sweeps:
        workloads = tuple(point["workload"] for point in sweep["points"])
        groups.setdefault((sweep["network"], sweep["baseline"], workloads), []).append(sweep)
    return [LoadSweep(*place, tuple(records)) for place, records in groups.items()]


def over_load(sweep: LoadSweep, rows: Sequence[Row], colours: Mapping[str, int]) -> Panel:
    """Draw the latency of every policy over the load, or its change against the baseline.

    A policy has no latency at a load at which it is unstable, because no mean exists there.
    """
    by_place = {(row["workload"], row["network"], row["policy"]): row for row in rows}
    lines = {
        policy: [by_place[workload, sweep.network, policy] for workload in sweep.workloads]
        for policy in dict.fromkeys(row["policy"] for row in rows)
    }
    missing = {
        policy: [f"{load:.2f}" for load, row in zip(sweep.load, line, strict=True) if row.get("unstable")]
        for policy, line in lines.items()
    }
    unstable = "; ".join(f"{policy} at load {format_list(loads)}" for policy, loads in missing.items() if loads)
    load_axis = Axis(f"load of the busiest box under {short(sweep.baseline)}")

    def draw(of: str, y: str) -> Chart:
        if of == "change":
            note = f"No steady mean exists, so the change is that of this run: {unstable}." if unstable else ""
            title = Axis(f"total time against {short(sweep.baseline)}, %", zero_line=True)
            return Chart([_change_line(record, sweep.load, colours) for record in sweep.sweeps], load_axis, title, note)
        means = {policy: _stable_ms(line, OVER_LOAD[of]) for policy, line in lines.items()}
        shown = {policy: columns for policy, columns in means.items() if any(value is not None for value in columns[0])}
        log = y == "log"
        unit, factor = time_scale([value for columns in shown.values() for value in columns[2]])
        marks = [
            policy_line(policy, colours[policy], sweep.load, _scaled(ms, factor), symbol="circle", size=5.0,
                        low=_scaled([end if not log or end is None else max(end, 0.001) for end in low], factor),
                        high=_scaled(high, factor), hover=f"%{{y:,.4~g}} {unit} at load %{{x:.2f}}")
            for policy, (ms, low, high) in shown.items()
        ]  # fmt: skip
        note = f"Left out, because no steady mean exists: {unstable}." if unstable else ""
        values = [value * factor for ms, *_ in shown.values() for value in ms if value]
        # An interval that reaches far down must not flatten the line that it belongs to.
        span = (min(values) / 1.3, max(values) * 1.15) if log and values else None
        return Chart(marks, load_axis, Axis(f"{_LATENCY_TITLES[of]}, {unit}", log=log, span=span, from_zero=True), note)

    change = f"change against {sweep.baseline}"
    return panel(
        "load",
        "Latency over the load",
        f"Latency over load, one line per policy, {sweep.network}",
        draw,
        [
            Control("of", "Latency", [("mean", "mean"), ("p95", "p95"), ("change", change)]),
            Control("y", "Latency axis", [("log", "log latency"), ("linear", "linear")]),
        ],
        caption=f"Latency of every policy over the load under {sweep.baseline}, with 95 % intervals over replications.",
        across=True,
    )


Column = list[float | None]


def _stable_ms(rows: Sequence[Row], key: str) -> tuple[Column, Column, Column]:
    """Return a mean with its interval, ms; None where the policy is unstable."""
    ms, low, high = (
        [None if row.get("unstable") else milliseconds(row.get(key + end)) for row in rows] for end in ("", "_low", "_high")
    )
    return ms, low, high


def _scaled(values: Sequence[float | None], factor: float) -> Column:
    return [None if value is None else value * factor for value in values]


def _change_line(record: Row, load: Sequence[float], colours: Mapping[str, int]) -> Mark:
    change, low, high = (
        [point[key] for point in record["points"]] for key in ("change_percent", "low_percent", "high_percent")
    )
    return policy_line(
        record["policy"], colours[record["policy"]], load, change, low=low, high=high, symbol="circle", size=5.0,
        hover="%{y:+.2f} % at load %{x:.2f}",
    )  # fmt: skip
