"""The claims of the C-NMT paper as signs and orders, and the verdicts of a run on them (CNMT-17, CNMT-20)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from simnmt.papers.cnmt import published
from simnmt.papers.cnmt.table_one import Cell, TableRun, name_cell
from simnmt.papers.kit.claim import (
    FAILS,
    HOLDS,
    UNCLEAR,
    UNKNOWN,
    Claim,
    ClaimRecord,
    Effect,
    Judgement,
    Undecided,
    holds_if,
    verdict_among,
    worst_verdict,
)
from simnmt.results.number_text import percent_interval
from simnmt.results.statistics import CONFIDENCE, Estimate

TRANSFORMER = "en-zh"
"""The data set that the paper translates by a Transformer."""
NEAR_TIE: Cell = ("en-zh", "cp2")
"""The cell where the published Naive and C-NMT cannot be told apart: the winner depends on the column."""
DEVICES = ("edge", "cloud")

_HARDLY_FAILS = "nearly a theorem where the networks differ in hardly more than their level, so this tests little"
_ONE_REPLICATION = "one replication does not show how far chance moves it"
FITTED = "fitted: the profiles were inferred from Table I itself, so this shows consistency, not proof"
"""Last sentence of a reason that rests on inferred profiles."""


def evaluate(run: TableRun, profile_kinds: Collection[str] = (), *, headline: bool = False) -> list[ClaimRecord]:
    """Return one record per claim (a) to (e), and with `headline` one of the paper's reductions.

    A claim holds or fails only beyond the noise of its differences, paired by replication: changes of total time for (b) and
    (c), differences between two changes for (d) and (e). Either verdict is wrong in at most 2.5 % of runs, as far as the
    intervals have their nominal coverage: where any of several differences may decide, wider intervals count
    (`claim.verdict_among`). Without replications an order may refute a claim, not more. (a) needs no interval: it is a
    theorem, request by request. Cells where the oracle uses a single device are left out of (b), (d) and (e): nothing can be
    gained there.

    Args:
        run: back to back and without queues. Without its gap analysis the order of the gaps may refute (e), not more: the
            paper explains the Transformer's gap by its lengths.
        profile_kinds: the kinds of the device profiles that it used. `basis` is "fitted" if any of them was inferred, else
            "measured" or "synthetic" by the profiles, "unknown" if none is given.
        headline: judge the largest savings, too.
    """
    basis = basis_of(profile_kinds)
    records = []
    for claim in (*_CLAIMS, _HEADLINE) if headline else _CLAIMS:
        record = claim.record(run, device="", basis=basis)
        if basis == "fitted" and claim.hardware_dependent and record.verdict != UNKNOWN:
            record = replace(record, why=f"{record.why}; {FITTED}")
        records.append(record)
    return records


def basis_of(profile_kinds: Collection[str]) -> str:
    """Return the basis of claims: `fitted` if any profile was inferred, else `measured` or `synthetic`, or `unknown`."""
    if any(kind.startswith("inferred") for kind in profile_kinds):
        return "fitted"
    if not profile_kinds:
        return "unknown"
    return "measured" if set(profile_kinds) == {"measured"} else "synthetic"


def _percent(effect: Estimate, unit: str = "%") -> str:
    return percent_interval(effect.mean, effect.low, effect.high, unit=unit)


def _least(effects: Iterable[Estimate]) -> Estimate:
    return min(effects, key=lambda effect: effect.mean)


def _reason(run: TableRun, verdicts: Mapping[str, str], clear: str, against: str) -> str:
    """Return the reason of the verdict on a claim over several cases.

    Args:
        run: the run, whose replications show how far chance moves the differences.
        verdicts: verdicts by case.
        clear: the reason if the claim holds in all cases.
        against: the beginning of the reason if it fails in some.
    """
    failing = [case for case, verdict in verdicts.items() if verdict == FAILS]
    unclear = [case for case, verdict in verdicts.items() if verdict == UNCLEAR]
    parts = [f"{against} {', '.join(failing)}"] if failing else [] if unclear else [clear]
    if unclear and not run.replicated:
        parts.append(f"{'' if failing else f'{clear}, but '}{_ONE_REPLICATION}")
    elif unclear:
        parts.append(f"within the noise of the replications in {', '.join(unclear)}")
    return "; ".join(parts)


def _oracle_is_least(run: TableRun) -> Judgement:
    cells = run.cells("oracle")
    if not cells:
        raise Undecided("no row of the oracle")
    margins = {
        (cell, policy): run.excess(cell, policy, "oracle")
        for cell in cells
        for policy in ("edge", "cloud", "naive", "cnmt")
        if (*cell, policy) in run.total_s
    }
    # Totals are rounded sums: allow for the last bits.
    broken = list(dict.fromkeys(cell for (cell, _), margin in margins.items() if margin.mean < -1e-10))
    ours = f"in {len(cells) - len(broken)} of {len(cells)} cells"
    if margins:
        (cell, policy), least = min(margins.items(), key=lambda item: item[1].mean)
        ours += f", least margin {_percent(least)} ({published.LABELS[policy]}, {name_cell(cell)})"
    why = "a theorem back to back on one RTT clock: it holds for every request, so that chance has no part in it"
    if broken:
        why = f"a policy is below the oracle in {', '.join(map(name_cell, broken))}"
    return Judgement(ours, holds_if(not broken), why)


def _beats_both_devices(run: TableRun) -> Judgement:
    cells = run.cells("cnmt", *DEVICES, without=run.idle)
    if not cells:
        raise Undecided("needs rows of edge, cloud and cnmt in a cell where each device wins some requests")
    savings = {cell: _least(run.saving(cell, "cnmt", device) for device in DEVICES) for cell in cells}
    verdicts = {
        name_cell(cell): worst_verdict(
            verdict_among(partial(run.saving, cell, "cnmt", device), chances_to_fail=len(cells) * len(DEVICES), or_zero=True)
            for device in DEVICES
        )
        for cell in cells
    }
    why = _reason(run, verdicts, "below both in every cell looked at", "slower than the better single device in")
    return Judgement(_least_saving(verdicts, savings), worst_verdict(verdicts.values()), why)


def _least_saving(verdicts: Mapping[str, str], savings: Mapping[Cell, Estimate]) -> str:
    """Return the number of cells where the claim holds, and the least saving; without intervals by order alone."""
    cell, least = min(savings.items(), key=lambda item: item[1].mean)
    by_order = least.low is None
    count = sum(verdict == HOLDS or (by_order and verdict == UNCLEAR) for verdict in verdicts.values())
    where = f"in {count} of {len(savings)} cells{' by order' if by_order else ''}"
    return f"{where}, least saving {_percent(least)} ({name_cell(cell)})"


def _beats_naive(run: TableRun) -> Judgement:
    savings = {cell: run.saving(cell, "cnmt", "naive") for cell in run.cells("cnmt", "naive")}
    whole = len(savings) == len(published.WORKLOADS) * len(published.NETWORKS)
    judged = [cell for cell in savings if whole or cell != NEAR_TIE]
    if not judged:
        raise Undecided("needs rows of naive and cnmt")
    spare = 1 if whole else 0
    needed = len(judged) - spare
    verdicts = {
        name_cell(cell): verdict_among(
            partial(run.saving, cell, "cnmt", "naive"), chances_to_hold=spare + 1, chances_to_fail=max(needed, 1)
        )
        for cell in savings
    }
    outcomes = [verdicts[name_cell(cell)] for cell in judged]
    verdict = HOLDS if outcomes.count(HOLDS) >= needed else FAILS if outcomes.count(FAILS) > spare else UNCLEAR
    return Judgement(_least_saving(verdicts, savings), verdict, _reason(run, verdicts, "in every cell looked at", "not in"))


def _gains_follow_the_network(run: TableRun) -> Judgement:
    cells = run.cells("cnmt", *DEVICES, without=run.idle)
    gains: list[str] = []
    differences: dict[str, list[Effect]] = {}
    for workload in published.WORKLOADS:
        slower, faster = ((workload, network) for network in published.NETWORKS)
        if slower not in cells or faster not in cells:
            continue
        server, gateway = (
            "/".join(f"{run.saving(cell, 'cnmt', device).mean:.2f}" for cell in (slower, faster))
            for device in ("cloud", "edge")
        )
        gains.append(f"{workload.upper()} Server {server}, GW {gateway}")
        # A gain is a negative excess: the larger gain on CP1 is the larger excess on CP2.
        differences[workload.upper()] = [
            partial(run.larger, faster, slower, "cloud"),
            partial(run.larger, slower, faster, "edge"),
        ]
    if not differences:
        raise Undecided("needs both networks of a data set, and each device winning some requests on both")
    every = [difference for pair in differences.values() for difference in pair]
    verdicts = {
        name: worst_verdict(verdict_among(difference, chances_to_fail=len(every)) for difference in pair)
        for name, pair in differences.items()
    }
    least = _least(difference(CONFIDENCE) for difference in every)
    clear = f"the slower CP1 favours the gateway, the faster CP2 the server; {_HARDLY_FAILS}"
    return Judgement(
        f"{'; '.join(gains)} (% on CP1/CP2); least difference {_percent(least, 'points')}",
        worst_verdict(verdicts.values()),
        _reason(run, verdicts, clear, "not for"),
    )


def _gap_larger_for_the_transformer(run: TableRun) -> Judgement:
    cells = run.cells("cnmt", "oracle", without=run.idle)
    gaps = {cell: run.excess(cell, "cnmt", "oracle") for cell in cells}
    transformer = [cell for cell in cells if cell[0] == TRANSFORMER]
    recurrent = [cell for cell in cells if cell[0] != TRANSFORMER]
    if not transformer or not recurrent:
        raise Undecided("needs EN-ZH and a recurrent model beside it")
    pairs = list(product(transformer, recurrent))
    order = worst_verdict(verdict_among(partial(run.larger, *pair, "oracle"), chances_to_fail=len(pairs)) for pair in pairs)
    least, greatest = min(transformer, key=lambda cell: gaps[cell].mean), max(recurrent, key=lambda cell: gaps[cell].mean)
    difference = run.larger(least, greatest, "oracle")
    why = (
        f"EN-ZH's least gap, {gaps[least].mean:.2f} %, is {'' if difference.mean > 0.0 else 'not '}above the greatest of the "
        f"others, {gaps[greatest].mean:.2f} %: difference {_percent(difference, 'points')}"
    )
    if order == HOLDS:
        why += ", beyond the noise of the replications as in all other pairs of cells"
    elif order == UNCLEAR:
        why += ", but " + ("within the noise of the replications" if run.replicated else _ONE_REPLICATION)
    by_lengths, cause = _lengths_explain(run)
    verdict, why = order, why + cause
    if order != FAILS and by_lengths is None:
        verdict = UNKNOWN
    elif order != FAILS and not by_lengths:
        verdict, why = FAILS, f"{why}, which is not the paper's cause: that EN-ZH's lengths are harder to predict"
    return Judgement(", ".join(f"{name_cell(cell)} {_percent(gap)}" for cell, gap in gaps.items()), verdict, why)


def _lengths_explain(run: TableRun) -> tuple[bool | None, str]:
    """Return whether the lengths make the largest part of EN-ZH's gap in every cell, and the shares; None if unknown."""
    parts = {cell: changes for cell, changes in run.gap_percent.items() if cell[0] == TRANSFORMER}
    if not parts:
        return None, "; the cause of the gap was not analysed"
    largest = {cell: min(changes, key=changes.__getitem__) for cell, changes in parts.items()}
    shares = ", ".join(f"{name_cell(cell)} {-parts[cell][source]:.2f} % by {source}" for cell, source in largest.items())
    return all(source == "length regression" for source in largest.values()), f"; most of the gap: {shares}"


def judge_reductions(run: TableRun) -> Judgement:
    """Judge the sign, not the size, of the paper's headline figures: the largest savings of C-NMT.

    The best of several cells is picked after the fact, so that a saving counts beyond an interval that is widened for their
    number (`claim.verdict_among`).
    """
    candidates: dict[str, list[tuple[Cell, str]]] = {}
    for cell in run.cells("cnmt", *DEVICES):
        candidates.setdefault(cell[0].upper(), []).extend((cell, device) for device in DEVICES)
    # In points of the Server column, as the paper counts its 21 % (CNMT-20).
    ahead_points = {
        cell: 100.0 * (run.mean_s(cell, "naive") - run.mean_s(cell, "cnmt")) / run.mean_s(cell, "cloud")
        for cell in run.cells("cnmt", "naive", "cloud")
    }
    if not ahead_points or not candidates:
        raise Undecided("needs rows of edge, cloud, naive and cnmt")
    at_best = {
        name: max((run.saving(cell, "cnmt", device) for cell, device in pairs), key=lambda saving: saving.mean)
        for name, pairs in candidates.items()
    }
    best = max(ahead_points, key=ahead_points.__getitem__)
    candidates["against Naive"] = [(cell, "naive") for cell in ahead_points]
    verdicts = {
        name: _any_saving([partial(run.saving, cell, "cnmt", baseline) for cell, baseline in pairs], len(candidates))
        for name, pairs in candidates.items()
    }
    return Judgement(
        ", ".join(f"{name} {_percent(saving)}" for name, saving in at_best.items())
        + f", beyond Naive {ahead_points[best]:.2f} points of the Server column ({name_cell(best)})",
        worst_verdict(verdicts.values()),
        _reason(run, verdicts, "the sign is the claim; sizes depend on the devices", "no saving for"),
    )


def _any_saving(savings: Sequence[Effect], claims: int) -> str:
    """Return the verdict on "at least one of these savings is above 0", which is one of several claims that must all hold."""
    verdicts = [verdict_among(saving, chances_to_hold=len(savings), chances_to_fail=claims) for saving in savings]
    return HOLDS if HOLDS in verdicts else UNCLEAR if UNCLEAR in verdicts else FAILS


_CLAIMS = (
    Claim(
        "CNMT-17 (a)",
        "The oracle's total time is at most every other policy's",
        "in 6 of 6 cells",
        _oracle_is_least,
        hardware_dependent=False,
    ),
    Claim(
        "CNMT-17 (b)",
        "C-NMT's total time is at most that of the better single device",
        "in 6 of 6 cells",
        _beats_both_devices,
        hardware_dependent=True,
    ),
    Claim(
        "CNMT-17 (c)",
        "C-NMT's total time is below Naive's in at least five of the six cells; EN-ZH CP2 is a near tie",
        "in 5 of 6 cells, EN-ZH CP2 depends on the column",
        _beats_naive,
        hardware_dependent=True,
    ),
    Claim(
        "CNMT-17 (d)",
        "C-NMT's gain against the Server is larger on CP1, against the gateway larger on CP2",
        "DE-EN Server 26.15/17.65, GW 13.55/24.34; FR-EN Server 44.32/41.06, GW 12.29/18.00; "
        "EN-ZH Server 12.46/10.58, GW 21.17/35.66 (% on CP1/CP2)",
        _gains_follow_the_network,
        hardware_dependent=True,
    ),
    Claim(
        "CNMT-17 (e)",
        "C-NMT's gap to the oracle is larger for the Transformer (EN-ZH) than for the recurrent models",
        "EN-ZH +9.83, +8.77 %; DE-EN +0.11, +0.15 %; FR-EN +1.24, +1.13 %",
        _gap_larger_for_the_transformer,
        hardware_dependent=True,
    ),
)

_HEADLINE = Claim(
    "CNMT-17 (reductions)",
    "At best C-NMT saves time against a single device on every data set, and against Naive",
    "up to DE-EN 26.15, FR-EN 44.32, EN-ZH 35.66 %; beyond Naive 21.37 points of the Server column (DE-EN CP1)",
    judge_reductions,
    hardware_dependent=True,
)
"""The paper's largest reductions."""
