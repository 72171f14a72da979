"""The claims of the C-NMT paper as signs and orders, and the verdicts of a run on them (CNMT-17, CNMT-20)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from simnmt.papers.cnmt import published
from simnmt.papers.cnmt.table_one import total_times
from simnmt.papers.kit.claim import FAILS, HOLDS, UNCLEAR, UNKNOWN, Effect, verdict_among, worst_verdict
from simnmt.results.number_text import percent_interval
from simnmt.results.statistics import CONFIDENCE, Estimate, change_percent, difference_of_changes

Cell = tuple[str, str]
"""(workload, network)."""
RunName = tuple[str, str, str]
"""(workload, network, policy)."""

TRANSFORMER = "en-zh"
"""The data set that the paper translates by a Transformer."""
NEAR_TIE: Cell = ("en-zh", "cp2")
"""Where the published Naive and C-NMT cannot be told apart: who leads depends on the column."""

SLIPS = (
    "The transfer time is said once to depend on N and M and later to be roughly independent of them; "
    "independent is meant (the payload of two bytes a word adds microseconds to a round trip of "
    "milliseconds).",
    "The mean squared errors are printed in ms; they are in ms squared.",
    "The 21 % by which C-NMT beats Naive on DE-EN are percentage points of the Server column (26.15 - "
    "4.78 = 21.37). In the GW column the gap is 25.29 points, and as a ratio of total times C-NMT takes"
    " 22.4 to 22.6 % less than Naive.",
    "A translation Transformer's decoder attends to every output of the encoder, not to the last or "
    "first one as a single context vector.",
    "Offloading under CP1 is called mostly unprofitable, yet for EN-ZH the server alone already beats "
    "the gateway alone in total (0.90): few long sentences carry much of the total time.",
    'The time span "7:30-12:30 a.m." is ambiguous: 12:30 a.m. lies before 7:30 a.m.; 12:30 p.m. may be meant.',
    "The two rows of a data set imply different Server and Oracle totals in eleven of twelve cases, by "
    "up to 3.7 %, more than the rounding explains: the baselines were not one fixed run per cell. In "
    "EN-ZH CP2 the winner itself depends on the column.",
)
"""What does not fit together in the paper, in our words; nothing here changes a verdict."""

_HARDLY_FAILS = "nearly a theorem where the networks differ in hardly more than their level, so this tests little"

_ONE_REPLICATION = "one replication does not show how far chance moves it"

FITTED = "fitted: the profiles were inferred from Table I itself, so this shows consistency, not proof"
"""Ends the `why` of what rests on inferred profiles."""


def evaluate(
    rows: Iterable[Mapping[str, Any]],
    profile_kinds: Collection[str] = (),
    gaps: Iterable[Mapping[str, Any]] = (),
    totals_s: Mapping[RunName, Sequence[float]] | None = None,
) -> list[dict[str, Any]]:
    """Return one record per claim (a) to (e): id, claim, published, ours, verdict, why, hardware_dependent, basis.

    A claim holds or fails only beyond the noise of the differences that it is about, paired by replication: changes of total
    time for (b) and (c), differences between two changes for (d) and (e). Either verdict is wrong in at most 2.5 % of runs, as
    far as the intervals cover what they promise: where any of several differences may decide, wider intervals count
    (`claim.verdict_among`). Without replications an order may refute a claim, not more. (a) needs no interval: it is a
    theorem, request by request. Cells where the oracle uses a single device are left out of (b), (d) and (e): nothing can be
    gained there.

    Args:
        rows: a run's rows, back to back and without queues.
        profile_kinds: the kinds of the device profiles that it used. `basis` is "fitted" if any of them was inferred, else
            "measured" or "synthetic" by the profiles, "unknown" if none is given.
        gaps: the gap analysis of the same run, for the cause in (e): the paper explains the Transformer's gap by its lengths.
            Without it the order of the gaps may refute (e), not more.
        totals_s: total latency of each replication of the run (`RunResult.totals_s`). Without them the rows count as one
            replication.
    """
    rows = list(rows)
    totals = _totals(rows, totals_s)
    idle = {(r["workload"], r["network"]) for r in rows if r["policy"] == "oracle" and r.get("offloaded_share") in (0.0, 1.0)}
    records = [
        _oracle_is_least(totals),
        _beats_both_devices(totals, idle),
        _beats_naive(totals),
        _gains_follow_the_network(totals, idle),
        _gap_larger_for_the_transformer(totals, idle, list(gaps)),
    ]
    basis = basis_of(profile_kinds)
    for record in records:
        record["basis"] = basis
        if basis == "fitted" and record["hardware_dependent"] and record["verdict"] != UNKNOWN:
            record["why"] = f"{record['why']}; {FITTED}"
    return records


def basis_of(profile_kinds: Collection[str]) -> str:
    """What claims rest on: `fitted` if any profile was inferred, else `measured` or `synthetic`, `unknown` without profiles."""
    if any(kind.startswith("inferred") for kind in profile_kinds):
        return "fitted"
    if not profile_kinds:
        return "unknown"
    return "measured" if set(profile_kinds) == {"measured"} else "synthetic"


def record_of(
    identifier: str,
    claim: str,
    theirs: str,
    ours: str,
    holds: bool | str | None,
    why: str,
    hardware_dependent: bool,
) -> dict[str, Any]:
    """A record of one claim; `holds` is None where it cannot be judged, or the verdict itself."""
    verdict = holds if isinstance(holds, str) else UNKNOWN if holds is None else HOLDS if holds else FAILS
    return {
        "id": identifier,
        "claim": claim,
        "published": theirs,
        "ours": ours,
        "verdict": verdict,
        "why": why,
        "hardware_dependent": hardware_dependent,
    }


def _name(cell: Cell) -> str:
    return f"{cell[0].upper()} {cell[1].upper()}"


def _listed(cells: Iterable[Cell]) -> str:
    return ", ".join(_name(cell) for cell in cells)


def _percent(effect: Estimate, unit: str = "%") -> str:
    return percent_interval(effect.mean, effect.low, effect.high, unit=unit)


@dataclass(frozen=True, slots=True)
class _Totals:
    """Total times of a run of Table I, and the differences between policies that follow from them."""

    total_s: Mapping[RunName, Sequence[float]]
    """By replication; one value where only a table is at hand."""

    @property
    def replicated(self) -> bool:
        """Whether the noise of the differences is known."""
        return all(len(values) > 1 for values in self.total_s.values())

    def cells(self, *policies: str, without: Collection[Cell] = ()) -> list[Cell]:
        """Return the cells that have rows of all these policies, in the table's order."""
        every = product(published.WORKLOADS, published.NETWORKS)
        return [cell for cell in every if cell not in without and all((*cell, policy) in self.total_s for policy in policies)]

    def mean_s(self, cell: Cell, policy: str) -> float:
        """Return the mean total time of the replications."""
        values = self.total_s[(*cell, policy)]
        return sum(values) / len(values)

    def excess(self, cell: Cell, policy: str, baseline: str, confidence: float = CONFIDENCE) -> Estimate:
        """Return by how many percent of the baseline's total time the policy takes more."""
        ours, theirs = self.total_s[(*cell, policy)], self.total_s[(*cell, baseline)]
        if len(ours) == 1:  # as of thousands of combinations of levels
            return Estimate(100.0 * (ours[0] / theirs[0] - 1.0), None, None)
        return change_percent(ours, theirs, confidence)

    def saving(self, cell: Cell, policy: str, baseline: str, confidence: float = CONFIDENCE) -> Estimate:
        """Return by how many percent of the baseline's total time the policy takes less."""
        more = self.excess(cell, policy, baseline, confidence)
        if more.low is None or more.high is None:
            return Estimate(-more.mean, None, None)
        return Estimate(-more.mean, -more.high, -more.low)

    def larger(self, cell: Cell, other: Cell, baseline: str, confidence: float = CONFIDENCE) -> Estimate:
        """Return by how many points C-NMT's excess over the baseline is larger in one cell than in another."""
        (ours, theirs), (others, their_others) = (
            (self.total_s[(*where, "cnmt")], self.total_s[(*where, baseline)]) for where in (cell, other)
        )
        if len(ours) == 1:
            return Estimate(100.0 * (ours[0] / theirs[0] - others[0] / their_others[0]), None, None)
        return difference_of_changes((ours, theirs), (others, their_others), confidence)


def _totals(rows: Iterable[Mapping[str, Any]], totals_s: Mapping[RunName, Sequence[float]] | None) -> _Totals:
    return _Totals({name: (totals_s or {}).get(name, (total_s,)) for name, total_s in total_times(rows).items()})


def _reason(verdicts: Mapping[str, str], clear: str, against: str, *, replicated: bool) -> str:
    """Return why a claim over several cases has its verdict.

    Args:
        verdicts: by case.
        clear: the reason where the claim holds in all cases.
        against: begins the reason where it fails in some.
        replicated: whether intervals show how far chance moves the differences.
    """
    failing = [case for case, verdict in verdicts.items() if verdict == FAILS]
    unclear = [case for case, verdict in verdicts.items() if verdict == UNCLEAR]
    parts = [f"{against} {', '.join(failing)}"] if failing else [] if unclear else [clear]
    if unclear and not replicated:
        parts.append(f"{'' if failing else f'{clear}, but '}{_ONE_REPLICATION}")
    elif unclear:
        parts.append(f"within the noise of the replications in {', '.join(unclear)}")
    return "; ".join(parts)


def _oracle_is_least(totals: _Totals) -> dict[str, Any]:
    measured = totals.cells("oracle")
    margins = {
        (cell, policy): totals.excess(cell, policy, "oracle")
        for cell in measured
        for policy in ("edge", "cloud", "naive", "cnmt")
        if (*cell, policy) in totals.total_s
    }
    # Totals are rounded sums: allow for the last bits.
    broken = list(dict.fromkeys(cell for (cell, _), margin in margins.items() if margin.mean < -1e-10))
    why = (
        f"a policy is below the oracle in {_listed(broken)}"
        if broken
        else "a theorem back to back on one RTT clock: it holds for every request, so that chance has no part in it"
    )
    if not measured:
        why = "no row of the oracle"
    ours = f"in {len(measured) - len(broken)} of {len(measured)} cells"
    if margins:
        (cell, policy), least = min(margins.items(), key=lambda item: item[1].mean)
        ours += f", least margin {_percent(least)} ({published.LABELS[policy]}, {_name(cell)})"
    return record_of(
        "CNMT-17 (a)",
        "The oracle's total time is at most every other policy's",
        "in 6 of 6 cells",
        ours,
        (not broken) if measured else None,
        why,
        False,
    )


def _beats_both_devices(totals: _Totals, idle: Collection[Cell]) -> dict[str, Any]:
    devices = ("edge", "cloud")
    cells = totals.cells("cnmt", *devices, without=idle)
    comparisons = len(cells) * len(devices)
    savings = {
        cell: min((totals.saving(cell, "cnmt", device) for device in devices), key=lambda saving: saving.mean) for cell in cells
    }
    verdicts = {
        _name(cell): worst_verdict(
            verdict_among(partial(totals.saving, cell, "cnmt", device), chances_to_fail=comparisons, or_zero=True)
            for device in devices
        )
        for cell in cells
    }
    why = "needs rows of edge, cloud and cnmt in a cell where each device wins some requests"
    if cells:
        clear, against = "below both in every cell looked at", "slower than the better single device in"
        why = _reason(verdicts, clear, against, replicated=totals.replicated)
    return record_of(
        "CNMT-17 (b)",
        "C-NMT's total time is at most that of the better single device",
        "in 6 of 6 cells",
        _least_saving(verdicts, savings),
        worst_verdict(verdicts.values()),
        why,
        True,
    )


def _least_saving(verdicts: Mapping[str, str], savings: Mapping[Cell, Estimate]) -> str:
    """Return in how many cells the claim holds, and how much is saved where least is; without intervals by order alone."""
    if not savings:
        return "in 0 of 0 cells"
    cell, least = min(savings.items(), key=lambda item: item[1].mean)
    by_order = least.low is None
    count = sum(verdict == HOLDS or (by_order and verdict == UNCLEAR) for verdict in verdicts.values())
    where = f"in {count} of {len(savings)} cells{' by order' if by_order else ''}"
    return f"{where}, least saving {_percent(least)} ({_name(cell)})"


def _beats_naive(totals: _Totals) -> dict[str, Any]:
    savings = {cell: totals.saving(cell, "cnmt", "naive") for cell in totals.cells("cnmt", "naive")}
    whole = len(savings) == len(published.WORKLOADS) * len(published.NETWORKS)
    judged = [cell for cell in savings if whole or cell != NEAR_TIE]
    needed = len(judged) - 1 if whole else len(judged)
    spare = len(judged) - needed
    verdicts = {
        _name(cell): verdict_among(
            partial(totals.saving, cell, "cnmt", "naive"), chances_to_hold=spare + 1, chances_to_fail=max(needed, 1)
        )
        for cell in savings
    }
    outcomes = [verdicts[_name(cell)] for cell in judged]
    verdict = UNKNOWN
    if judged:
        verdict = HOLDS if outcomes.count(HOLDS) >= needed else FAILS if outcomes.count(FAILS) > spare else UNCLEAR
    why = "needs rows of naive and cnmt"
    if judged:
        why = _reason(verdicts, "in every cell looked at", "not in", replicated=totals.replicated)
    return record_of(
        "CNMT-17 (c)",
        "C-NMT's total time is below Naive's in at least five of the six cells; EN-ZH CP2 is a near tie",
        "in 5 of 6 cells, EN-ZH CP2 depends on the column",
        _least_saving(verdicts, savings),
        verdict,
        why,
        True,
    )


def _gains_follow_the_network(totals: _Totals, idle: Collection[Cell]) -> dict[str, Any]:
    at_hand = totals.cells("cnmt", "edge", "cloud", without=idle)
    slower, faster = published.NETWORKS
    workloads = [
        workload for workload in published.WORKLOADS if all((workload, network) in at_hand for network in published.NETWORKS)
    ]
    gains: list[str] = []
    differences: dict[str, list[Effect]] = {}
    for workload in workloads:
        on_slower, on_faster = (workload, slower), (workload, faster)
        server, gateway = (
            [totals.saving(cell, "cnmt", device).mean for cell in (on_slower, on_faster)] for device in ("cloud", "edge")
        )
        gains.append(f"{workload.upper()} Server {server[0]:.2f}/{server[1]:.2f}, GW {gateway[0]:.2f}/{gateway[1]:.2f}")
        # A gain is a negative excess: the larger gain on CP1 is the larger excess on CP2.
        differences[workload.upper()] = [
            partial(totals.larger, on_faster, on_slower, "cloud"),
            partial(totals.larger, on_slower, on_faster, "edge"),
        ]
    every = [difference for pair in differences.values() for difference in pair]
    verdicts = {
        name: worst_verdict(verdict_among(difference, chances_to_fail=len(every)) for difference in pair)
        for name, pair in differences.items()
    }
    ours = ""
    why = "needs both networks of a data set, and each device winning some requests on both"
    if every:
        least = min((difference(CONFIDENCE) for difference in every), key=lambda effect: effect.mean)
        ours = f"{'; '.join(gains)} (% on CP1/CP2); least difference {_percent(least, 'points')}"
        clear = f"the slower CP1 favours the gateway, the faster CP2 the server; {_HARDLY_FAILS}"
        why = _reason(verdicts, clear, "not for", replicated=totals.replicated)
    return record_of(
        "CNMT-17 (d)",
        "C-NMT's gain against the Server is larger on CP1, against the gateway larger on CP2",
        "DE-EN Server 26.15/17.65, GW 13.55/24.34; FR-EN Server 44.32/41.06, GW 12.29/18.00; "
        "EN-ZH Server 12.46/10.58, GW 21.17/35.66 (% on CP1/CP2)",
        ours,
        worst_verdict(verdicts.values()),
        why,
        True,
    )


def _lengths_explain(gaps: list[Mapping[str, Any]]) -> tuple[bool | None, str]:
    """Whether the lengths make the largest part of EN-ZH's gap in every cell, and in words; None without a gap analysis."""
    parts: dict[Cell, dict[str, float]] = {}
    for row in gaps:
        if row["workload"] == TRANSFORMER and row["removed"] not in ("nothing", "everything"):
            parts.setdefault((row["workload"], row["network"]), {})[row["removed"]] = row["change_percent"]
    if not parts:
        return None, "; what causes the gap was not looked at"
    largest = {cell: min(changes, key=changes.__getitem__) for cell, changes in parts.items()}
    shares = ", ".join(f"{_name(cell)} {-parts[cell][source]:.2f} % by {source}" for cell, source in largest.items())
    return all(source == "length regression" for source in largest.values()), f"; most of the gap: {shares}"


def _gap_larger_for_the_transformer(totals: _Totals, idle: Collection[Cell], gaps: list[Mapping[str, Any]]) -> dict[str, Any]:
    cells = totals.cells("cnmt", "oracle", without=idle)
    transformer = [cell for cell in cells if cell[0] == TRANSFORMER]
    recurrent = [cell for cell in cells if cell[0] != TRANSFORMER]
    verdict, why = UNKNOWN, "needs EN-ZH and a recurrent model beside it"
    if transformer and recurrent:
        verdict, why = _gap_verdict(totals, transformer, recurrent, gaps)
    return record_of(
        "CNMT-17 (e)",
        "C-NMT's gap to the oracle is larger for the Transformer (EN-ZH) than for the recurrent models",
        "EN-ZH +9.83, +8.77 %; DE-EN +0.11, +0.15 %; FR-EN +1.24, +1.13 %",
        ", ".join(f"{_name(cell)} {_percent(totals.excess(cell, 'cnmt', 'oracle'))}" for cell in cells),
        verdict,
        why,
        True,
    )


def _gap_verdict(
    totals: _Totals, transformer: Sequence[Cell], recurrent: Sequence[Cell], gaps: list[Mapping[str, Any]]
) -> tuple[str, str]:
    """Return the verdict on (e) and the reason: the order of the gaps beyond their noise, and the paper's cause."""
    pairs = list(product(transformer, recurrent))
    order = worst_verdict(verdict_among(partial(totals.larger, *pair, "oracle"), chances_to_fail=len(pairs)) for pair in pairs)
    by_lengths, cause = _lengths_explain(gaps)

    def gap_percent(cell: Cell) -> float:
        return totals.excess(cell, "cnmt", "oracle").mean

    least, greatest = min(transformer, key=gap_percent), max(recurrent, key=gap_percent)
    difference = totals.larger(least, greatest, "oracle")
    above = "above" if difference.mean > 0.0 else "not above"
    why = (
        f"EN-ZH's least gap, {gap_percent(least):.2f} %, is {above} the greatest of the others, {gap_percent(greatest):.2f} %: "
        f"difference {_percent(difference, 'points')}"
    )
    if order == HOLDS:
        why += ", beyond the noise of the replications as in all other pairs of cells"
    elif order == UNCLEAR:
        why += ", but " + ("within the noise of the replications" if totals.replicated else _ONE_REPLICATION)
    why += cause
    if order == FAILS:
        return FAILS, why
    if by_lengths is None:
        return UNKNOWN, why
    if not by_lengths:
        return FAILS, f"{why}, which is not the paper's cause: that EN-ZH's lengths are harder to predict"
    return order, why


def reductions(
    rows: Iterable[Mapping[str, Any]],
    profile_kinds: Collection[str] = (),
    totals_s: Mapping[RunName, Sequence[float]] | None = None,
) -> dict[str, Any]:
    """Return the record of the paper's headline figures: how much C-NMT saves at best. Their sign is the claim, not their size.

    The best of several cells is picked after the fact, so that a saving counts beyond an interval that is widened for their
    number (`claim.verdict_among`). Arguments as of `evaluate`.
    """
    totals = _totals(rows, totals_s)
    data_sets: dict[str, list[tuple[Cell, str]]] = {}
    for cell in totals.cells("cnmt", "edge", "cloud"):
        data_sets.setdefault(cell[0].upper(), []).extend((cell, device) for device in ("edge", "cloud"))
    at_best = {
        name: max((totals.saving(cell, "cnmt", device) for cell, device in pairs), key=lambda saving: saving.mean)
        for name, pairs in data_sets.items()
    }
    ours = [f"{name} {_percent(saving)}" for name, saving in at_best.items()]
    # In points of the Server column, as the paper counts its 21 % (CNMT-20).
    ahead_points = {
        cell: 100.0 * (totals.mean_s(cell, "naive") - totals.mean_s(cell, "cnmt")) / totals.mean_s(cell, "cloud")
        for cell in totals.cells("cnmt", "naive", "cloud")
    }
    if ahead_points:
        cell = max(ahead_points, key=ahead_points.__getitem__)
        ours.append(f"beyond Naive {ahead_points[cell]:.2f} points of the Server column ({_name(cell)})")
    verdict, why = UNKNOWN, "needs rows of edge, cloud, naive and cnmt"
    if ahead_points and data_sets:
        candidates = data_sets | {"against Naive": [(cell, "naive") for cell in ahead_points]}
        verdicts = {
            name: _any_saving([partial(totals.saving, cell, "cnmt", baseline) for cell, baseline in pairs], len(candidates))
            for name, pairs in candidates.items()
        }
        clear = "the sign is the claim; sizes hang on the devices"
        verdict = worst_verdict(verdicts.values())
        why = _reason(verdicts, clear, "no saving for", replicated=totals.replicated)
    record = record_of(
        "CNMT-17 (reductions)",
        "At best C-NMT saves time against a single device on every data set, and against Naive",
        "up to DE-EN 26.15, FR-EN 44.32, EN-ZH 35.66 %; beyond Naive 21.37 points of the Server column (DE-EN CP1)",
        ", ".join(ours),
        verdict,
        why,
        True,
    )
    basis = basis_of(profile_kinds)
    if basis == "fitted" and verdict != UNKNOWN:
        record["why"] += f"; {FITTED}"
    return record | {"basis": basis}


def _any_saving(savings: Sequence[Effect], claims: int) -> str:
    """Return the verdict on "at least one of these savings is above 0", which is one of several claims that must all hold."""
    verdicts = [verdict_among(saving, chances_to_hold=len(savings), chances_to_fail=claims) for saving in savings]
    return HOLDS if HOLDS in verdicts else UNCLEAR if UNCLEAR in verdicts else FAILS
