"""The claims of the C-NMT paper as signs and orders, and what a run says of them (CNMT-17, CNMT-20)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simnmt.reproduce.cnmt import published
from simnmt.reproduce.cnmt.table_one import total_times
from simnmt.reproduce.verdicts import FAILS, HOLDS, UNCLEAR, UNKNOWN, sign_verdict, worst
from simnmt.results.statistics import Estimate
from simnmt.results.wording import percent_interval

Cell = tuple[str, str]
"""(workload, network)."""

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
    comparisons: Iterable[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return one record per claim (a) to (e): id, claim, published, ours, verdict, why, hardware_dependent, basis.

    A claim holds only beyond the noise: where the interval of every paired difference lies on the claim's side of 0
    (`verdicts.sign_verdict`). Without replications an order may refute a claim, not more. (a) needs no interval: it is a
    theorem, request by request. Cells where the oracle uses a single device are left out of (b), (d) and (e): nothing can be
    gained there.

    Args:
        rows: a run's rows, back to back and without queues.
        profile_kinds: the kinds of the device profiles that it used. `basis` is "fitted" if any of them was inferred, else
            "measured" or "synthetic" by the profiles, "unknown" if none is given.
        gaps: the gap analysis of the same run, for the cause in (e): the paper explains the Transformer's gap by its lengths.
            Without it the order of the gaps may refute (e), not more.
        comparisons: the run's paired comparisons (`RunResult.comparisons`), whose intervals several replications give.
    """
    rows = list(rows)
    totals = _totals(rows, comparisons)
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
    """A record of one claim; `holds` is None where it cannot be told, or the verdict itself."""
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


def _percent(effect: Estimate) -> str:
    return percent_interval(effect.mean, effect.low, effect.high)


@dataclass(frozen=True, slots=True)
class _Totals:
    """Total times of a run of Table I, and how far its replications show the differences between policies."""

    total_s: Mapping[tuple[str, str, str], float]
    """By workload, network and policy."""
    changes: Mapping[tuple[str, str, str, str], Estimate]
    """Percent, by workload, network, policy and baseline; empty where only totals are at hand."""

    def cells(self, *policies: str, without: Collection[Cell] = ()) -> list[Cell]:
        """Return the cells that have rows of all these policies, in the table's order."""
        every = ((workload, network) for workload in published.WORKLOADS for network in published.NETWORKS)
        return [cell for cell in every if cell not in without and all((*cell, policy) in self.total_s for policy in policies)]

    def excess(self, cell: Cell, policy: str, baseline: str) -> Estimate:
        """Return by how many percent of the baseline's total time the policy takes more."""
        known = self.changes.get((*cell, policy, baseline))
        if known is not None:
            return known
        return Estimate(100 * (self.total_s[(*cell, policy)] / self.total_s[(*cell, baseline)] - 1), None, None)

    def saving(self, cell: Cell, policy: str, baseline: str) -> Estimate:
        """Return by how many percent of the baseline's total time the policy takes less."""
        more = self.excess(cell, policy, baseline)
        if more.low is None or more.high is None:
            return Estimate(-more.mean, None, None)
        return Estimate(-more.mean, -more.high, -more.low)


def _totals(rows: Iterable[Mapping[str, Any]], comparisons: Iterable[Mapping[str, Any]]) -> _Totals:
    changes = {
        (row["workload"], row["network"], row["policy"], row["baseline"]): Estimate(
            row["change_percent"], row["low_percent"], row["high_percent"]
        )
        for row in comparisons
    }
    return _Totals(total_times(rows), changes)


def _ends(effects: Iterable[Estimate]) -> list[tuple[float, float]] | None:
    """Return the ends of the effects' intervals; None where one has no interval."""
    ends: list[tuple[float, float]] = []
    for effect in effects:
        if effect.low is None or effect.high is None:
            return None
        ends.append((effect.low, effect.high))
    return ends


def _apart(greater: Sequence[Estimate], less: Sequence[Estimate]) -> Estimate:
    """Return by how much the least of some effects exceeds the greatest of others.

    The interval reaches from what the nearest ends of their intervals leave to what the farthest do: at least 95 %.
    """
    mean = min(effect.mean for effect in greater) - max(effect.mean for effect in less)
    upper, lower = _ends(greater), _ends(less)
    if upper is None or lower is None:
        return Estimate(mean, None, None)
    least = min(low for low, _ in upper) - max(high for _, high in lower)
    most = min(high for _, high in upper) - max(low for low, _ in lower)
    return Estimate(mean, least, most)


def _reason(verdicts: Mapping[str, str], effects: Iterable[Estimate], clear: str, against: str) -> str:
    """Return why a claim over several cases has its verdict.

    Args:
        verdicts: by case.
        effects: what the verdicts rest on.
        clear: the reason where the claim holds in all cases.
        against: begins the reason where it fails in some.
    """
    failing = [case for case, verdict in verdicts.items() if verdict == FAILS]
    unclear = [case for case, verdict in verdicts.items() if verdict == UNCLEAR]
    parts = [f"{against} {', '.join(failing)}"] if failing else [] if unclear else [clear]
    if unclear and any(effect.low is None for effect in effects):
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
    savings = {
        cell: min((totals.saving(cell, "cnmt", device) for device in ("edge", "cloud")), key=lambda saving: saving.mean)
        for cell in totals.cells("cnmt", "edge", "cloud", without=idle)
    }
    verdicts = {
        _name(cell): worst(sign_verdict(totals.saving(cell, "cnmt", device), or_zero=True) for device in ("edge", "cloud"))
        for cell in savings
    }
    clear = "below both in every cell looked at"
    why = _reason(verdicts, savings.values(), clear, "slower than the better single device in")
    if not savings:
        why = "needs rows of edge, cloud and cnmt in a cell where each device wins some requests"
    return record_of(
        "CNMT-17 (b)",
        "C-NMT's total time is at most that of the better single device",
        "in 6 of 6 cells",
        _least_saving(verdicts, savings),
        worst(verdicts.values()),
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
    by_cell = {cell: sign_verdict(saving) for cell, saving in savings.items()}
    failing = {cell for cell, verdict in by_cell.items() if verdict == FAILS}
    open_cells = {cell for cell, verdict in by_cell.items() if verdict != HOLDS}

    def allowed(cells: Collection[Cell]) -> bool:
        return len(cells) <= 1 if len(savings) == 6 else set(cells) <= {NEAR_TIE}

    verdict = UNKNOWN
    if savings:
        verdict = HOLDS if allowed(open_cells) else UNCLEAR if allowed(failing) else FAILS
    verdicts = {_name(cell): own for cell, own in by_cell.items()}
    return record_of(
        "CNMT-17 (c)",
        "C-NMT's total time is below Naive's in at least five of the six cells; EN-ZH CP2 is a near tie",
        "in 5 of 6 cells, EN-ZH CP2 depends on the column",
        _least_saving(verdicts, savings),
        verdict,
        _reason(verdicts, savings.values(), "in every cell looked at", "not in") if savings else "needs rows of naive and cnmt",
        True,
    )


def _gains_follow_the_network(totals: _Totals, idle: Collection[Cell]) -> dict[str, Any]:
    at_hand = totals.cells("cnmt", "edge", "cloud", without=idle)
    verdicts: dict[str, str] = {}
    effects: list[Estimate] = []
    gains: list[str] = []
    for workload in published.WORKLOADS:
        if any((workload, network) not in at_hand for network in published.NETWORKS):
            continue
        server, gateway = (
            [totals.saving((workload, network), "cnmt", device) for network in published.NETWORKS]
            for device in ("cloud", "edge")
        )
        gains.append(
            f"{workload.upper()} Server {server[0].mean:.2f}/{server[1].mean:.2f}, "
            f"GW {gateway[0].mean:.2f}/{gateway[1].mean:.2f}"
        )
        differences = [_apart(server[:1], server[1:]), _apart(gateway[1:], gateway[:1])]
        verdicts[workload.upper()] = worst(map(sign_verdict, differences))
        effects += differences
    ours = ""
    if effects:
        least = min(effects, key=lambda effect: effect.mean)
        ours = f"{'; '.join(gains)} (% on CP1/CP2); least difference {_percent(least).replace(' %', ' points')}"
    clear = f"the slower CP1 favours the gateway, the faster CP2 the server; {_HARDLY_FAILS}"
    why = "needs both networks of a data set, and each device winning some requests on both"
    return record_of(
        "CNMT-17 (d)",
        "C-NMT's gain against the Server is larger on CP1, against the gateway larger on CP2",
        "DE-EN Server 26.15/17.65, GW 13.55/24.34; FR-EN Server 44.32/41.06, GW 12.29/18.00; "
        "EN-ZH Server 12.46/10.58, GW 21.17/35.66 (% on CP1/CP2)",
        ours,
        worst(verdicts.values()),
        _reason(verdicts, effects, clear, "not for") if verdicts else why,
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
    gap = {cell: totals.excess(cell, "cnmt", "oracle") for cell in totals.cells("cnmt", "oracle", without=idle)}
    transformer = [own for cell, own in gap.items() if cell[0] == TRANSFORMER]
    recurrent = [own for cell, own in gap.items() if cell[0] != TRANSFORMER]
    if transformer and recurrent:
        verdict, why = _gap_verdict(transformer, recurrent, gaps)
    else:
        verdict, why = UNKNOWN, "needs EN-ZH and a recurrent model beside it"
    return record_of(
        "CNMT-17 (e)",
        "C-NMT's gap to the oracle is larger for the Transformer (EN-ZH) than for the recurrent models",
        "EN-ZH +9.83, +8.77 %; DE-EN +0.11, +0.15 %; FR-EN +1.24, +1.13 %",
        ", ".join(f"{_name(cell)} {_percent(own)}" for cell, own in gap.items()),
        verdict,
        why,
        True,
    )


def _gap_verdict(
    transformer: Sequence[Estimate], recurrent: Sequence[Estimate], gaps: list[Mapping[str, Any]]
) -> tuple[str, str]:
    """Return the verdict on (e) and the reason: the order of the gaps beyond their noise, and the paper's cause."""
    apart = _apart(transformer, recurrent)
    order = sign_verdict(apart)
    by_lengths, cause = _lengths_explain(gaps)
    least, greatest = min(own.mean for own in transformer), max(own.mean for own in recurrent)
    why = f"its least gap, {least:.2f} %, is {'above' if apart.mean > 0.0 else 'not above'} their greatest, {greatest:.2f} %"
    if order == HOLDS:
        why += ", and so are their intervals over replications"
    elif order == UNCLEAR:
        why += ", but " + (_ONE_REPLICATION if apart.low is None else "their intervals over replications overlap")
    why += cause
    if order == FAILS:
        return FAILS, why
    if by_lengths is None:
        return UNKNOWN, why
    if not by_lengths:
        return FAILS, f"{why}, which is not the paper's cause: that EN-ZH's lengths are harder to predict"
    return order, why


def reductions(
    rows: Iterable[Mapping[str, Any]], profile_kinds: Collection[str] = (), comparisons: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the record of the paper's headline figures: how much C-NMT saves at best. Their sign is the claim, not their size.

    Arguments as of `evaluate`.
    """
    totals = _totals(rows, comparisons)
    best: dict[str, Estimate] = {}
    for cell in totals.cells("cnmt", "edge", "cloud"):
        for device in ("edge", "cloud"):
            saving = totals.saving(cell, "cnmt", device)
            name = cell[0].upper()
            if name not in best or saving.mean > best[name].mean:
                best[name] = saving
    # In points of the Server column, as the paper counts its 21 % (CNMT-20).
    ahead = {
        cell: 100 * (totals.total_s[(*cell, "naive")] - totals.total_s[(*cell, "cnmt")]) / totals.total_s[(*cell, "cloud")]
        for cell in totals.cells("cnmt", "naive", "cloud")
    }
    parts = [f"{name} {_percent(saving)}" for name, saving in best.items()]
    verdict, why = UNKNOWN, "needs rows of edge, cloud, naive and cnmt"
    if ahead:
        cell = max(ahead, key=ahead.__getitem__)
        parts.append(f"beyond Naive {ahead[cell]:.2f} points of the Server column ({_name(cell)})")
        best[f"against Naive ({_name(cell)})"] = totals.saving(cell, "cnmt", "naive")
        if len(best) > 1:
            verdicts = {name: sign_verdict(saving) for name, saving in best.items()}
            clear = "the sign is the claim; sizes hang on the devices"
            verdict, why = worst(verdicts.values()), _reason(verdicts, best.values(), clear, "no saving for")
    record = record_of(
        "CNMT-17 (reductions)",
        "At best C-NMT saves time against a single device on every data set, and against Naive",
        "up to DE-EN 26.15, FR-EN 44.32, EN-ZH 35.66 %; beyond Naive 21.37 points of the Server column (DE-EN CP1)",
        ", ".join(parts),
        verdict,
        why,
        True,
    )
    basis = basis_of(profile_kinds)
    if basis == "fitted" and verdict != UNKNOWN:
        record["why"] += f"; {FITTED}"
    return record | {"basis": basis}
