"""The benchmark of the batched server: both sides do the same work, and the ratios are what they say."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import numpy as np
import pytest

from benchmarks import batch_server
from benchmarks.batch_server import BARS, COST, LOAD, SIZE, Work
from simnmt.batching import top_up
from simnmt.world.batch_pool import decode_all


def test_the_load_is_that_share_of_what_the_server_manages_at_most() -> None:
    work = Work.of(top_up(SIZE, 16), 20, 4_000)
    most_rps = len(work.src_len) / decode_all(work.batching, COST, work.src_len, work.tgt_len).total_s
    assert 1.0 / np.diff(work.arrival_s).mean() == pytest.approx(LOAD * most_rps, rel=0.05)
    assert work.tgt_len.mean() == pytest.approx(20, rel=0.05)
    decoded = work.jumping()
    assert decoded.finish_s.tolist() == work.counting().finish_s
    assert SIZE / 2 < decoded.account.mean_active < SIZE


def test_the_yardstick_is_a_device_that_small_batches_do_not_fill() -> None:
    """FNI-18 asks for step(128) / step(8) far below 16."""
    assert COST.steps_at(128)(20, 20) / COST.steps_at(8)(20, 20) < 2.5


def test_ratios_are_those_of_the_least_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jumping server takes a second, the counting one 2 s, and half of that in the second round."""
    calls: dict[str, int] = {}

    def cpu_s(run: Any) -> float:
        calls[run.__name__] = calls.get(run.__name__, 0) + 1
        first = calls[run.__name__] <= 6
        return 1.0 if run.__name__ == "jumping" else 2.0 if first else 1.0

    monkeypatch.setattr(batch_server, "cpu_s", cpu_s)
    assert batch_server.measure(1, 100)["M20_over_countdown"] == 2.0
    calls.clear()
    figures = batch_server.measure(2, 100)
    assert figures["M200_over_countdown"] == 1.0
    assert figures["M20_steps_per_second"] == figures["M20_countdown_steps_per_second"]
    assert calls == {"jumping": 12, "counting": 12}


def test_servers_that_disagree_give_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Work, "jumping", lambda work: decode_all(work.batching, COST, work.src_len, work.tgt_len))
    with pytest.raises(AssertionError, match="disagree"):
        batch_server.measure(1, 100)


def test_every_bar_is_about_a_figure_and_figures_survive_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.batch_server", "--json", "--sentences", "200", "--rounds", "1"])
    batch_server.main()
    figures = json.loads(capsys.readouterr().out)
    assert set(BARS) <= set(figures)
    assert all(math.isfinite(value) for value in figures.values() if isinstance(value, float))
    monkeypatch.setattr(sys, "argv", ["benchmarks.batch_server", "--sentences", "100", "--rounds", "1"])
    batch_server.main()
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(lines) == list(figures)
    assert lines["M200_over_countdown"].endswith("asked: >= 4.0")
