"""What a run's page says of batches, and that a run without them has nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simnmt.report.page import render
from simnmt.report.run_tables import batch_table
from simnmt.results.device_accounts import BatchAccount

SIZE = 4
SAID = {
    "mean_batch": 2.5, "full_share": 0.25, "below_8_share": 1.0, "padding_share": 0.104,
    "busy_share": 0.75, "mean_queue_s": 0.0125, "first_token_mean_s": 0.031,
    "first_token_p95_s": 0.062, "sentences_per_s": 41.2, "tokens_per_s": 1048.0,
    "busy_sentences_per_s": 55.0, "busy_tokens_per_s": None,
}  # fmt: skip


def account(steps: tuple[int, ...], size: int = SIZE) -> BatchAccount:
    """So many steps with 1, 2, ... active; each takes 1 ms and one more per active sentence."""
    counts = np.array([0, *steps], np.int64)
    step_s = counts * (1 + np.arange(size + 1)) * 1e-3
    return BatchAccount(size, counts, step_s, 0.01, 0.002, 3, 2, 30, 36, 8)


@pytest.fixture
def batched(make_result: Callable[..., Any]) -> Any:
    """Two policies with batches in the cloud, one that sent nothing there, two without."""
    result = make_result(requests=500, networks=("cp1",), workloads=("office",), name="batched")
    accounts = {
        "cloud": (None, account((1, 2, 3, 4))),
        "cnmt": (None, account((10, 0, 0, 10))),
        "edge": (None, account((0, 0, 0, 0))),
    }
    result.cells[0] = replace(result.cells[0], batches=accounts)
    for row in result.summary_rows:
        row |= {f"cloud_{key}": value if row["policy"] in ("cloud", "cnmt") else None for key, value in SAID.items()}
    return result


def test_a_line_of_numbers_for_each_policy_that_used_the_device(batched: Any) -> None:
    table = batch_table(batched.cells[0], batched.summary_rows)
    assert table is not None
    lines = {line.name.text: {cell.key: (cell.text, cell.small) for cell in line.cells} for line in table.lines[()]}
    assert list(lines) == ["edge", "cloud", "cnmt"], "an account with sentences counts, even one without a step"
    assert lines["cnmt"] == {
        "mean_batch": ("2.5", ""), "full_share": ("25.0", ""), "below_8_share": ("100.0", ""), "padding_share": ("10.4", ""),
        "busy_share": ("75.0", ""), "mean_queue_s": ("12.5", ""), "first_token_mean_s": ("31", "p95 62"),
        "sentences_per_s": ("41.2", "55 while busy"), "tokens_per_s": ("1\u202f048", ""),
    }  # fmt: skip


def test_a_run_without_batches_has_nothing_of_them(make_result: Callable[..., Any]) -> None:
    result = make_result(requests=300, networks=("cp1",), workloads=("office",), name="plain")
    assert 'data-table="batches"' not in render(result)
