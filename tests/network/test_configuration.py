from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from simnmt.errors import InputError
from simnmt.network.configuration import NetworkConfiguration, input_paths, load_link, resolved

NETWORK = NetworkConfiguration.model_validate


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my.csv").write_text("time_s,rtt_ms\n0,50\n10,70\n")
    (tmp_path / "other.csv").write_text("t,r\n0,0.05\n10,0.07\n")
    return tmp_path


OTHER = {"csv": "other.csv", "time_column": "t", "rtt_column": "r", "rtt_unit": "s"}


@pytest.mark.parametrize("rtt", ["my.csv", {"csv": "my.csv"}, OTHER])
def test_every_form_of_a_file_gives_the_same_link(folder: Path, rtt: Any) -> None:
    link = load_link(NETWORK({"rtt": rtt, "uplink_mbps": 10}), folder, "office")
    assert link.rtt.rtt_s.tolist() == [0.05, 0.07]
    assert (link.rtt.name, link.rtt.kind) == ("office", "unstated")
    assert (link.uplink_bps, link.downlink_bps) == (10e6, 100e6)


def test_a_constant_needs_no_file(folder: Path) -> None:
    config = NETWORK({"rtt": {"constant_ms": 50}})
    assert load_link(config, folder, "lab").rtt.at_one(3.0) == 0.05
    assert input_paths(config, folder) == []
    assert resolved(config, folder) is config


def test_a_mean_may_be_set(folder: Path) -> None:
    link = load_link(NETWORK({"rtt": "my.csv", "rtt_mean_ms": 30}), folder, "office")
    assert link.rtt.rtt_s == pytest.approx([0.025, 0.035])


@pytest.mark.parametrize("rtt", ["my.csv", OTHER])
def test_resolved_paths_read_the_same_file_from_anywhere(folder: Path, rtt: Any) -> None:
    config = NETWORK({"rtt": rtt, "clock": "own"})
    absolute = resolved(config, folder)
    assert (
        input_paths(config, folder) == input_paths(absolute, Path("/nowhere")) == [folder / input_paths(config, folder)[0].name]
    )
    assert load_link(absolute, Path("/nowhere"), "x").rtt.rtt_s.tolist() == [0.05, 0.07]
    assert resolved(absolute, Path("/nowhere")) == absolute
    assert absolute.clock == "own"


def test_a_shipped_name_means_the_same_everywhere(folder: Path) -> None:
    config = NETWORK({"rtt": "@cp1"})
    assert resolved(config, folder) == config
    assert [path.name for path in input_paths(config, folder)] == ["cp1.csv"]
    with pytest.raises(InputError, match=r"did you mean @cp"):
        load_link(NETWORK({"rtt": "@cp11"}), folder, "x")


@pytest.mark.parametrize(
    ("given", "place", "said"),
    [
        ({"rtt": {"csv": "a", "time_colum": "x"}}, "rtt.time_colum", "Extra inputs"),
        ({"rtt": {"constant_ms": True}}, "rtt.constant_ms", "valid number"),
        ({"rtt": {"constant_ms": -1}}, "rtt.constant_ms", "greater than 0"),
        ({"rtt": {"constant_ms": 5, "csv": "x"}}, "rtt.csv", "Extra inputs"),
        ({"rtt": {}}, "rtt.csv", "required"),
        ({"rtt": {"csv": "x", "rtt_unit": "us"}}, "rtt.rtt_unit", "'ms' or 's'"),
        ({"rtt": 50}, "rtt", "{constant_ms: number}"),
        ({"rtt": " "}, "rtt", "name a file"),
        ({}, "rtt", "required"),
        ({"rtt": "x", "uplink_mbps": 0}, "uplink_mbps", "greater than or equal to"),
        ({"rtt": "x", "downlink_mbps": "100"}, "downlink_mbps", "valid number"),
        ({"rtt": "x", "uplink_mbps": float("inf")}, "uplink_mbps", "finite"),
        ({"rtt": "x", "rtt_mean_ms": 0}, "rtt_mean_ms", "greater than 0"),
        ({"rtt": "x", "clock": "spred"}, "clock", "'spread', 'arrival' or 'own'"),
        ({"rtt": "x", "bandwidth": 1}, "bandwidth", "Extra inputs"),
    ],
)
def test_one_complaint_at_the_key_that_is_wrong(given: Any, place: str, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        NETWORK(given)
    (error,) = caught.value.errors()
    assert ".".join(map(str, error["loc"])) == place
    assert said in error["msg"]


def test_the_schema_describes_every_key_and_form() -> None:
    schema = NetworkConfiguration.model_json_schema()
    assert all("description" in key for key in schema["properties"].values())
    assert len(schema["properties"]["rtt"]["anyOf"]) == 3
