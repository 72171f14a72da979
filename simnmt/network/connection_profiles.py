"""CP1 and CP2, the C-NMT paper's two network profiles, as labelled synthetic series (CNMT-04).

The paper gives no samples, only that both are RIPE Atlas traces of one day, CP1 from 3 to 7 p.m. and CP2 from 7:30 to
12:30, and that CP1 is the slower on average. These stand-ins are drawn from processes fitted to other RIPE Atlas
series, CP1's restless and CP2's calm, with the 240 s between samples of those series, since finer ones would be invented.
The mean is an assumption: a longer path shifts all RTTs and leaves the fluctuations unchanged. The header of each file holds
its process:

    python -m simnmt.network.connection_profiles --cp1-mean-ms 80 --cp2-mean-ms 58.9 --out traces/rtt

The processes are those of simnmt 0.1.0: levels as a semi-Markov chain, AR(1) residuals, lone spikes with a Pareto tail. The
device profiles of Table I's replication were inferred from its draws to the last digit, so they are kept for these two files
only.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import shipped_files
from simnmt.base.arrays import Floats
from simnmt.base.errors import InputError
from simnmt.base.random_streams import stream
from simnmt.network.errors import TraceError
from simnmt.network.series import RttSeries
from simnmt.network.series_csv import read_notes, write_series


@dataclass(frozen=True, slots=True)
class Profile:
    """Title and length of a network profile of the paper."""

    title: str
    hours: float


PROFILES = {
    "cp1": Profile("CP1 (3 to 7 p.m.)", 4.0),
    "cp2": Profile("CP2 (7:30 to 12:30)", 5.0),
}
"""The length of CP2 is ambiguous in the paper ("7:30-12:30 a.m."); it is taken as five hours."""

_DECIMALS_MS = 3
_CANDIDATES = 99
_CLIPPED_S = 1e-9
_FLOOR_S = 1e-4
_SHARES = (0.0, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.999, 1.0)
"""Shares of the quantiles of the additions to a level."""

Process = Mapping[str, Any]
"""Parameters by their names in the header."""


def connection_profile(name: str, mean_s: float) -> RttSeries:
    """Draw `cp1` or `cp2` at a mean RTT, from the process in the header of the shipped file.

    Draws of a few hours differ much, so the seed is the typical one of 99: its spread (p95 - p5) is the median. The same
    arguments give the same series. Raises `TraceError` if the mean is too low for the fluctuations.
    """
    process = _process(name)
    count = round(PROFILES[name].hours * 3600 / process["step_s"])
    seed = _typical_seed(process, count)
    time_s = np.arange(count, dtype=np.float64) * process["step_s"]

    def drawn(move_s: float) -> RttSeries:
        return RttSeries(name, "synthetic", "", time_s, _draw(process, count, seed, move_s))

    shift_s = mean_s - drawn(0.0).mean_s
    lowest_s = min(process["levels_s"])
    # Shifted to a base, not by a shift: the last digit of the shipped files depends on it.
    series = drawn(lowest_s + shift_s - lowest_s)
    if abs(series.mean_s - mean_s) > _CLIPPED_S:
        raise TraceError(f"{name}: a mean of {mean_s * 1e3:g} ms leaves no room for the fluctuations", remedy="raise it")
    label = f"synthetic stand-in for the C-NMT paper's {PROFILES[name].title}, none of whose samples is public"
    origin = f"drawn with seed {seed} from a process fitted to {process['source']}"
    moved = f"moved by {shift_s * 1e3:+.3f} ms for a mean of {mean_s * 1e3:g} ms"
    return replace(series, source=f"{label}; {origin}; {moved}")


def write_profiles(out: Path, mean_s: Mapping[str, float]) -> None:
    """Write `cp1.csv` and `cp2.csv` into the folder `out`, with the parameters of their processes in the header.

    Raises `TraceError` unless CP1 is the slower one on average, which is all that the paper states of their levels.
    """
    if not mean_s["cp1"] > mean_s["cp2"]:
        raise TraceError("CP1 must be slower on average than CP2 (CNMT-04)", remedy="raise CP1's mean or lower CP2's")
    for name in PROFILES:
        means = " ".join(f"--{profile_name}-mean-ms {mean_s[profile_name] * 1e3:g}" for profile_name in PROFILES)
        process = json.dumps(_process(name), separators=(",", ":"))
        notes = {"made": f"python -m simnmt.network.connection_profiles {means}", "process": process}
        series = connection_profile(name, mean_s[name])
        write_series(out / f"{name}.csv", series, notes=notes, decimals=_DECIMALS_MS)


def _process(name: str) -> Process:
    process: Process = json.loads(read_notes(shipped_files.find("traces/rtt", name))["process"])
    return process


def _typical_seed(process: Process, count: int) -> int:
    draws = [_draw(process, count, seed) for seed in range(1, _CANDIDATES + 1)]
    spread_s = [float(np.subtract(*np.quantile(rtt_s, [0.95, 0.05]))) for rtt_s in draws]
    return 1 + int(np.argsort(spread_s, kind="stable")[_CANDIDATES // 2])


def _draw(process: Process, count: int, seed: int, move_s: float = 0.0) -> Floats:
    """Draw `count` RTTs of levels shifted by `move_s` seconds; each component has its own random stream."""
    from scipy.special import ndtr  # here, since it takes a third of the start of a process

    level = _levels(process, count, stream(seed, 0, "rtt level"))
    innovation = stream(seed, 0, "rtt residual").standard_normal(count).tolist()
    rho = process["residual_lag_1"]
    scores = innovation[:1]
    for shock in innovation[1:]:
        scores.append(rho * scores[-1] + (1.0 - rho * rho) ** 0.5 * shock)
    share = ndtr(np.array(scores))
    rtt_s: Floats = np.array([level_s + move_s for level_s in process["levels_s"]])[level]
    for k, quantiles_s in enumerate(process["residuals_s"]):
        here = level == k
        rtt_s[here] += np.interp(share[here], _SHARES, quantiles_s)
    return np.maximum(rtt_s + _spikes(process, count, stream(seed, 0, "rtt spike")), _FLOOR_S)


def _levels(process: Process, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw the level of each sample."""

    def pick(weights: Sequence[float]) -> int:
        shares = np.cumsum(weights)
        return int(np.searchsorted(shares / shares[-1], random.random(), side="right"))

    level = pick(process["shares"])
    levels: list[int] = []
    while len(levels) < count:
        levels += [level] * int(random.geometric(1 / process["mean_dwell_steps"][level]))
        level = pick(process["next_level"][level])
    return np.array(levels[:count])


def _spikes(process: Process, count: int, random: np.random.Generator) -> Floats:
    """Draw the height of the spike on each sample from a truncated generalised Pareto law; 0 on most samples."""
    hit, tail = random.random((count, 2)).T
    shape = process["spike_shape"]
    over_s = process["spike_scale_s"] / shape * np.expm1(-shape * np.log1p(-tail))
    height_s = np.minimum(process["spike_min_s"] + over_s, process["spike_max_s"])
    return np.where(hit < process["spike_share"], height_s, 0.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write both files; return the exit status, 2 for invalid input."""
    parser = argparse.ArgumentParser(prog="python -m simnmt.network.connection_profiles", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--out", type=Path, required=True, help="folder of cp1.csv and cp2.csv")
    for name, profile in PROFILES.items():
        parser.add_argument(f"--{name}-mean-ms", type=float, required=True, help=f"mean RTT of {profile.title}")
    options = vars(parser.parse_args(arguments))
    try:
        write_profiles(options["out"], {name: options[f"{name}_mean_ms"] / 1e3 for name in PROFILES})
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
