"""Figures stay as they were while the code is rewritten; each frozen set also obeys what must hold of any."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.campaigns.harness import deep
from tests.goldens.frozen import (
    FULL_REPRODUCTIONS,
    REPRODUCTIONS,
    SCENARIOS,
    differences,
    path_of,
    reproduction_figures,
    scenario_figures,
)
from tests.worlds import needs_compiled


def read(name: str) -> Any:
    return json.loads(path_of(name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("engine", [pytest.param("compiled", marks=needs_compiled), "reference"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_shipped_scenario_gives_the_figures_that_it_gave(name: str, engine: str) -> None:
    assert list(differences(read(name), scenario_figures(name, engine)))[:20] == []


@pytest.mark.parametrize("name", [*REPRODUCTIONS, "sharp", *map(deep, FULL_REPRODUCTIONS)])
def test_a_reproduction_gives_the_verdicts_and_numbers_that_it_gave(name: str) -> None:
    assert list(differences(read(name), reproduction_figures(name)))[:20] == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_latency_is_the_sum_of_its_parts(name: str) -> None:
    for cell, columns in read(name)["requests"].items():
        for kind in ("sum", "weighted"):
            lost = {"retry_s"} & columns.keys()
            parts = sum(columns[part][kind] for part in ("t_queue_s", "t_exe_s", "t_tx_s", *lost))
            assert columns["latency_s"][kind] == pytest.approx(parts, rel=1e-9), cell


@pytest.mark.parametrize("name", SCENARIOS)
def test_policies_meet_the_same_sentences(name: str) -> None:
    lengths: dict[str, Any] = {}
    for cell, columns in read(name)["requests"].items():
        workload, _network, _policy = cell.split("/")
        same = (columns["src_len"], columns["tgt_len"])
        assert lengths.setdefault(workload, same) == same, cell


def test_a_changed_figure_is_seen() -> None:
    assert list(differences({"a": 1.0, "b": 3}, {"a": 1.0 + 1e-8, "b": 4})) == [
        "/a: 1.0 before, 1.00000001 now",
        "/b: 3 before, 4 now",
    ]
    assert list(differences({"a": 1.0}, {"a": 1.0 + 1e-11})) == []
    assert list(differences({"a": 1}, {"b": 1})) == ["/a: only before", "/b: only now"]
