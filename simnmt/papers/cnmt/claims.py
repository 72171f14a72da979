"""The claims of C-NMT: signs and orders of Table I (CNMT-17, 20), and claims on devices (CNMT-06, 12, 18).

A claim on Table I holds or fails only beyond the noise of its differences, paired by replication: changes of total time for
(b) and (c), differences between two changes for (d) and (e). Cells where the oracle uses a single device are left out of (b),
(d) and (e): nothing can be gained there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np

from simnmt.papers.cnmt.table_one import CELLS, LABELS, NETWORKS, PAPER, TRANSFORMER, WORKLOADS, TableRun, name_cell
from simnmt.papers.kit import claims as kit
from simnmt.papers.kit.claims import Claim, Effect, Facts, Result, Undecided
from simnmt.profile.device_profile import DeviceProfile
from simnmt.report.charts import numbers
from simnmt.report.input_pages import means_per_tgt_len
from simnmt.results.number_text import percent_interval
from simnmt.results.statistics import CONFIDENCE, Estimate
from simnmt.workload.length_table import LengthTable

DEVICES = ("edge", "cloud")
Groups = Mapping[str, Sequence[Callable[[float], Estimate]]]
"""Effects of each case of a claim, by the confidence of their interval."""


def basis_of(profile_kinds: Collection[str]) -> str:
    """Return the basis of claims: `fitted` if any profile was inferred, else `measured` or `synthetic`, or `unknown`."""
    if any(kind.startswith("inferred") for kind in profile_kinds):
        return "fitted"
    if not profile_kinds:
        return "unknown"
    return "measured" if set(profile_kinds) == {"measured"} else "synthetic"


def _percent(effect: Estimate, unit: str = "%") -> str:
    return percent_interval(effect.mean, effect.low, effect.high, unit=unit)


def _least(effects: Mapping[Any, Estimate]) -> Any:
    return min(effects, key=lambda key: effects[key].mean)


def _oracle_is_least(run: TableRun) -> Result:
    pairs = [(cell, policy) for policy in (*DEVICES, "naive", "cnmt") for cell in run.cells("oracle", policy)]
    margins = {(cell, policy): run.excess(cell, policy, "oracle") for cell, policy in pairs}
    if not margins:
        raise Undecided("no row of the oracle and of another policy")
    effects = {name_cell(cell): min(margin.mean for (at, _), margin in margins.items() if at == cell) for cell, _ in pairs}
    cell, policy = _least(margins)
    where = f"{LABELS[policy]}, {name_cell(cell)}"
    return Result(effects, words="", facts={"least": _percent(margins[cell, policy]), "where": where})


def decisive(groups: Groups, *, any_will_do: bool = False, spare: int = 0) -> dict[str, Effect]:
    """Return what decides each case of a claim that effects are above a bound: the least effect, or the greatest of them.

    The low end may show a case, and the high end may refute it, each by accident in at most 2.5 % of runs: the 5 % that an
    interval may miss are divided among the effects that could do so (Bonferroni; Y. Benjamini, R. Heller, Screening for partial
    conjunction hypotheses, Biometrics 64 (2008), 1215-1222). `spare`: cases that may fail.
    """
    extreme = max if any_will_do else min
    to_fail = (len(groups) if any_will_do else sum(map(len, groups.values()))) - spare
    effects: dict[str, Effect] = {}
    for name, group in groups.items():
        to_hold = len(group) if any_will_do else 1 + spare
        shown, refuted = ([effect(1.0 - (1.0 - CONFIDENCE) / chances) for effect in group] for chances in (to_hold, to_fail))
        ends: tuple[list[Any], list[Any]] = [item.low for item in shown], [item.high for item in refuted]
        low, high = (None if None in values else extreme(values) for values in ends)
        effects[name] = Estimate(extreme(item.mean for item in shown), low, high)
    return effects


def _savings(*baselines: str, idle: bool, least_cells: int, spare: int = 0) -> Callable[[TableRun], Result]:
    """Return what measures C-NMT's savings against all of the baselines."""

    def value(run: TableRun) -> Result:
        cells = run.cells("cnmt", *baselines, idle=idle)
        if len(cells) < least_cells:
            raise Undecided(f"needs rows of cnmt, {', '.join(baselines)} in {least_cells} cells where something can be gained")
        savings = {(cell, at): run.saving(cell, at) for cell in cells for at in baselines}
        least = _least(savings)
        groups = {name_cell(cell): [partial(run.saving, cell, at) for at in baselines] for cell in cells}
        return Result(decisive(groups, spare=spare), facts={"least": _percent(savings[least]), "where": name_cell(least[0])})

    return value


def _gains_follow_the_network(run: TableRun) -> Result:
    cells, gains = run.cells("cnmt", *DEVICES, idle=False), []
    effects: dict[str, list[Callable[[float], Estimate]]] = {}
    for workload in WORKLOADS:
        slower, faster = both = [(workload, network) for network in NETWORKS]
        if {*both} <= {*cells}:
            server, gateway = ("/".join(f"{run.saving(cell, name).mean:.2f}" for cell in both) for name in DEVICES[::-1])
            gains.append(f"{workload.upper()} Server {server}, GW {gateway}")
            # A gain is a negative excess: the larger gain on CP1 is the larger excess on CP2.
            pairs = ((faster, slower, "cloud"), (slower, faster, "edge"))
            effects[workload.upper()] = [partial(run.larger, *pair) for pair in pairs]
    if not effects:
        raise Undecided("needs both networks of a data set, and each device winning some requests on both")
    least = min((larger(CONFIDENCE) for pair in effects.values() for larger in pair), key=attrgetter("mean"))
    return Result(decisive(effects), words="", facts={"gains": "; ".join(gains), "least": _percent(least, "points")})


def _gap_larger_for_the_transformer(run: TableRun) -> Result:
    cells = run.cells("cnmt", "oracle", idle=False)
    gaps = {cell: run.excess(cell, "cnmt", "oracle") for cell in cells}
    transformer, recurrent = ([cell for cell in cells if (cell[0] == TRANSFORMER) is so] for so in (True, False))
    if not transformer or not recurrent:
        raise Undecided("needs EN-ZH and a recurrent model beside it")
    least, greatest = min(transformer, key=lambda cell: gaps[cell].mean), max(recurrent, key=lambda cell: gaps[cell].mean)
    by_lengths, cause = _lengths_explain(run)
    why = (
        f"EN-ZH's least gap {gaps[least].mean:.2f} %, the greatest of the others {gaps[greatest].mean:.2f} %: difference "
        f"{_percent(run.larger(least, greatest, 'oracle'), 'points')}{cause}"
    )
    order = decisive({"order": [partial(run.larger, *pair, "oracle") for pair in product(transformer, recurrent)]})
    lengths: Effect = Undecided("", needed=True) if by_lengths is None else by_lengths
    ours = ", ".join(f"{name_cell(cell)} {_percent(gap)}" for cell, gap in gaps.items())
    return Result({**order, "lengths": lengths}, ours, why, words=None)


def _lengths_explain(run: TableRun) -> tuple[bool | None, str]:
    """Return whether the lengths make the largest part of EN-ZH's gap in every cell, and the shares; None if unknown."""
    parts = {cell: changes for cell, changes in run.gap_percent.items() if cell[0] == TRANSFORMER}
    if not parts:
        return None, "; the cause of the gap was not analysed"
    largest = {cell: min(changes, key=changes.__getitem__) for cell, changes in parts.items()}
    shares = ", ".join(f"{name_cell(cell)} {-parts[cell][source]:.2f} % by {source}" for cell, source in largest.items())
    by_lengths = set(largest.values()) == {"length regression"}
    remark = "" if by_lengths else ", which is not the paper's cause: that EN-ZH's lengths are harder to predict"
    return by_lengths, f"; most of the gap: {shares}{remark}"


def _largest_savings(run: TableRun) -> Result:
    """Return the sign, not the size, of the paper's headline figures: whether any cell of each data set saves time.

    The best of several cells is picked after the fact, so that a saving counts beyond an interval widened for their number.
    """
    places = {"against Naive": [(cell, "naive") for cell in run.cells("cnmt", "naive", "cloud")]}
    for cell, at in product(run.cells("cnmt", *DEVICES), DEVICES):
        places.setdefault(cell[0].upper(), []).append((cell, at))
    if not places["against Naive"] or len(places) == 1:
        raise Undecided("needs rows of edge, cloud, naive and cnmt")
    # In points of the Server column, as the paper counts its 21 % (CNMT-20).
    ahead_points = {
        cell: 100.0 * (run.total_s(cell, "naive") - run.total_s(cell, "cnmt")) / run.total_s(cell, "cloud")
        for cell, _ in places["against Naive"]
    }
    best = max(ahead_points, key=ahead_points.__getitem__)
    savings = {name: [partial(run.saving, *place) for place in pairs] for name, pairs in places.items()}
    at_best = (
        f"{name} {_percent(max((saving(CONFIDENCE) for saving in items), key=attrgetter('mean')))}"
        for name, items in savings.items()
        if name != "against Naive"
    )
    ours = f"{', '.join(at_best)}, beyond Naive {ahead_points[best]:.2f} points of the Server column ({name_cell(best)})"
    return Result(decisive(savings, any_will_do=True), ours)


TABLE_CLAIMS: list[Claim[TableRun]] = kit.of_paper(
    PAPER,
    [
        Claim("CNMT-17 (a)", value=_oracle_is_least, holds=kit.at_least(-1e-10)),  # sums are rounded
        Claim("CNMT-17 (b)", value=_savings(*DEVICES, idle=False, least_cells=1), holds=kit.at_least(0.0)),
        Claim(
            "CNMT-17 (c)", value=_savings("naive", idle=True, least_cells=len(CELLS), spare=1), holds=kit.above(0.0, spare=1)
        ),
        Claim("CNMT-17 (d)", value=_gains_follow_the_network, holds=kit.above(0.0)),
        Claim("CNMT-17 (e)", value=_gap_larger_for_the_transformer, holds=kit.above(0.0)),
        Claim("CNMT-17 (reductions)", value=_largest_savings, holds=kit.above(0.0)),
    ],
)


# Claims on devices.


def time_over_length(profile: DeviceProfile) -> dict[str, Any] | None:
    """Return the mean measured times per target length and the line through them (figure 2a), ms.

    `sd_ms`: standard deviation of single inferences, over source lengths and repeats, None where it was not measured; `r2`:
    coefficient of determination of the line for the means. None if the samples have fewer than three target lengths.
    """
    if len({sample.tgt_len for sample in profile.execution.samples}) < 3:
        return None
    lengths, means_s, sds_s, _ = means_per_tgt_len(profile)
    means_ms = 1e3 * means_s
    slope, offset = (float(number) for number in np.polyfit(lengths, means_ms, 1))
    mse, spread = float(np.mean((means_ms - (slope * lengths + offset)) ** 2)), float(np.var(means_ms))
    return {
        "tgt_len": lengths.astype(int).tolist(),
        "mean_ms": means_ms.tolist(),
        "sd_ms": numbers(1e3 * sds_s, 9),
        "ms_per_token": slope,
        "ms_fixed": offset,
        "r2": 1.0 - mse / spread if spread > 0 else 0.0,
        "mse_ms2": mse,
    }


@dataclass(frozen=True)
class Profiles(Facts):
    """The profiles of gateway and cloud, and the lengths of the requests, of the data sets at hand."""

    pairs: Mapping[str, tuple[DeviceProfile, ...]]
    lengths: Mapping[str, LengthTable]
    basis: str = "measured"
    device: str = ""

    def lines(self) -> list[dict[str, Any]]:
        """Return the measured means per target length of all profiles that hold samples, beside the printed figures."""
        rows = []
        for workload, pair in self.pairs.items():
            for device, profile in zip(("gateway", "cloud"), pair, strict=True):
                if (line := time_over_length(profile)) is not None:
                    names = {"workload": workload, "device": device, "profile": profile.name, "box": profile.device.name}
                    printed = PAPER.table("figure-2a").row(device) if workload == TRANSFORMER else {}
                    theirs = {f"published_{key}": printed.get(key) for key in ("r2", "mse_ms2")}
                    rows.append(names | {"model": profile.model.name, "kind": profile.execution.kind} | line | theirs)
        return rows

    def r2_of_means(self) -> Result:
        """Return R2 by data set as the gateway's profile states it, else from its samples."""
        r2: dict[str, float] = {}
        for workload, (gateway, _) in self.pairs.items():
            stated, line = gateway.execution.fit.r2_of_means_per_tgt_len, time_over_length(gateway) or {}
            if (value := line.get("r2") if stated is None else stated) is not None:
                r2[workload.upper()] = value
        # Rounded down, so that only a perfect fit prints as 1.
        return Result(r2, ", ".join(f"{name} {math.floor(1e4 * value) / 1e4:.4f}" for name, value in r2.items()))

    def flat_encoder(self) -> Result:
        """Return a source token's cost over a target token's of the Transformers measured on a GPU."""
        ratios: dict[str, Effect] = {
            profile.name: _src_over_tgt(profile)
            for profile in self.pairs.get(TRANSFORMER, ())
            if profile.engine is not None and profile.engine.device.startswith("cuda") and profile.execution.kind == "measured"
        }
        return Result(ratios, words=None)

    def recurrent_encoders(self) -> Result:
        """Return by how much a source token's share of a target token's cost is larger with recurrent models."""
        ratios = {workload: _src_over_tgt(gateway) for workload, (gateway, _) in self.pairs.items()}
        recurrent = [ratio for workload, ratio in ratios.items() if workload != TRANSFORMER]
        if not recurrent or TRANSFORMER not in ratios:
            raise Undecided("needs the Transformer and a recurrent model beside it")
        ours = ", ".join(f"{workload.upper()} {ratio:.4f}" for workload, ratio in ratios.items())
        return Result(min(recurrent) > ratios[TRANSFORMER], ours)

    def decisions(self) -> Result:
        shares: dict[str, Effect] = {}
        for workload, pair in self.pairs.items():
            decision_s, table = pair[0].overheads_s.get("decision_s"), self.lengths[workload]
            if decision_s is not None:
                times_s = [profile.plane.seconds(table.src_len, table.tgt_len) for profile in pair]
                mean_s = min(float(np.average(time_s, weights=table.count)) for time_s in times_s)
                shares[workload.upper()] = decision_s / mean_s
        return Result(shares)


def _src_over_tgt(profile: DeviceProfile) -> float:
    plane = profile.plane
    return plane.s_per_src_token / plane.s_per_tgt_token if plane.s_per_tgt_token else float("inf")


DEVICE_CLAIMS: list[Claim[Profiles]] = kit.of_paper(
    PAPER,
    [
        Claim("CNMT-06 (linear in M)", value=Profiles.r2_of_means, holds=kit.at_least(0.95)),
        Claim("CNMT-06 (Transformer on a GPU)", value=Profiles.flat_encoder, holds=kit.below(0.2), form=".4f"),
        Claim("CNMT-06 (recurrent encoders)", value=Profiles.recurrent_encoders),
        Claim("CNMT-12", value=Profiles.decisions, holds=kit.below(1e-3), form=".3g"),
    ],
)
