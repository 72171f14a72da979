"""A trace's figures in the words and units that a person reads."""

from __future__ import annotations

from simnmt.network.traces.readings import NOUN
from simnmt.network.traces.summary import GAP, TraceSummary, percent

_MANY = 1e4
_UNITS = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"))


def title(summary: TraceSummary) -> str:
    """What it is: `RTT, measured`."""
    return f"{NOUN[summary.quantity]}, {'kind unstated' if summary.kind == 'unstated' else summary.kind}"


def facts(summary: TraceSummary) -> list[tuple[str, str]]:
    """(what, how much) of each figure."""
    found = [("samples", f"{summary.samples:,} over {duration(summary.duration_s)}")]
    if summary.spacing_s is not None and summary.spacing_least_s is not None and summary.spacing_most_s is not None:
        ends = f"from {duration(summary.spacing_least_s)} to {duration(summary.spacing_most_s)}"
        gaps = f"; {summary.gaps:,} gap{'s' * (summary.gaps != 1)} of more than {GAP:g} times that" if summary.gaps else ""
        found.append(("spacing", f"{duration(summary.spacing_s)} usually, {ends}{gaps}"))
    lost = f"{summary.lost:,} ({100 * summary.lost_share:.3g} %)"
    if summary.outages:
        longest = f"the longest of {summary.outage_most_samples:,}, {duration(summary.outage_most_s)}"
        lost += f" in {summary.outages:,} run{'s' * (summary.outages != 1)}, {longest}; held at the value before"
    found += [("lost", lost), ("mean", f"{value(summary, summary.mean)} over time")]
    known = [(percent(share), number) for share, number in summary.quantiles.items() if number is not None]
    found += [(name, value(summary, number)) for name, number in known]
    for lag, correlation in summary.autocorrelation.items():
        found.append((f"autocorrelation, lag {lag}", "not defined" if correlation is None else f"{correlation:.3f}"))
    if summary.levels is not None and summary.level_shifts is not None:
        between = f"{summary.level_shifts:,} between {summary.levels:,} levels" if summary.level_shifts else "none"
        found.append(("level shifts", between))
    return found


def value(summary: TraceSummary, number: float) -> str:
    """An RTT in ms, a bandwidth in Mbit/s, with four digits that count."""
    return f"{_digits(number * 1e3)} ms" if summary.quantity == "rtt" else f"{_digits(number / 1e6)} Mbit/s"


def duration(seconds: float) -> str:
    """Seconds, minutes, hours or days, whichever keeps the number small."""
    length_s, unit = time_unit(seconds)
    return f"{_digits(seconds / length_s)} {unit}"


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit that keeps the number small: its length in seconds, and its name."""
    return next(((length_s, unit) for length_s, unit in _UNITS if seconds > 2 * length_s), (1.0, "s"))


def _digits(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= _MANY else f"{number:.4g}"
