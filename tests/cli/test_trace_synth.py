"""`simnmt trace synth`: fit, draw, judge."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.network.series_csv import read_rtt_csv

Simnmt = Callable[..., Any]
STEP_S = 60.0
SAMPLES = 3_000


@pytest.fixture
def measured(folder: Path) -> Path:
    """Two routes, a queue, some late packets; a log with names of its own and a lost sample."""
    random = np.random.default_rng(1)
    route_ms = np.where(np.arange(SAMPLES) // 250 % 3 == 1, 60.0, 40.0)
    rtt_ms = route_ms + random.exponential(0.5, SAMPLES)
    late = random.choice(SAMPLES, 60, replace=False)
    rtt_ms[late] += random.uniform(30, 90, 60)
    rows = [f"{1_500_000_000 + STEP_S * i:.0f},{'' if i == 7 else f'{rtt:.3f}'}" for i, rtt in enumerate(rtt_ms.tolist())]
    Path("log.csv").write_text("\n".join(["epoch_s,rtt_ms", *rows]) + "\n")
    return Path("log.csv")


def test_what_is_drawn_is_a_series_that_a_scenario_reads(measured: Path, simnmt: Simnmt) -> None:
    done = simnmt("trace", "synth", "--like", str(measured), "--hours", "6", "--out", "drawn.csv")
    assert (done.status, done.err) == (0, "")
    assert "wrote drawn.csv: 360 samples, 6 h, seed 1, none lost" in done.out
    series = read_rtt_csv("drawn.csv")
    assert (series.kind, series.duration_s, series.lost) == ("synthetic", 6 * 3600.0, 0)
    assert "drawn with seed 1" in series.source and "log.csv" in series.source
    again = simnmt("trace", "synth", "--like", str(measured), "--hours", "6", "--out", "drawn.csv", "--force")
    assert "replaced drawn.csv" in again.out


def test_parameters_that_were_kept_draw_the_same_bytes(measured: Path, simnmt: Simnmt) -> None:
    simnmt("trace", "synth", "--like", str(measured), "--params-out", "p.json", "--out", "a.csv", "--seed", "5")
    simnmt("trace", "synth", "--params", "p.json", "--out", "b.csv", "--seed", "5")
    simnmt("trace", "synth", "--params", "p.json", "--out", "c.csv", "--seed", "6")
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes() != Path("c.csv").read_bytes()
    assert len(read_rtt_csv("a.csv").rtt_s) == SAMPLES
    assert json.loads(Path("p.json").read_text())["schema_version"] == 1


def test_the_judgement_says_how_many_draws_are_alike(measured: Path, simnmt: Simnmt) -> None:
    done = simnmt("trace", "synth", "--like", str(measured), "--json")
    assert (done.status, done.err) == (0, "")
    rows = {row["of"]: row for row in json.loads(done.out)["judgement"]}
    itself, drawn = rows["the series itself"], rows["drawn from its fit"]
    rtt_s = np.array([float(line.split(",")[1]) for line in measured.read_text().splitlines()[1:] if line[-1] != ","]) / 1e3
    assert itself["p99_s"] == pytest.approx(np.quantile(rtt_s, 0.99), rel=0.01)
    assert itself["lag_1"] == pytest.approx(np.corrcoef(rtt_s[1:], rtt_s[:-1])[0, 1], abs=0.01)
    assert drawn["draws"] == 20 and drawn["held"] >= 15
    assert rows["drawn from a fit to the first half"]["draws"] == 20
    assert rows["the first half as it is"]["draws"] == 1
    text = simnmt("trace", "synth", "--like", str(measured)).out
    assert f"{drawn['held']} of 20" in text and "2 levels" in text


def test_an_unseen_series_is_judged_by_instead_of_halves(measured: Path, simnmt: Simnmt) -> None:
    rows = [f"{STEP_S * i:.0f},{200 + i % 7}" for i in range(100)]
    Path("far.csv").write_text("\n".join(["epoch_s,rtt_ms", *rows]) + "\n")
    done = simnmt("trace", "synth", "--like", str(measured), "--judge", "far.csv", "--json")
    judged = {row["of"]: row for row in json.loads(done.out)["judgement"]}
    assert set(judged) == {"the series itself", "drawn from its fit", "far", "drawn"}
    assert judged["far"]["p50_s"] == pytest.approx(0.203)
    assert judged["drawn"]["held"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give either a series with --like or a process with --params"),
        (["--like", "log.csv", "--params", "p.json"], "give either"),
        (["--like", "none.csv"], "none.csv"),
        (["--params", "none.json"], "none.json: cannot be read"),
        (["--params", "log.csv"], "log.csv: invalid JSON"),
        (["--like", "log.csv", "--out", "log.csv"], "log.csv would replace what is read"),
        (["--params", "p.json", "--judge", "log.csv", "--out", "hard.csv"], "hard.csv would replace what is read"),
        (["--like", "log.csv", "--out", "x", "--params-out", "./x"], "name the same file"),
        (["--like", "log.csv", "--hours", "0"], "cannot draw 0 h"),
        (["--like", "log.csv", "--hours", "nan"], "cannot draw nan h"),
        (["--like", "log.csv", "--hours", "1e9"], "cannot draw 1e+09 h"),
        (["--like", "log.csv", "--out", "no/where.csv"], "no/where.csv: cannot be written"),
        (["--like", "short.csv"], "has 3 samples"),
    ],
)
def test_wrong_input_is_one_line(measured: Path, simnmt: Simnmt, arguments: list[str], said: str) -> None:
    Path("short.csv").write_text("time_s,rtt_ms\n0,40\n1,41\n2,42\n")
    os.link(measured, "hard.csv")
    before = measured.read_bytes()
    done = simnmt("trace", "synth", *arguments)
    assert done.status == 2
    assert said in done.err and done.err.count("\n") == 1
    assert measured.read_bytes() == before


def test_both_files_are_written_or_neither(measured: Path, simnmt: Simnmt) -> None:
    Path("taken").mkdir()
    for arguments in (["--out", "taken", "--params-out", "p.json"], ["--out", "s.csv", "--params-out", "taken"]):
        done = simnmt("trace", "synth", "--like", str(measured), *arguments)
        assert (done.status, done.out) == (2, "")
        assert "taken: cannot be written: Is a directory" in done.err
    assert not Path("p.json").exists() and not Path("s.csv").exists()


def test_a_log_longer_than_can_be_drawn_is_one_line(measured: Path, simnmt: Simnmt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simnmt.network.rtt_components.MOST_SAMPLES", 2_000)
    for hours in ([], ["--hours", "1"]):
        done = simnmt("trace", "synth", "--like", str(measured), *hours)
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert "has 3,000 samples" in done.err and "at most 2,000" in done.err
