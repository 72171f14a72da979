"""The tables of a run's page: policies with their figures, recommendations, and the gap analysis."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from simnmt.report.typography import DASH, THIN, is_number, number, typeset, typeset_interval
from simnmt.results import RunResult
from simnmt.results.number_text import format_number
from simnmt.results.recommendation_text import is_gap
from simnmt.results.stability import LOAD_SUFFIX, device_names, row_overloads, worst_overload
from simnmt.results.summary import Row, format_objective, known, objective_name

ORACLE_ROLE = "knows the truth"
"""Description of a policy that is a bound."""
BASELINES = ("edge", "cloud", "oracle")
"""Order of the changes; other baselines follow in order of appearance."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A unit that values are shown in."""

    unit: str
    factor: float = 1.0
    """Factor on shown values: 1000 for milliseconds."""


@dataclass(frozen=True, slots=True)
class Measure:
    """The quantity of a group of columns, and the units in which it may be shown."""

    name: str
    """The upper line of the header, to which the unit is added."""
    small: Scale
    large: Scale
    """Scale of a workload on a network with a value of at least `large_from`."""
    large_from: float = math.inf


@dataclass(frozen=True, slots=True)
class Column:
    """One column of figures: its key and its presentation."""

    key: str
    """Key in the rows."""
    measure: Measure
    head: str
    """The lower line of the header."""
    plain: bool = False
    """True to omit the interval: that of the total equals that of the mean, times the requests."""


SECONDS, PERCENT, ONE = Scale("s"), Scale("%", 100.0), Scale("")
TOTAL = Measure("total time", SECONDS, Scale("h", 1 / 3600), 1e6)
LATENCY = Measure("latency of a request", Scale("ms", 1e3), SECONDS, 100.0)
REQUESTS = Measure("requests", PERCENT, PERCENT)
LOAD = Measure("load", ONE, ONE)

MISROUTED = "misrouted_share"
"""Key of a column that is left out if it is unknown."""
COLUMNS = (
    Column("total_latency_s", TOTAL, "sum", plain=True),
    Column("mean_latency_s", LATENCY, "mean"),
    Column("p50_latency_s", LATENCY, "p50"),
    Column("p95_latency_s", LATENCY, "p95"),
    Column("p99_latency_s", LATENCY, "p99"),
    Column("offloaded_share", REQUESTS, "offloaded"),
    Column(MISROUTED, REQUESTS, "misrouted"),
)
FAULTS = (
    Column("lost_share", REQUESTS, "lost"),
    Column("fallback_share", REQUESTS, "fell back"),
)
"""Columns that are shown only if such requests exist under some policy."""
SHOWN_PERCENTILES = ("p50", "p90", "p95", "p99", "p999")
"""Percentiles of every run; those beside them are shown, since somebody asked for them."""
GOODPUT = "goodput_rps"
RATE = Measure("goodput", Scale("requests/s"), Scale("requests/s"))
QUEUE = Column("mean_queue_s", LATENCY, "of it waiting")
"""Column that is shown only if requests waited under some policy."""
MOST_LOADS = 3
"""Devices whose loads have a column each; with more of them one column shows the busiest."""
BUSIEST = Column("busiest", LOAD, "busiest")


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell of the table."""

    key: str
    value: float | None
    """Unrounded number in the unit of the row, for programs that read the page."""
    text: str
    unit: str = ""
    """Empty if the header names the unit of the whole column."""
    interval: str = ""
    verdict: str = ""
    """For a change: its verdict, such as faster. For a load: overloaded. For a mean: unstable."""
    remark: str = ""
    """Further note on the number."""
    prediction: str = ""
    """Prediction interval; empty without drawn profiles."""
    bound: bool = False
    """True for a change against the oracle, a bound that is not bad to miss."""


@dataclass(frozen=True, slots=True)
class Line:
    """One policy in one cell of the scenario."""

    policy: str
    role: str
    colour: int
    """Index of the policy's colour, the same on the whole page."""
    bar_percent: float
    """Mean latency as a share of the slowest policy's beside it."""
    figures: list[Figure]
    changes: list[Figure]
    """One per baseline."""
    badge: str = ""
    """Result of the recommendation: recommended, as good, not distinguishable, or empty."""


@dataclass(frozen=True, slots=True)
class Table:
    """All lines, grouped by (workload, network), and the header over them."""

    columns: list[Column]
    groups: list[tuple[str, int]]
    """Upper header: text and how many columns it spans."""
    baselines: list[tuple[str, str]]
    """Policy name and what the header calls it."""
    lines: dict[tuple[str, str], list[Line]]
    unclear: bool
    """True if some difference is not distinguishable from zero."""
    bare: bool
    """True if no value has an interval, as after one replication."""
    loads: bool
    """True if loads are shown."""
    unstable: bool
    """True if some policy has no steady mean."""
    predicted: bool = False
    """True if numbers have prediction intervals."""
    goodput: bool = False
    """True if the goodput is shown."""


def policy_table(
    rows: Sequence[Row],
    comparisons: Sequence[Row],
    colours: Mapping[str, int],
    roles: Mapping[str, str] | None = None,
    badges: Mapping[tuple[str, str, str], str] | None = None,
) -> Table:
    """Return the table of a run, with lines in the order of `rows` and the baselines of the paper first.

    Args:
        rows, comparisons: as in the summary.
        colours: colour of each policy.
        roles: descriptions of policies by name.
        badges: results of the recommendation by workload, network and policy.
    """
    roles, badges = roles or {}, badges or {}
    columns = [column for column in COLUMNS if column.key != MISROUTED or any(is_number(row.get(MISROUTED)) for row in rows)]
    latencies = _further_percentiles(rows)
    if any(is_number(row.get(QUEUE.key)) and row[QUEUE.key] > 0 for row in rows):
        latencies.append(QUEUE)
    after = columns.index(COLUMNS[4]) + 1
    columns[after:after] = latencies
    columns += [column for column in FAULTS if any(is_number(row.get(column.key)) and row[column.key] > 0 for row in rows)]
    columns += _shares_in_time(rows)
    columns += _goodput(rows)
    loads = _loads(rows)
    columns += loads
    beside: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        beside.setdefault(cell_of(row), []).append(row)
    # Unstable policies do not influence the units and digits of stable ones.
    stable = {cell: [row for row in group if not row.get("unstable")] or group for cell, group in beside.items()}
    scales = {cell: {m: _scale(group, columns, m) for m in _measures(columns)} for cell, group in stable.items()}
    units = {m: list(dict.fromkeys(scale[m].unit for scale in scales.values())) for m in _measures(columns)}
    decimals = {cell: _decimals(group, columns, scales[cell]) for cell, group in stable.items()}
    present = dict.fromkeys(comparison["baseline"] for comparison in comparisons)
    baselines = sorted(present, key=lambda name: BASELINES.index(name) if name in BASELINES else len(BASELINES))
    change = {(c["workload"], c["network"], c["policy"], c["baseline"]): c for c in comparisons}
    lines: dict[tuple[str, str], list[Line]] = {}
    for cell, group in beside.items():
        means = {row["policy"]: row["mean_latency_s"] for row in stable[cell] if is_number(row.get("mean_latency_s"))}
        most = max(means.values(), default=0.0)
        for row in group:
            policy = row["policy"]
            share = means.get(policy, 0.0) / most if most > 0 and not row.get("unstable") else 0.0
            line = Line(
                policy=policy,
                role=roles.get(policy, ""),
                colour=colours[policy],
                bar_percent=round(100 * share, 1),
                figures=[
                    _figure(row, column, scales[cell][column.measure], decimals[cell][column.measure], units[column.measure])
                    for column in columns
                ],
                changes=[
                    replace(_change(change.get((*cell, policy, baseline)), baseline), bound=roles.get(baseline) == ORACLE_ROLE)
                    for baseline in baselines
                ],
                badge=badges.get((*cell, policy), ""),
            )
            lines.setdefault(cell, []).append(line)
    return Table(
        columns,
        _spans(columns, units),
        [(baseline, roles[baseline] if roles.get(baseline, "").endswith(" only") else baseline) for baseline in baselines],
        lines,
        unclear=any(comparison["verdict"] == "not distinguishable" for comparison in comparisons),
        bare=not any(is_number(comparison.get("low_percent")) for comparison in comparisons),
        loads=bool(loads),
        unstable=any(row.get("unstable") for row in rows),
        predicted=any(figure.prediction for of_cell in lines.values() for line in of_cell for figure in line.figures),
        goodput=any(column.key == GOODPUT for column in columns),
    )


def _further_percentiles(rows: Sequence[Row]) -> list[Column]:
    """Return a column for each percentile of the latency that somebody asked for."""
    keys = [key.removesuffix("_latency_s") for key in rows[0] if re.fullmatch(r"p\d{2,3}_latency_s", key)]
    objectives = [key.removesuffix("_latency_spread") for key in rows[0] if re.fullmatch(r"p\d{2,3}_latency_spread", key)]
    asked = [key for key in keys if key not in SHOWN_PERCENTILES or (key in objectives and key not in ("p95", "p99"))]
    return [Column(f"{key}_latency_s", LATENCY, f"{key[:3]}.{key[3:]}".rstrip(".")) for key in asked]


def _shares_in_time(rows: Sequence[Row]) -> list[Column]:
    """Return a column for the share that met the deadline, if there is one, and for each share answered within a time."""
    shares = [key for key in rows[0] if re.fullmatch(r"answered_within_.*ms_share", key)]
    heads = {key: f"within {key.removeprefix('answered_within_').removesuffix('ms_share')} ms" for key in shares}
    if any(is_number(row.get("deadline_met_share")) for row in rows):
        heads = {"deadline_met_share": "in deadline", **heads}
    return [Column(key, REQUESTS, head) for key, head in heads.items()]


def _goodput(rows: Sequence[Row]) -> list[Column]:
    """Return the column of the goodput, headed by the time within which an answer counts; none if every answer does."""
    limits_s = {row.get("good_within_s") for row in rows}
    if limits_s == {None} or not any(is_number(row.get(GOODPUT)) for row in rows):
        return []
    head = "in time" if len(limits_s) > 1 else f"within {1e3 * known(limits_s.pop()):g} ms"
    return [Column(GOODPUT, RATE, head)]


def _loads(rows: Sequence[Row]) -> list[Column]:
    """Return a column for the load of each device, or one for the busiest; none where requests come back to back."""
    names = list(dict.fromkeys(name for row in rows for name in device_names(row)))
    loaded = [name for name in names if any(is_number(row.get(name + LOAD_SUFFIX)) for row in rows)]
    if len(names) > MOST_LOADS and loaded:
        return [BUSIEST]
    return [Column(name + LOAD_SUFFIX, LOAD, name) for name in names] if loaded else []


def cell_of(row: Row) -> tuple[str, str]:
    """Return the cell of the scenario a row belongs to."""
    return row["workload"], row["network"]


def _figure(row: Row, column: Column, scale: Scale, most: int, units: Sequence[str]) -> Figure:
    overload = worst_overload(row)
    if overload is not None and column.measure is LATENCY:
        if column.head != "mean":
            return Figure(column.key, None, DASH)
        return Figure(column.key, None, "unstable", verdict="unstable", remark=_describe_growth(overload.growth))
    if column is BUSIEST:
        return _busiest(row, most)
    value = row.get(column.key)
    if not is_number(value):
        return Figure(column.key, None, DASH)
    low, high = row.get(f"{column.key}_low"), row.get(f"{column.key}_high")
    decimals = most if column.measure in (REQUESTS, LOAD) else _limit_decimals(most, value * scale.factor)
    ends = [end * scale.factor if overload is None and is_number(end) else None for end in (low, high)]
    text, interval = typeset_interval(value * scale.factor, ends[0], ends[1], signs="minus", most=decimals)
    return Figure(
        column.key,
        value,
        text,
        unit=scale.unit if len(units) > 1 else "",
        interval="" if column.plain else interval,
        verdict=_describe_overload(row, column.head) if column.measure is LOAD else "",
        remark="this run" if overload is not None and column.measure is TOTAL else "",
        prediction=_prediction(row, column.key, scale.factor, decimals),
    )


def _prediction(row: Row, key: str, factor: float, decimals: int) -> str:
    low, high = (row.get(f"{key}_predicted_{end}") for end in ("low", "high"))
    if low is None or high is None:
        return ""
    return typeset_interval(factor * row[key], factor * low, factor * high, signs="minus", most=decimals)[1]


def _busiest(row: Row, decimals: int) -> Figure:
    """Return the greatest load of any device's boxes, and which device that is."""
    loads = {name: row[name + LOAD_SUFFIX] for name in device_names(row) if is_number(row.get(name + LOAD_SUFFIX))}
    if not loads:
        return Figure(BUSIEST.key, None, DASH)
    name = max(loads, key=loads.__getitem__)
    return Figure(BUSIEST.key, loads[name], number(loads[name], decimals), verdict=_describe_overload(row, name), remark=name)


def _describe_overload(row: Row, device: str) -> str:
    """Return whether a device is overloaded, and in how many replications if not in all of them."""
    for overload in row_overloads(row):
        if overload.device == device:
            partly = overload.replications < overload.of
            return f"overloaded in {overload.replications} of {overload.of}" if partly else "overloaded"
    return ""


def _describe_growth(growth: float) -> str:
    return f"waits grow by {number(growth, 2 if growth < 10 else 0)}{THIN}s each second"


def _change(comparison: Row | None, baseline: str) -> Figure:
    key = f"change_vs_{baseline}"
    if comparison is None or not is_number(comparison["change_percent"]):
        return Figure(key, None, DASH)
    percent, low, high = comparison["change_percent"], comparison["low_percent"], comparison["high_percent"]
    text, interval = typeset_interval(percent, low, high, most=_limit_decimals(2, percent))
    remark = "this run" if comparison.get("unstable") else ""
    return Figure(key, percent, text, interval=interval, verdict=comparison["verdict"], remark=remark)


def _measures(columns: Iterable[Column]) -> list[Measure]:
    return list(dict.fromkeys(column.measure for column in columns))


def _scale(rows: Iterable[Row], columns: Iterable[Column], measure: Measure) -> Scale:
    """Return the unit for all lines of a workload on a network."""
    keys = [column.key for column in columns if column.measure is measure]
    most = max((row[key] for row in rows for key in keys if is_number(row.get(key))), default=0.0)
    return measure.large if most >= measure.large_from else measure.small


def _decimals(rows: Sequence[Row], columns: Iterable[Column], scales: Mapping[Measure, Scale]) -> dict[Measure, int]:
    """Return decimals by measure: the least total, mean or median shows three digits; shares and loads have two decimals."""
    decimals: dict[Measure, int] = {}
    for measure, scale in scales.items():
        keys = [column.key for column in columns if column.measure is measure and column.head in ("sum", "mean", "p50")]
        sizes = [abs(row[key]) * scale.factor for row in rows for key in keys if is_number(row.get(key))]
        least = min((size for size in sizes if size > 0), default=1.0)
        decimals[measure] = min(max(2 - math.floor(math.log10(least)), 0), 3) if keys else 2
    return decimals


def _limit_decimals(decimals: int, value: float) -> int:
    """Return as many decimals as make four digits at most."""
    return min(decimals, max(3 - int(f"{value:.3e}".partition("e")[2]), 0))


def _spans(columns: Sequence[Column], units: Mapping[Measure, Sequence[str]]) -> list[tuple[str, int]]:
    """Return the upper header; it names the unit where all of its columns have but one."""
    return [
        (", ".join(filter(None, (m.name, *(units[m] if len(units[m]) == 1 else ())))), sum(c.measure is m for c in columns))
        for m in _measures(columns)
    ]


MOST_CARDS = 2
"""Most cells whose sentences open the page; with more cells, an overview comes first and the sentences are folded."""


def verdict_cards(result: RunResult, colours: Mapping[str, int]) -> list[Row]:
    """Return one card per workload and network: its sentences, and the colour of the recommended policy (None without one)."""
    policies = {cell_of(record): record["policy"] for record in result.recommendations}
    cards = []
    for verdict in result.verdicts:
        policy = policies.get(cell_of(verdict))
        before, deploy, after = verdict["sentence"].partition(f"deploy {policy}")
        sentence = escape(before) + (Markup("deploy <strong>{}</strong>").format(policy) if deploy else "") + escape(after)
        cards.append({**verdict, "sentence": sentence, "policy": policy, "colour": colours.get(policy or "")})
    return cards


@dataclass(frozen=True, slots=True)
class Recommended:
    """One cell of the overview: the recommended policy of a workload on a network, as text."""

    index: int
    """Of the cell on the page."""
    policy: str | None
    colour: int | None
    value: str
    margin: str
    interval: str
    unclear: list[str]
    as_good: list[str]
    remark: str


@dataclass(frozen=True, slots=True)
class Overview:
    """The matrix of recommended policies, workloads down and networks across."""

    objective: str
    caution: str
    networks: list[str]
    lines: dict[str, list[Recommended]]
    """Workload -> a cell per network."""


def overview(result: RunResult, colours: Mapping[str, int]) -> Overview | None:
    """Return the matrix of recommended policies; None for few cells, which need none."""
    recommendations = result.recommendations
    if len(recommendations) <= MOST_CARDS:
        return None
    networks = list(dict.fromkeys(record["network"] for record in recommendations))
    by_cell = {cell_of(record): _recommended(index, record, colours) for index, record in enumerate(recommendations)}
    workloads = dict.fromkeys(record["workload"] for record in recommendations)
    caution = " ".join(dict.fromkeys(verdict["caution"] for verdict in result.verdicts if verdict["caution"]))
    lines = {workload: [by_cell[workload, network] for network in networks] for workload in workloads}
    return Overview(objective_name(recommendations[0]["objective"]), caution, networks, lines)


def _recommended(index: int, record: Row, colours: Mapping[str, int]) -> Recommended:
    margin, low, high = (
        None if record[f"margin{end}"] is None else 100.0 * record[f"margin{end}"] for end in ("", "_low", "_high")
    )
    change, interval = ("", "") if margin is None else typeset_interval(margin, low, high)
    value, low, high = (record[f"objective_value{end}"] for end in ("", "_low", "_high"))
    return Recommended(
        index,
        record["policy"],
        colours.get(record["policy"] or ""),
        "" if value is None else format_objective(record["objective"], value, low, high),
        change and f"{change}\u202f% against {record['runner_up']}",
        interval,
        [name for name in record["indistinguishable"] if name not in record["as_good"]],
        record["as_good"],
        "unstable" if record["unstable"] else "misses the service level" if record["slo_met"] is False else "",
    )


def recommendation_badges(recommendations: Sequence[Row]) -> dict[tuple[str, str, str], str]:
    """Return the badges of policies in the table, by workload, network and policy."""
    badges = {}
    for record in recommendations:
        place, policy = cell_of(record), record["policy"]
        if policy is None or record["unstable"]:
            continue
        badges[(*place, policy)] = "recommended"
        badges |= {(*place, name): f"not distinguishable from {policy}" for name in record["indistinguishable"]}
        badges |= {(*place, name): "loses requests" for name in record["lost_shares"] if name != policy}
        badges |= {(*place, name): f"as good as {policy}" for name in record["as_good"]}
        if record["slo"]:
            badges |= {(*place, name): "misses the service level" for name in record["slo_missed_by"] if name != policy}
    return badges


def gap_lines(gaps: Sequence[Row]) -> list[dict[str, str]]:
    """Return a line per source of loss: total, change with its interval, and share of a gap that is beyond chance."""
    shared = is_gap(gaps)
    lines = []
    for row in gaps:
        change, interval = typeset_interval(row["change_percent"], row["low_percent"], row["high_percent"])
        share = row["share_of_gap_percent"]
        lines.append(
            {
                "removed": row["removed"],
                "total": typeset(format_number(row, "total_latency_s")),
                "change": change,
                "interval": "" if row["removed"] == "nothing" else interval,
                "outcome": _gap_verdict(row),
                "share": number(share, 0) if shared and is_number(share) else DASH,
            }
        )
    return lines


def _gap_verdict(row: Row) -> str:
    low, high = row["low_percent"], row["high_percent"]
    if not is_number(low) or not is_number(high):
        return "one replication"
    if low == high == 0.0:
        return "same"
    return "faster" if high < 0.0 else "slower" if low > 0.0 else "not distinguishable"
