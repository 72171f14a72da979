"""The claims of the C-NMT paper as signs and orders, and the verdicts of a run on them (CNMT-17, CNMT-20)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from simnmt.papers.cnmt import published
from simnmt.papers.cnmt.table_one import Cell, TableRun, name_cell
from simnmt.papers.kit.claim import FAILS, HOLDS, UNCLEAR, UNKNOWN, ClaimRecord, Effect, holds_if, verdict_among, worst_verdict
from simnmt.results.number_text import percent_interval
from simnmt.results.statistics import CONFIDENCE, Estimate

TRANSFORMER = "en-zh"
"""The data set that the paper translates by a Transformer."""
NEAR_TIE: Cell = ("en-zh", "cp2")
"""Where the published Naive and C-NMT cannot be told apart: who leads depends on the column."""

_HARDLY_FAILS = "nearly a theorem where the networks differ in hardly more than their level, so this tests little"

_ONE_REPLICATION = "one replication does not show how far chance moves it"

FITTED = "fitted: the profiles were inferred from Table I itself, so this shows consistency, not proof"
"""Ends the `why` of what rests on inferred profiles."""


def evaluate(run: TableRun, profile_kinds: Collection[str] = (), *, headline: bool = False) -> list[ClaimRecord]:
    """Return one record per claim (a) to (e), and with `headline` one of the paper's reductions.

    A claim holds or fails only beyond the noise of the differences that it is about, paired by replication: changes of total
    time for (b) and (c), differences between two changes for (d) and (e). Either verdict is wrong in at most 2.5 % of runs, as
    far as the intervals cover what they promise: where any of several differences may decide, wider intervals count
    (`claim.verdict_among`). Without replications an order may refute a claim, not more. (a) needs no interval: it is a
    theorem, request by request. Cells where the oracle uses a single device are left out of (b), (d) and (e): nothing can be
    gained there.

    Args:
        run: back to back and without queues. Without its gap analysis the order of the gaps may refute (e), not more: the
            paper explains the Transformer's gap by its lengths.
        profile_kinds: the kinds of the device profiles that it used. `basis` is "fitted" if any of them was inferred, else
            "measured" or "synthetic" by the profiles, "unknown" if none is given.
        headline: judge how much C-NMT saves at best, too.
    """
    records = [
        _oracle_is_least(run),
        _beats_both_devices(run),
        _beats_naive(run),
        _gains_follow_the_network(run),
        _gap_larger_for_the_transformer(run),
        *([_reductions(run)] if headline else []),
    ]
    basis = basis_of(profile_kinds)
    return [
        replace(record, basis=basis, why=f"{record.why}; {FITTED}")
        if basis == "fitted" and record.hardware_dependent and record.verdict != UNKNOWN
        else replace(record, basis=basis)
        for record in records
    ]


def basis_of(profile_kinds: Collection[str]) -> str:
    """Return what claims rest on: `fitted` if any profile was inferred, else `measured` or `synthetic`, or `unknown`."""
    if any(kind.startswith("inferred") for kind in profile_kinds):
        return "fitted"
    if not profile_kinds:
        return "unknown"
    return "measured" if set(profile_kinds) == {"measured"} else "synthetic"


def _claim(
    letter: str, text: str, theirs: str, ours: str, verdict: str, why: str, *, hardware_dependent: bool = True
) -> ClaimRecord:
    return ClaimRecord(f"CNMT-17 ({letter})", text, theirs, ours, verdict, why, hardware_dependent=hardware_dependent)


def _listed(cells: Iterable[Cell]) -> str:
    return ", ".join(map(name_cell, cells))


def _percent(effect: Estimate, unit: str = "%") -> str:
    return percent_interval(effect.mean, effect.low, effect.high, unit=unit)


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


def _oracle_is_least(run: TableRun) -> ClaimRecord:
    measured = run.cells("oracle")
    margins = {
        (cell, policy): run.excess(cell, policy, "oracle")
        for cell in measured
        for policy in ("edge", "cloud", "naive", "cnmt")
        if (*cell, policy) in run.total_s
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
        ours += f", least margin {_percent(least)} ({published.LABELS[policy]}, {name_cell(cell)})"
    return _claim(
        "a",
        "The oracle's total time is at most every other policy's",
        "in 6 of 6 cells",
        ours,
        holds_if(not broken) if measured else UNKNOWN,
        why,
        hardware_dependent=False,
    )


def _beats_both_devices(run: TableRun) -> ClaimRecord:
    devices = ("edge", "cloud")
    cells = run.cells("cnmt", *devices, without=run.idle)
    comparisons = len(cells) * len(devices)
    savings = {
        cell: min((run.saving(cell, "cnmt", device) for device in devices), key=lambda saving: saving.mean) for cell in cells
    }
    verdicts = {
        name_cell(cell): worst_verdict(
            verdict_among(partial(run.saving, cell, "cnmt", device), chances_to_fail=comparisons, or_zero=True)
            for device in devices
        )
        for cell in cells
    }
    why = "needs rows of edge, cloud and cnmt in a cell where each device wins some requests"
    if cells:
        clear, against = "below both in every cell looked at", "slower than the better single device in"
        why = _reason(verdicts, clear, against, replicated=run.replicated)
    return _claim(
        "b",
        "C-NMT's total time is at most that of the better single device",
        "in 6 of 6 cells",
        _least_saving(verdicts, savings),
        worst_verdict(verdicts.values()),
        why,
    )


def _least_saving(verdicts: Mapping[str, str], savings: Mapping[Cell, Estimate]) -> str:
    """Return in how many cells the claim holds, and how much is saved where least is; without intervals by order alone."""
    if not savings:
        return "in 0 of 0 cells"
    cell, least = min(savings.items(), key=lambda item: item[1].mean)
    by_order = least.low is None
    count = sum(verdict == HOLDS or (by_order and verdict == UNCLEAR) for verdict in verdicts.values())
    where = f"in {count} of {len(savings)} cells{' by order' if by_order else ''}"
    return f"{where}, least saving {_percent(least)} ({name_cell(cell)})"


def _beats_naive(run: TableRun) -> ClaimRecord:
    savings = {cell: run.saving(cell, "cnmt", "naive") for cell in run.cells("cnmt", "naive")}
    whole = len(savings) == len(published.WORKLOADS) * len(published.NETWORKS)
    judged = [cell for cell in savings if whole or cell != NEAR_TIE]
    needed = len(judged) - 1 if whole else len(judged)
    spare = len(judged) - needed
    verdicts = {
        name_cell(cell): verdict_among(
            partial(run.saving, cell, "cnmt", "naive"), chances_to_hold=spare + 1, chances_to_fail=max(needed, 1)
        )
        for cell in savings
    }
    outcomes = [verdicts[name_cell(cell)] for cell in judged]
    verdict = UNKNOWN
    if judged:
        verdict = HOLDS if outcomes.count(HOLDS) >= needed else FAILS if outcomes.count(FAILS) > spare else UNCLEAR
    why = "needs rows of naive and cnmt"
    if judged:
        why = _reason(verdicts, "in every cell looked at", "not in", replicated=run.replicated)
    return _claim(
        "c",
        "C-NMT's total time is below Naive's in at least five of the six cells; EN-ZH CP2 is a near tie",
        "in 5 of 6 cells, EN-ZH CP2 depends on the column",
        _least_saving(verdicts, savings),
        verdict,
        why,
    )


def _gains_follow_the_network(run: TableRun) -> ClaimRecord:
    at_hand = run.cells("cnmt", "edge", "cloud", without=run.idle)
    slower, faster = published.NETWORKS
    workloads = [
        workload for workload in published.WORKLOADS if all((workload, network) in at_hand for network in published.NETWORKS)
    ]
    gains: list[str] = []
    differences: dict[str, list[Effect]] = {}
    for workload in workloads:
        on_slower, on_faster = (workload, slower), (workload, faster)
        server, gateway = (
            [run.saving(cell, "cnmt", device).mean for cell in (on_slower, on_faster)] for device in ("cloud", "edge")
        )
        gains.append(f"{workload.upper()} Server {server[0]:.2f}/{server[1]:.2f}, GW {gateway[0]:.2f}/{gateway[1]:.2f}")
        # A gain is a negative excess: the larger gain on CP1 is the larger excess on CP2.
        differences[workload.upper()] = [
            partial(run.larger, on_faster, on_slower, "cloud"),
            partial(run.larger, on_slower, on_faster, "edge"),
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
        why = _reason(verdicts, clear, "not for", replicated=run.replicated)
    return _claim(
        "d",
        "C-NMT's gain against the Server is larger on CP1, against the gateway larger on CP2",
        "DE-EN Server 26.15/17.65, GW 13.55/24.34; FR-EN Server 44.32/41.06, GW 12.29/18.00; "
        "EN-ZH Server 12.46/10.58, GW 21.17/35.66 (% on CP1/CP2)",
        ours,
        worst_verdict(verdicts.values()),
        why,
    )


def _lengths_explain(run: TableRun) -> tuple[bool | None, str]:
    """Return whether the lengths make the largest part of EN-ZH's gap in every cell, and the shares; None if unknown."""
    parts = {cell: changes for cell, changes in run.gap_percent.items() if cell[0] == TRANSFORMER}
    if not parts:
        return None, "; what causes the gap was not looked at"
    largest = {cell: min(changes, key=changes.__getitem__) for cell, changes in parts.items()}
    shares = ", ".join(f"{name_cell(cell)} {-parts[cell][source]:.2f} % by {source}" for cell, source in largest.items())
    return all(source == "length regression" for source in largest.values()), f"; most of the gap: {shares}"


def _gap_larger_for_the_transformer(run: TableRun) -> ClaimRecord:
    cells = run.cells("cnmt", "oracle", without=run.idle)
    transformer = [cell for cell in cells if cell[0] == TRANSFORMER]
    recurrent = [cell for cell in cells if cell[0] != TRANSFORMER]
    verdict, why = UNKNOWN, "needs EN-ZH and a recurrent model beside it"
    if transformer and recurrent:
        verdict, why = _gap_verdict(run, transformer, recurrent)
    return _claim(
        "e",
        "C-NMT's gap to the oracle is larger for the Transformer (EN-ZH) than for the recurrent models",
        "EN-ZH +9.83, +8.77 %; DE-EN +0.11, +0.15 %; FR-EN +1.24, +1.13 %",
        ", ".join(f"{name_cell(cell)} {_percent(run.excess(cell, 'cnmt', 'oracle'))}" for cell in cells),
        verdict,
        why,
    )


def _gap_verdict(run: TableRun, transformer: Sequence[Cell], recurrent: Sequence[Cell]) -> tuple[str, str]:
    """Return the verdict on (e) and the reason: the order of the gaps beyond their noise, and the paper's cause."""
    pairs = list(product(transformer, recurrent))
    order = worst_verdict(verdict_among(partial(run.larger, *pair, "oracle"), chances_to_fail=len(pairs)) for pair in pairs)
    by_lengths, cause = _lengths_explain(run)

    def gap_percent(cell: Cell) -> float:
        return run.excess(cell, "cnmt", "oracle").mean

    least, greatest = min(transformer, key=gap_percent), max(recurrent, key=gap_percent)
    difference = run.larger(least, greatest, "oracle")
    above = "above" if difference.mean > 0.0 else "not above"
    why = (
        f"EN-ZH's least gap, {gap_percent(least):.2f} %, is {above} the greatest of the others, {gap_percent(greatest):.2f} %: "
        f"difference {_percent(difference, 'points')}"
    )
    if order == HOLDS:
        why += ", beyond the noise of the replications as in all other pairs of cells"
    elif order == UNCLEAR:
        why += ", but " + ("within the noise of the replications" if run.replicated else _ONE_REPLICATION)
    why += cause
    if order == FAILS:
        return FAILS, why
    if by_lengths is None:
        return UNKNOWN, why
    if not by_lengths:
        return FAILS, f"{why}, which is not the paper's cause: that EN-ZH's lengths are harder to predict"
    return order, why


def _reductions(run: TableRun) -> ClaimRecord:
    """Judge the paper's headline figures, how much C-NMT saves at best: their sign is the claim, not their size.

    The best of several cells is picked after the fact, so that a saving counts beyond an interval that is widened for their
    number (`claim.verdict_among`).
    """
    data_sets: dict[str, list[tuple[Cell, str]]] = {}
    for cell in run.cells("cnmt", "edge", "cloud"):
        data_sets.setdefault(cell[0].upper(), []).extend((cell, device) for device in ("edge", "cloud"))
    at_best = {
        name: max((run.saving(cell, "cnmt", device) for cell, device in pairs), key=lambda saving: saving.mean)
        for name, pairs in data_sets.items()
    }
    ours = [f"{name} {_percent(saving)}" for name, saving in at_best.items()]
    # In points of the Server column, as the paper counts its 21 % (CNMT-20).
    ahead_points = {
        cell: 100.0 * (run.mean_s(cell, "naive") - run.mean_s(cell, "cnmt")) / run.mean_s(cell, "cloud")
        for cell in run.cells("cnmt", "naive", "cloud")
    }
    if ahead_points:
        cell = max(ahead_points, key=ahead_points.__getitem__)
        ours.append(f"beyond Naive {ahead_points[cell]:.2f} points of the Server column ({name_cell(cell)})")
    verdict, why = UNKNOWN, "needs rows of edge, cloud, naive and cnmt"
    if ahead_points and data_sets:
        candidates = data_sets | {"against Naive": [(cell, "naive") for cell in ahead_points]}
        verdicts = {
            name: _any_saving([partial(run.saving, cell, "cnmt", baseline) for cell, baseline in pairs], len(candidates))
            for name, pairs in candidates.items()
        }
        clear = "the sign is the claim; sizes hang on the devices"
        verdict = worst_verdict(verdicts.values())
        why = _reason(verdicts, clear, "no saving for", replicated=run.replicated)
    return _claim(
        "reductions",
        "At best C-NMT saves time against a single device on every data set, and against Naive",
        "up to DE-EN 26.15, FR-EN 44.32, EN-ZH 35.66 %; beyond Naive 21.37 points of the Server column (DE-EN CP1)",
        ", ".join(ours),
        verdict,
        why,
    )


def _any_saving(savings: Sequence[Effect], claims: int) -> str:
    """Return the verdict on "at least one of these savings is above 0", which is one of several claims that must all hold."""
    verdicts = [verdict_among(saving, chances_to_hold=len(savings), chances_to_fail=claims) for saving in savings]
    return HOLDS if HOLDS in verdicts else UNCLEAR if UNCLEAR in verdicts else FAILS
