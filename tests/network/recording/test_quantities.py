from __future__ import annotations

import pytest

from simnmt.network.errors import TraceError
from simnmt.network.recording.recorder import RecordingPlan
from simnmt.network.trace_options import parse_bytes, parse_moment_s, parse_seconds


@pytest.mark.parametrize(
    ("text", "length_s"),
    [("600", 600), ("600s", 600), ("10m", 600), ("10 min", 600), ("2h", 7200), ("1d", 86_400), ("500ms", 0.5), ("0", 0)],
)
def test_lengths_of_time(text: str, length_s: float) -> None:
    assert parse_seconds(text, "--duration") == length_s


@pytest.mark.parametrize(("text", "size"), [("256kB", 256_000), ("1MB", 1_000_000), ("64KiB", 65_536), ("1000", 1000)])
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text, "--transfer") == size


@pytest.mark.parametrize(
    ("text", "unix_s"),
    [
        ("2018-05-03", 1_525_305_600),
        ("2018-05-03T15:00", 1_525_359_600),
        ("2018-05-03 15:00:30", 1_525_359_630),
        ("2018-05-03T15:00+02:00", 1_525_352_400),
        ("1525359600", 1_525_359_600),
    ],
)
def test_moments(text: str, unix_s: int) -> None:
    assert parse_moment_s(text, "--start") == unix_s


@pytest.mark.parametrize("text", ["", "ten", "10 parsecs", "-5s", "1e3", "nan", "inf", "5\nm"])
def test_what_is_no_quantity_is_refused_by_the_name_of_its_option(text: str) -> None:
    for read in (parse_seconds, parse_bytes):
        with pytest.raises(TraceError, match=r"^--duration .*is no such quantity") as refused:
            read(text, "--duration")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "yesterday", "2018-13-03", "03/05/2018", "12"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(TraceError, match=r"^--start .*is no date"):
        parse_moment_s(text, "--start")


@pytest.mark.parametrize(
    ("duration_s", "interval_s", "probes"), [(10, 1, 10), (0.5, 1, 1), (1, 0.1, 10), (10.5, 1, 11), (3, 0.03, 100)]
)
def test_probes_go_out_while_the_time_runs(duration_s: float, interval_s: float, probes: int) -> None:
    assert RecordingPlan("h", 1, duration_s, interval_s).probes == probes
