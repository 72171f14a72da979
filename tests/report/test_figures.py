"""What the figures hold before anybody draws them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.report import figures, page_template


def with_log(cell: Any, **columns: Any) -> Any:
    """The same cell with columns of every log replaced."""
    return replace(cell, logs={name: {**log, **columns} for name, log in cell.logs.items()})


def test_requests_that_never_ended_have_no_latency(result: Any) -> None:
    cell = result.cells[0]
    requests = cell.logs["edge"]["latency_s"].size
    lost = with_log(cell, outcome=np.ones(requests, np.int8), latency_s=np.full(requests, np.nan))
    assert figures.latency(lost.logs)["ms"] == [[]] * 5


def test_the_offloaded_share_over_length_adds_up_to_the_share_of_all(result: Any) -> None:
    logs = result.cells[0].logs
    src_len = logs["cnmt"]["src_len"]
    share = figures.shares(logs)
    assert share["percent"][0] == [0.0] * len(share["src_len"])
    assert share["percent"][1] == [100.0] * len(share["src_len"])
    assert share["src_len"] == sorted(share["src_len"])
    assert np.interp(src_len, share["src_len"], share["percent"][4]).mean() == pytest.approx(
        100 * logs["cnmt"]["target"].mean(), abs=2
    )


def test_the_shares_of_all_devices_add_up_to_all_requests(result: Any) -> None:
    src_len = result.cells[0].logs["cnmt"]["src_len"]
    target = (np.arange(src_len.size) * 7 // 3 % 4).astype(np.int8)
    logs = {"p": {"src_len": src_len, "target": target}}
    share = figures.shares(logs, 4)
    by_device = np.array(share["by_device"])[:, 0]
    np.testing.assert_allclose(by_device.sum(0), 100.0, atol=0.1)
    np.testing.assert_allclose(100.0 - by_device[0], share["percent"][0], atol=0.1)
    shortest = src_len <= np.quantile(src_len, 1 / 30, method="lower")
    assert by_device[2, 0] == pytest.approx(100 * (target[shortest] == 2).mean(), abs=0.1)
    assert figures.shares(logs)["by_device"] is None


@pytest.mark.parametrize("requests", [1, 2, 7])
def test_a_handful_of_requests_is_enough(result: Any, requests: int) -> None:
    cell = result.cells[0]
    cell = replace(
        cell, logs={name: {key: values[:requests] for key, values in log.items()} for name, log in cell.logs.items()}
    )
    assert json.loads(page_template.embedded_json(figures.figures(cell, [], [])))["plane"]["targets"][1] == "1" * requests


@given(st.text())
def test_embedded_json_cannot_leave_its_script_element(text: str) -> None:
    embedded = page_template.embedded_json({"text": text})
    assert not set("<>&") & set(embedded)
    assert json.loads(embedded) == {"text": text}
