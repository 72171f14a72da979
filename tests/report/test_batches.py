"""What a run's page says and draws of batches, and that a run without them has nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.report.figures import batches
from simnmt.report.page import render
from simnmt.report.run_tables import batch_table
from simnmt.results.device_accounts import BatchAccount

from .conftest import view_of

SIZE = 4
SAID = {
    "mean_batch": 2.5, "full_share": 0.25, "below_8_share": 1.0, "padding_share": 0.104,
    "busy_share": 0.75, "mean_queue_s": 0.0125, "first_token_mean_s": 0.031,
    "first_token_p95_s": 0.062, "sentences_per_s": 41.2, "tokens_per_s": 1048.0,
    "busy_sentences_per_s": 55.0, "busy_tokens_per_s": None,
}  # fmt: skip
DRAWN = "id => [...document.querySelectorAll(`#${id} figure`)].every(figure => figure.dataset.drawn)"


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


def sizes(cell: Any) -> Any:
    """The marks of the figure of batch sizes."""
    (drawn,) = batches(view_of(cell))
    return drawn.chart.marks


def test_shares_of_steps_are_the_accounts(batched: Any) -> None:
    steps = {mark.name: mark for mark in sizes(batched.cells[0])}
    assert [*steps] == ["cloud", "cnmt"], "nothing was decoded there under the others"
    assert steps["cloud"].text == ["1", "2", "3", "4"] and steps["cloud"].y == [10.0, 20.0, 30.0, 40.0]


def test_large_batches_are_grouped_and_nothing_is_lost(batched: Any) -> None:
    size = 130
    big = account(tuple(range(1, size + 1)), size)
    (drawn,) = sizes(replace(batched.cells[0], batches={"cloud": (None, big)}))
    ends = [[int(end) for end in text.split(" to ")] for text in drawn.text]
    assert len(ends) <= 64 and (ends[0][0], ends[-1][-1]) == (1, size)
    assert [group[0] - 1 for group in ends[1:]] == [group[-1] for group in ends[:-1]]
    assert sum(drawn.y) == pytest.approx(100.0, abs=0.1)


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
    assert batches(view_of(result.cells[0])) == []
    text = render(result)
    for word in ('data-figure="sizes"', 'data-table="batches"'):
        assert word not in text


@pytest.mark.deep
def test_batches_are_drawn_and_fit_a_phone(batched: Any, open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "batched.html"
    file.write_text(render(batched), encoding="utf-8")
    with open_page(file, viewport={"width": 390, "height": 844}) as opened:
        page = opened.page
        page.wait_for_function(DRAWN, arg="cell-0")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        traces = "figure => figure.querySelector('.chart').data.map(({ name, x, y }) => ({ name, x, y }))"
        figure = page.locator("#cell-0-sizes")
        shown = figure.evaluate(traces)
        assert [trace["name"] for trace in shown] == ["cloud", "cnmt"]
        assert shown[0]["y"] == [10, 20, 30, 40]
        lines = "figure => figure.querySelector('.chart').data.map(({ line, marker }) => [line.dash, marker.symbol].join())"
        assert len(set(figure.evaluate(lines))) == 2, "told apart without colour"
        assert (
            page.locator('[data-table=batches] tr[data-row="cnmt"] [data-column="tokens_per_s"]').text_content() == "1\u202f048"
        )
        page.set_viewport_size({"width": 1280, "height": 900})
        page.wait_for_function("() => document.documentElement.scrollWidth === 1280")
        assert opened.problems == []
