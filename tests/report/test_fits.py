"""What was fitted beside what it is to stand for: the paper's figures 3 and 2a from what a run knows (CNMT-18)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simnmt.report.plane_figures import MOST_MEANS, execution_means, length_means, share_explained

FITS = [
    {"workload": "w", "of": "target length over source length", "samples": 1_873, "pairs_r2": 0.9, "pairs_mse": 13.5,
     "means_r2": 0.9996, "means_mse": 0.92},
    {"workload": "w", "of": "execution time on the gateway", "samples": 10_000, "r2": 0.85, "mse_ms2": 1.2},
    {"workload": "w", "of": "execution time on the cloud", "samples": 0},
]  # fmt: skip


def logs_of(cell: Any, **columns: Any) -> Any:
    return replace(cell, logs={name: {**log, **columns} for name, log in cell.logs.items()})


def test_means_and_deviations_per_source_length_are_those_of_the_pairs(result: Any) -> None:
    cell = result.cells[0]
    drawn = length_means(cell, FITS)
    assert drawn is not None
    src_len, tgt_len = cell.logs["edge"]["src_len"], cell.logs["edge"]["tgt_len"]
    assert drawn["src"] == np.unique(src_len).tolist()
    for place in (0, 20, len(drawn["src"]) - 1):
        there = tgt_len[src_len == drawn["src"][place]]
        assert drawn["pairs"][place] == there.size
        assert drawn["mean"][place] == pytest.approx(there.mean(), rel=1e-3)
        assert drawn["sd"][place] == (None if there.size == 1 else pytest.approx(there.std(ddof=1), rel=1e-2))
    assert drawn["line"] == [0.92, 1.4]
    assert "M = 0.92 N + 1.4, fitted on 1\u202f873 of the pairs" in drawn["words"]
    assert "R² >\u202f0.999 and a mean squared error of 0.92 tokens²" in drawn["words"]
    assert (src_len <= drawn["near"][0]).mean() >= 0.99


def test_a_corpus_that_is_not_at_hand_has_no_figure(result: Any) -> None:
    assert length_means(replace(result.cells[0], lengths=SimpleNamespace(name="elsewhere")), FITS) is None


def test_times_per_target_length_are_those_of_all_requests_where_a_policy_sent_all(result: Any) -> None:
    cell = result.cells[0]
    gateway, cloud = execution_means(cell, FITS)
    assert gateway is not None and cloud is not None
    for drawn, policy, plane in ((gateway, "edge", cell.planes[0]), (cloud, "cloud", cell.planes[1])):
        log = cell.logs[policy]
        assert sum(drawn["requests"]) == log["src_len"].size
        assert drawn["tgt"] == np.unique(log["tgt_len"]).tolist()
        for place in (0, 20):
            there = log["tgt_len"] == drawn["tgt"][place]
            time_ms = 1e3 * log["t_exe_s"][there]
            assert drawn["mean"][place] == pytest.approx(time_ms.mean(), rel=1e-3)
            assert drawn["sd"][place] == pytest.approx(time_ms.std(ddof=1), rel=1e-2)
            believed_ms = 1e3 * (plane[0] * log["src_len"][there] + plane[1] * log["tgt_len"][there] + plane[2])
            assert drawn["believed"][place] == pytest.approx(believed_ms.mean(), rel=1e-3)
    words = (
        "gateway: all 20\u202f000 requests under edge; the plane was fitted with R² 0.850 and a mean squared error of 1.2 ms²."
    )
    assert gateway["words"] == words
    assert cloud["words"].endswith("the plane is the profile's own.")


def test_where_no_policy_sent_all_the_requests_are_those_of_the_one_that_sent_most(result: Any) -> None:
    cell = result.cells[0]
    few = replace(cell, logs={policy: cell.logs[policy] for policy in ("oracle", "edge")})
    away = int((cell.logs["oracle"]["target"] == 1).sum())
    drawn = execution_means(few, FITS)[1]
    assert drawn is not None
    assert sum(drawn["requests"]) == away
    assert drawn["words"].startswith(f"cloud: the {away:,} requests sent there under oracle".replace(",", "\u202f"))
    assert execution_means(replace(cell, logs={"edge": cell.logs["edge"]}), FITS)[1] is None


def test_of_long_targets_neighbours_share_a_mean(result: Any) -> None:
    requests = result.cells[0].logs["edge"]["src_len"].size
    long = logs_of(result.cells[0], tgt_len=np.arange(requests) % 1_000 + 1, t_exe_s=np.ones(requests))
    drawn = execution_means(long, [])[0]
    assert drawn is not None
    assert len(drawn["tgt"]) == MOST_MEANS
    assert drawn["tgt"][:2] == [3.0, 8.0]
    assert (set(drawn["mean"]), set(drawn["sd"])) == ({1_000.0}, {0.0})
    assert "5 neighbouring M to a mean" in drawn["words"]


def test_one_request_is_enough_and_has_no_deviation(result: Any) -> None:
    cell = result.cells[0]
    one = replace(cell, logs={name: {key: values[:1] for key, values in log.items()} for name, log in cell.logs.items()})
    drawn = execution_means(one, [])[0]
    assert drawn is not None
    assert (drawn["requests"], drawn["sd"]) == ([1], [None])


@pytest.mark.parametrize(("r2", "text"), [(None, "\u2013"), (0.9994, "0.999"), (0.99999, ">\u202f0.999"), (1.0, "1.000")])
def test_no_fit_is_called_perfect_that_is_not(r2: float | None, text: str) -> None:
    assert share_explained(r2) == text
