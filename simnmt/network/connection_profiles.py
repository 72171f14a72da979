"""CP1 and CP2, the C-NMT paper's two network profiles, as labelled synthetic series (CNMT-04).

The paper gives no samples, only that both are RIPE Atlas traces of one day, CP1 from 3 to 7 p.m. and CP2 from 7:30 to
12:30, and that CP1 is the slower on average. The shipped stand-ins were drawn once, by the RTT process of simnmt 0.1.0:
levels as a semi-Markov chain, AR(1) residuals, spikes with a Pareto tail. It was fitted to other RIPE Atlas series,
CP1's to a restless one and CP2's to a calm one, with a sample each 240 s as those have: finer ones would be invented. The
headers of the files hold its parameters and the seeds. Table I's replication rests on these very samples, so they are
data now, and `simnmt trace synth` draws others.

The mean is an assumption; it is set by the length of the path, which leaves the fluctuations as many milliseconds as
they were:

    python -m simnmt.network.connection_profiles --cp1-mean-ms 80 --cp2-mean-ms 58.9 --out traces/rtt
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simnmt import shipped
from simnmt.errors import InputError
from simnmt.network.errors import TraceError
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
_MOVED = "; moved by "


def connection_profile(name: str, mean_s: float) -> RttSeries:
    """The shipped `cp1` or `cp2`, moved to a mean RTT.

    Raises `TraceError` where the mean is too low for the fluctuations.
    """
    series = read_rtt_csv(shipped.find("traces/rtt", name))
    shift_s = mean_s - series.mean_s
    if not series.rtt_s.min() + shift_s > 0:
        raise TraceError(f"{name}: a mean of {mean_s * 1e3:g} ms leaves no room for the fluctuations", remedy="raise it")
    drawn, _, moved = series.source.partition(_MOVED)
    moved_ms = float(moved.split()[0]) + shift_s * 1e3
    source = f"{drawn}{_MOVED}{moved_ms:+.3f} ms for a mean of {mean_s * 1e3:g} ms"
    return replace(series, rtt_s=series.rtt_s + shift_s, source=source)


def write_profiles(out: Path, mean_s: Mapping[str, float]) -> None:
    """Write `cp1.csv` and `cp2.csv` into the folder `out`, with the parameters they were drawn by in the header.

    Raises `TraceError` where CP1 would not be the slower one on average, which is all the paper says of their levels.
    """
    if not mean_s["cp1"] > mean_s["cp2"]:
        raise TraceError("CP1 must be slower on average than CP2 (CNMT-04)", remedy="raise CP1's mean or lower CP2's")
    for name in PROFILES:
        means = " ".join(f"--{each}-mean-ms {mean_s[each] * 1e3:g}" for each in PROFILES)
        process = read_notes(shipped.find("traces/rtt", name))["process"]
        notes = {"made": f"python -m simnmt.network.connection_profiles {means}", "process": process}
        series = connection_profile(name, mean_s[name])
        write_rtt_csv(out / f"{name}.csv", series, notes=notes, decimals=_DECIMALS_MS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write both files; the exit status is 2 where the input is at fault."""
    parser = argparse.ArgumentParser(prog="python -m simnmt.network.connection_profiles", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--out", type=Path, required=True, help="folder of cp1.csv and cp2.csv")
    for name, profile in PROFILES.items():
        parser.add_argument(f"--{name}-mean-ms", type=float, required=True, help=f"mean RTT of {profile.title}")
    said = vars(parser.parse_args(arguments))
    try:
        write_profiles(said["out"], {name: said[f"{name}_mean_ms"] / 1e3 for name in PROFILES})
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
