"""CP1 and CP2, the C-NMT paper's two network profiles, as labelled synthetic series (CNMT-04).

The paper gives no samples, only that both are RIPE Atlas traces of one day, CP1 from 3 to 7 p.m. and CP2 from 7:30 to
12:30, and that CP1 is the slower on average. These stand-ins are drawn from processes fitted to other RIPE Atlas
series, CP1's restless and CP2's calm, with a sample each 240 s as those have: finer ones would be invented. The mean is
an assumption; it is set by the length of the path, which leaves the fluctuations as many milliseconds as they were. The
processes stand in the header of the files, so new means need no real series:

    python -m simnmt.network.connection_profiles --cp1-mean-ms 80 --cp2-mean-ms 58.9 --out traces/rtt
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from simnmt import shipped
from simnmt.errors import InputError
from simnmt.network.errors import TraceError
from simnmt.network.process import RttProcess, draw, fit
from simnmt.network.rtt_csv import read_notes, read_rtt_csv, write_rtt_csv
from simnmt.network.rtt_series import RttSeries


@dataclass(frozen=True, slots=True)
class Profile:
    """What the paper says of one profile."""

    title: str
    hours: float


PROFILES = {
    "cp1": Profile("CP1 (3 to 7 p.m.)", 4.0),
    "cp2": Profile("CP2 (7:30 to 12:30)", 5.0),
}
"""The span of CP2 is ambiguous in the paper ("7:30-12:30 a.m."); read as five hours."""

_DECIMALS_MS = 3
_CANDIDATES = 99
_CLIPPED_S = 1e-9


def stored_process(name: str) -> RttProcess:
    """The process in the header of the shipped `cp1` or `cp2`."""
    path = shipped.find("traces/rtt", name)
    notes = read_notes(path)
    if "process" not in notes:
        raise TraceError("no process in the header", path=path, remedy="fit one to a series")
    return RttProcess.from_json(notes["process"])


def connection_profile(name: str, mean_s: float, process: RttProcess | None = None) -> RttSeries:
    """Draw `cp1` or `cp2` at a mean RTT, from its stored process unless another is given.

    A few hours of a restless process may look like anything. So the draw is the typical one: of 99 seeds, that whose
    spread (p95 - p5) is the median. The same arguments give the same series. Raises `TraceError` where the mean is too
    low for the fluctuations.
    """
    process = process or stored_process(name)
    duration_s = PROFILES[name].hours * 3600
    seed = _typical_seed(process, duration_s)
    shift_s = mean_s - draw(process, duration_s, seed).mean_s
    series = draw(process.with_base(min(process.levels_s) + shift_s), duration_s, seed, name)
    if abs(series.mean_s - mean_s) > _CLIPPED_S:
        raise TraceError(f"{name}: a mean of {mean_s * 1e3:g} ms leaves no room for the fluctuations", remedy="raise it")
    label = f"synthetic stand-in for the C-NMT paper's {PROFILES[name].title}, none of whose samples is public"
    moved = f"moved by {shift_s * 1e3:+.3f} ms for a mean of {mean_s * 1e3:g} ms"
    return replace(series, source=f"{label}; {series.source}; {moved}")


def write_profiles(out: Path, mean_s: Mapping[str, float], processes: Mapping[str, RttProcess]) -> None:
    """Write `cp1.csv` and `cp2.csv` into the folder `out`, each with its process in the header.

    Raises `TraceError` where CP1 would not be the slower one on average, which is all the paper says of their levels.
    """
    if not mean_s["cp1"] > mean_s["cp2"]:
        raise TraceError("CP1 must be slower on average than CP2 (CNMT-04)", remedy="raise CP1's mean or lower CP2's")
    for name in PROFILES:
        series = connection_profile(name, mean_s[name], processes[name])
        means = " ".join(f"--{each}-mean-ms {mean_s[each] * 1e3:g}" for each in PROFILES)
        made = f"python -m simnmt.network.connection_profiles {means}"
        notes = {"made": made, "process": processes[name].to_json()}
        write_rtt_csv(out / f"{name}.csv", series, notes=notes, decimals=_DECIMALS_MS)


def _typical_seed(process: RttProcess, duration_s: float) -> int:
    draws = [draw(process, duration_s, seed).rtt_s for seed in range(1, _CANDIDATES + 1)]
    spread_s = [float(np.subtract(*np.quantile(rtt_s, [0.95, 0.05]))) for rtt_s in draws]
    return 1 + int(np.argsort(spread_s, kind="stable")[_CANDIDATES // 2])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write both files; the exit status is 2 where the input is at fault."""
    parser = argparse.ArgumentParser(prog="python -m simnmt.network.connection_profiles", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--out", type=Path, required=True, help="folder of cp1.csv and cp2.csv")
    parser.add_argument("--time-column", default="epoch_s", help="of the --like files (%(default)s)")
    parser.add_argument("--rtt-column", default="rtt_ms", help="of the --like files, ms (%(default)s)")
    for name, profile in PROFILES.items():
        parser.add_argument(f"--{name}-mean-ms", type=float, required=True, help=f"mean RTT of {profile.title}")
        parser.add_argument(f"--like-{name}", type=Path, metavar="CSV", help="fit to this series, not the stored process")
        parser.add_argument(f"--source-{name}", metavar="TEXT", help="where that series comes from, for the header")
    said = vars(parser.parse_args(arguments))
    try:
        processes = {}
        for name in PROFILES:
            like = said[f"like_{name}"]
            if like is None:
                processes[name] = stored_process(name)
                continue
            series = read_rtt_csv(like, time_column=said["time_column"], rtt_column=said["rtt_column"])
            processes[name] = replace(fit(series), source=said[f"source_{name}"] or series.source)
        write_profiles(said["out"], {name: said[f"{name}_mean_ms"] / 1e3 for name in PROFILES}, processes)
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
