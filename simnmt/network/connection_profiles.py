"""CP1 and CP2, the C-NMT paper's two network profiles, as labelled synthetic series (CNMT-04).

The paper gives no samples, only that both are RIPE Atlas traces of one day, and that CP1 is the slower on average. These
stand-ins are drawn from processes fitted to other RIPE Atlas series, CP1's restless and CP2's calm, with the 240 s between
samples of those series, since finer ones would be invented. The mean is an assumption: a longer path shifts all RTTs and leaves
the fluctuations unchanged. A process has levels as a semi-Markov chain, AR(1) residuals, and lone spikes with a Pareto tail; it
stands in the header of its file. The device profiles of Table I's replication were inferred from these draws to the last digit:

    python -m simnmt.network.connection_profiles --cp1-mean-ms 80 --cp2-mean-ms 58.9 --out traces/rtt
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base import shipped_files
from simnmt.base.arrays import Floats
from simnmt.base.random_streams import stream
from simnmt.network.series import RttSeries
from simnmt.network.series_csv import SeriesTable, series_text, write_texts

PROFILES = {"cp1": ("CP1 (3 to 7 p.m.)", 4.0), "cp2": ("CP2 (7:30 to 12:30)", 5.0)}
"""Title and hours. The length of CP2 is ambiguous in the paper ("7:30-12:30 a.m."); it is taken as five hours."""

_SHARES = (0.0, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.999, 1.0)
"""Shares of the quantiles of the additions to a level."""

Process = Mapping[str, Any]


def connection_profile(name: str, mean_s: float, process: Process) -> RttSeries:
    """Draw `cp1` or `cp2` at a mean RTT; the same arguments give the same series.

    Draws of a few hours differ much, so the seed is the typical one of 99: its spread (p95 - p5) is the median.
    """
    title, hours = PROFILES[name]
    count = round(hours * 3600 / process["step_s"])
    draws = [_draw(process, count, seed) for seed in range(1, 100)]
    spread_s = [float(np.subtract(*np.quantile(rtt_s, [0.95, 0.05]))) for rtt_s in draws]
    seed = 1 + int(np.argsort(spread_s, kind="stable")[len(draws) // 2])
    drawn = RttSeries(name, "synthetic", "", np.arange(count, dtype=np.float64) * process["step_s"], draws[seed - 1])
    shift_s = mean_s - drawn.mean_s
    label = f"synthetic stand-in for the C-NMT paper's {title}, none of whose samples is public"
    origin = f"drawn with seed {seed} from a process fitted to {process['source']}"
    moved = f"moved by {shift_s * 1e3:+.3f} ms for a mean of {mean_s * 1e3:g} ms"
    # Shifted to a base, not by a shift: the last digit of the shipped files depends on it.
    lowest_s = min(process["levels_s"])
    value = _draw(process, count, seed, lowest_s + shift_s - lowest_s)
    return replace(drawn, value=value, source=f"{label}; {origin}; {moved}")


def _draw(process: Process, count: int, seed: int, move_s: float = 0.0) -> Floats:
    """Draw `count` RTTs of levels shifted by `move_s` seconds; each component has its own random stream."""
    from scipy.special import ndtr  # here, since it takes a third of the start of a process

    innovation = stream(seed, 0, "rtt residual").standard_normal(count).tolist()
    rho = process["residual_lag_1"]
    scores = innovation[:1]
    for shock in innovation[1:]:
        scores.append(rho * scores[-1] + (1.0 - rho * rho) ** 0.5 * shock)
    share = ndtr(np.array(scores))

    random = stream(seed, 0, "rtt level")

    def pick(weights: Sequence[float]) -> int:
        shares = np.cumsum(weights)
        return int(np.searchsorted(shares / shares[-1], random.random(), side="right"))

    state = pick(process["shares"])
    states: list[int] = []
    while len(states) < count:
        states += [state] * int(random.geometric(1 / process["mean_dwell_steps"][state]))
        state = pick(process["next_level"][state])
    level = np.array(states[:count])
    rtt_s: Floats = np.array([level_s + move_s for level_s in process["levels_s"]])[level]
    for k, quantiles_s in enumerate(process["residuals_s"]):
        rtt_s[level == k] += np.interp(share[level == k], _SHARES, quantiles_s)

    # A spike has a truncated generalised Pareto law.
    hit, tail = stream(seed, 0, "rtt spike").random((count, 2)).T
    over_s = process["spike_scale_s"] / process["spike_shape"] * np.expm1(-process["spike_shape"] * np.log1p(-tail))
    height_s = np.minimum(process["spike_min_s"] + over_s, process["spike_max_s"])
    return np.maximum(rtt_s + np.where(hit < process["spike_share"], height_s, 0.0), 1e-4)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write `cp1.csv` and `cp2.csv` into a folder, with the parameters of their processes in the header."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of cp1.csv and cp2.csv")
    for name, (title, _) in PROFILES.items():
        parser.add_argument(f"--{name}-mean-ms", type=float, required=True, help=f"mean RTT of {title}")
    options = vars(parser.parse_args(arguments))
    means = " ".join(f"--{name}-mean-ms {options[f'{name}_mean_ms']:g}" for name in PROFILES)
    for name in PROFILES:
        process = json.loads(SeriesTable(shipped_files.find("traces/rtt", name)).notes["process"])
        series = connection_profile(name, options[f"{name}_mean_ms"] / 1e3, process)
        notes = {"made": f"python -m simnmt.network.connection_profiles {means}"}
        notes["process"] = json.dumps(process, separators=(",", ":"))
        write_texts({options["out"] / f"{name}.csv": series_text(series, notes=notes, decimals=3)})


if __name__ == "__main__":
    main()
