"""From which load on one policy is faster than another: the same requests at rising rates, compared at each rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simnmt.names import format_list
from simnmt.results.stability import busiest_load
from simnmt.results.summary import Row
from simnmt.results.wording import percent_interval


def load_sweep(
    rows: Sequence[Row], comparisons: Sequence[Row], workloads: Sequence[str], network: str, policy: str, baseline: str
) -> Row:
    """Return how `policy` compares with `baseline` over the loads of some workloads, as a record with its `sentence`.

    The load is that of the busiest box under the baseline. `faster_from`: the least load from which on every comparison is
    faster; None if that of the highest load is not. `never_slower`: None with one replication, which cannot tell a difference
    from chance. Raises `KeyError` if a workload lacks one of the two policies or has no load.
    """
    points = _points(rows, comparisons, workloads, network, policy, baseline)
    known = all(point["low_percent"] is not None for point in points)
    faster_from = None
    for point in reversed(points):
        if point["verdict"] != "faster":
            break
        faster_from = point["load"]
    record: dict[str, Any] = {
        "network": network,
        "policy": policy,
        "baseline": baseline,
        "points": points,
        "never_slower": all(point["verdict"] != "slower" for point in points) if known else None,
        "faster_from": faster_from,
    }
    return record | {"sentence": _sentence(record)}


def _points(
    rows: Sequence[Row], comparisons: Sequence[Row], workloads: Sequence[str], network: str, policy: str, baseline: str
) -> list[Row]:
    """One comparison for each workload, by rising load."""
    by_place = {(row["workload"], row["network"], row["policy"]): row for row in rows}
    pairs = {(pair["workload"], pair["network"], pair["policy"], pair["baseline"]): pair for pair in comparisons}
    points = []
    for workload in workloads:
        plain, pair = by_place[workload, network, baseline], pairs[workload, network, policy, baseline]
        load = busiest_load(plain)
        if load is None:
            raise KeyError(f"{workload} has no load")
        points.append(
            {
                "workload": workload,
                "load": load,
                "unstable": [name for name in (baseline, policy) if by_place[workload, network, name].get("unstable")],
                **{key: pair[key] for key in ("change_percent", "low_percent", "high_percent", "verdict")},
            }
        )
    return sorted(points, key=lambda point: point["load"])


def _sentence(record: Row) -> str:
    points, policy, baseline = record["points"], record["policy"], record["baseline"]
    place = f"{record['network']}, load {_at(points[0])} to {_at(points[-1])} under {baseline}: "
    if record["never_slower"] is None:
        return (
            f"{place}{policy} changes the total time by {_change(points[0])} at the least load and by {_change(points[-1])} at "
            f"the greatest; with one replication this may be chance.{_unstable(record)}"
        )
    slower = [point for point in points if point["verdict"] == "slower"]
    if slower:
        first = f"{policy} is slower than {baseline} at load {_listed(slower)}"
    else:
        first = f"{policy} is never slower than {baseline} beyond the interval"
    return f"{place}{first}; {_faster(record)}.{_unstable(record)}"


def _faster(record: Row) -> str:
    points, begin = record["points"], record["faster_from"]
    if begin is not None:
        there = next(point for point in points if point["load"] == begin)
        from_on = "faster at every load" if there is points[0] else f"faster from load {_at(there)} on"
        also = [point for point in points if point["load"] < begin and point["verdict"] == "faster"]
        besides = f", and at load {_listed(also)} below that" if also else ""
        top = "" if there is points[-1] else f", {_change(points[-1])} at load {_at(points[-1])}"
        return f"{from_on} ({_change(there)} at load {_at(there)}{top}){besides}"
    faster = [point for point in points if point["verdict"] == "faster"]
    if not faster:
        return "nowhere faster beyond the interval"
    return f"faster at load {_listed(faster)}, and not at the greatest load"


def _unstable(record: Row) -> str:
    """The loads at which one of the two policies or both are unstable, so that changes there are those of this run alone."""
    baseline, policy = record["baseline"], record["policy"]
    sentences = ""
    subjects = {f"{baseline} is": [baseline], f"{policy} is": [policy], f"both {baseline} and {policy} are": [baseline, policy]}
    for subject, names in subjects.items():
        loads = ", ".join(_at(point) for point in record["points"] if point["unstable"] == names)
        if loads:
            sentences += f" At load {loads} {subject} unstable: the change there depends on how long the run lasts."
    return sentences


def _at(point: Row) -> str:
    return f"{point['load']:.2f}"


def _listed(points: Sequence[Row]) -> str:
    return format_list((f"{_at(point)} ({_change(point)})" for point in points), ",", most=3)


def _change(point: Row) -> str:
    return percent_interval(point["change_percent"], point["low_percent"], point["high_percent"])
