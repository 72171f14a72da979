"""`simnmt validate`: what it refuses before it measures anything, and what it prints and writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.live import validation
from tests.refusals import assert_complaint


@pytest.mark.parametrize(
    "arguments",
    [
        ("@live-smoke", "--policies", "oracle"),
        ("@live-smok",),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_measured(simnmt: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    done = simnmt("validate", *arguments)
    assert (done.status, done.out) == (2, "")
    assert_complaint(done.err)


@pytest.mark.parametrize(("within", "status"), [("5%", 0), ("1%", 3)])
def test_the_result_is_printed_written_and_judged(
    simnmt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, within: str, status: int
) -> None:
    live, structural, predicted = (validation.Figures(mean, mean, mean, 0.5) for mean in (1.0, 1.02, 1.4))
    row = validation.Comparison("lan", "cnmt", live, live, structural, predicted, (1.0,), (), False)
    made = validation.Validation("mine <1>", 1, 10, [row], [validation.Ranking("lan", ("cnmt",), ("cnmt",), ())])
    monkeypatch.setattr(validation, "validate", lambda plan, **options: made)
    done = simnmt("validate", "@live-smoke", "--within", within, "--out", str(tmp_path / "out"))
    assert done.status == status
    assert "+2.0" in done.out and "+40.0" in done.out
    assert json.loads((tmp_path / "out" / "validation.json").read_text())["rows"][0]["errors"]["structural"]["mean_s"] > 0.019
    page = (tmp_path / "out" / "validation.html").read_text()
    assert "+40.0" in page and "mine &lt;1&gt;" in page
