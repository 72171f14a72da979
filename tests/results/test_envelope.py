"""The badge of a run: inside, outside or never validated, and the nearest validated cell."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.results.envelope import Deployment, EngineKind, ValidatedCell, badge, distance, validated_cells

GRU = EngineKind("gru", "torch", "float32", 1)
PLACE = Deployment((GRU, GRU), (1, 1), ("alone", "alone"), "cnmt", 0.4, 0.025)


def cell(validation: str = "smoke", error: float = 0.03, **changes: object) -> ValidatedCell:
    place = replace(PLACE, **changes)  # type: ignore[arg-type]
    return ValidatedCell(validation, place.policy, "constant", place, error, 0.05, False)


CELLS = [cell(load=load, mean_rtt_s=rtt_s) for load in (0.2, 0.5) for rtt_s in (0.02, 0.08)]


def test_a_run_within_loads_and_round_trips_of_the_same_engines_is_inside() -> None:
    inside = badge(PLACE, CELLS)
    assert (inside.status, inside.reasons) == ("inside", ())
    assert inside.nearest == CELLS[2]
    assert "simulated mean +3.0 %" in inside.sentence


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"load": 0.9}, "load 0.9, validated 0.2 to 0.5"),
        ({"load": 0.1}, "load 0.1, validated 0.2 to 0.5"),
        ({"load": None}, "the answers set the pace"),
        ({"mean_rtt_s": 0.2}, "mean RTT 200 ms, validated 20 to 80 ms"),
        ({"policy": "naive"}, "policy naive was not validated"),
        ({"batching": ("alone", "mini")}, "batching alone, mini was not validated"),
        ({"boxes": (1, 3)}, "boxes"),
    ],
)
def test_each_difference_alone_makes_it_outside(change: dict[str, object], reason: str) -> None:
    outside = badge(replace(PLACE, **change), CELLS)  # type: ignore[arg-type]
    assert outside.status == "outside"
    assert len(outside.reasons) == 1
    assert reason in outside.reasons[0]
    assert outside.nearest is not None


def test_other_engines_were_never_validated() -> None:
    other = replace(PLACE, engines=(GRU, replace(GRU, compute_type="int8")))
    never = badge(other, CELLS)
    assert never.status == "never validated"
    assert never.reasons == (
        "no validation of a gateway with gru on torch float32, 1 thread, and gru on torch int8, 1 thread behind it; "
        "validated: a gateway with gru on torch float32, 1 thread, and gru on torch float32, 1 thread behind it",
    )
    assert "no validation of gru on torch float32, 1 thread alone;" in badge(replace(PLACE, engines=(GRU,)), CELLS).sentence
    assert badge(PLACE, []).sentence == "never validated live"
    assert badge(replace(PLACE, engines=(GRU, None)), CELLS).reasons == ("a device has no measured engine",)


def test_ranges_of_two_validations_are_not_joined() -> None:
    apart = [cell("low", load=0.2), cell("high", load=0.8)]
    assert badge(replace(PLACE, load=0.5), apart).status == "outside"
    assert badge(replace(PLACE, load=0.2), apart).status == "inside"


def test_the_nearest_cell_is_that_of_the_least_distance() -> None:
    assert distance(PLACE, PLACE) == 0.0
    assert distance(PLACE, replace(PLACE, load=0.8)) == pytest.approx(0.693, abs=1e-3)
    assert distance(PLACE, replace(PLACE, policy="edge")) == 1.0
    near = cell(load=0.3, error=0.5)
    assert badge(replace(PLACE, load=0.31), [*CELLS, near]).nearest == near


def test_void_cells_are_not_read_and_other_files_are_refused(tmp_path: Path) -> None:
    of_json = {
        "policy": "cnmt",
        "link": "constant",
        "deployment": asdict(PLACE),
        "raw_error_mean": 0.03,
        "spread_mean": None,
        "void": False,
    }
    folder = tmp_path / "validation" / "mine"
    folder.mkdir(parents=True)
    document = {"environment": {"busy": True}, "cells": [of_json, of_json | {"void": True}]}
    (folder / "validation.json").write_text(json.dumps(document))
    (one,) = validated_cells(tmp_path / "validation")
    assert one.deployment == PLACE
    assert "on a busy box" in one.describe()
    (tmp_path / "other" / "x").mkdir(parents=True)
    (tmp_path / "other" / "x" / "validation.json").write_text("{}")
    with pytest.raises(InputError, match="not a recorded validation"):
        validated_cells(tmp_path / "other")


def test_a_run_carries_its_badge() -> None:
    result = simnmt.run("@quickstart", requests=60, replications=1)
    assert [row["status"] for row in result.badges] == ["never validated"] * 2
    assert result.document()["badges"] == result.badges
    measured = simnmt.run("@live-smoke", requests=60)
    assert "a device has no measured engine" not in measured.badges[0]["reasons"]
