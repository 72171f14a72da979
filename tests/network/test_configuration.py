from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from simnmt.base.configuration import input_files, with_absolute_paths
from simnmt.base.errors import InputError
from simnmt.network.configuration import NetworkConfiguration, load_network
from simnmt.network.series import BandwidthSeries
from simnmt.scenario.template import DescribedSchema

NETWORK = NetworkConfiguration.model_validate


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my.csv").write_text("time_s,rtt_ms\n0,50\n10,70\n")
    (tmp_path / "other.csv").write_text("t,r\n0,0.05\n10,0.07\n")
    return tmp_path


OTHER = {"csv": "other.csv", "time_column": "t", "rtt_column": "r", "rtt_unit": "s"}


@pytest.mark.parametrize("rtt", ["my.csv", {"csv": "my.csv"}, OTHER])
def test_every_form_of_a_file_gives_the_same_link(folder: Path, rtt: Any) -> None:
    link = load_network(NETWORK({"rtt": rtt, "uplink_mbps": 10}), folder, "office").link
    assert link.rtt.rtt_s.tolist() == [0.05, 0.07]
    assert (link.rtt.name, link.rtt.kind) == ("office", "unstated")
    assert (link.uplink_bps, link.downlink_bps) == (10e6, 100e6)


def test_a_constant_needs_no_file_and_a_mean_may_be_set(folder: Path) -> None:
    config = NETWORK({"rtt": {"constant_ms": 50}})
    assert load_network(config, folder, "lab").link.rtt.at_one(3.0) == 0.05
    assert input_files(config, folder) == {}
    assert with_absolute_paths(config, folder) == config
    link = load_network(NETWORK({"rtt": "my.csv", "rtt_mean_ms": 30}), folder, "office").link
    assert link.rtt.rtt_s == pytest.approx([0.025, 0.035])


@pytest.mark.parametrize("rtt", ["my.csv", OTHER])
def test_resolved_paths_read_the_same_file_from_anywhere(folder: Path, rtt: Any) -> None:
    config = NETWORK({"rtt": rtt, "clock": "own"})
    absolute = with_absolute_paths(config, folder)
    path = folder / (rtt if isinstance(rtt, str) else rtt["csv"])
    assert input_files(config, folder) == input_files(absolute, Path("/nowhere")) == {str(path): path}
    assert load_network(absolute, Path("/nowhere"), "x").link.rtt.rtt_s.tolist() == [0.05, 0.07]
    assert with_absolute_paths(absolute, Path("/nowhere")) == absolute
    (folder / "link.csv").symlink_to(path)
    linked = with_absolute_paths(NETWORK({"rtt": "link.csv"}), folder)
    assert [path.name for path in input_files(linked, Path("/nowhere")).values()] == ["link.csv"]


def test_a_shipped_name_means_the_same_everywhere(folder: Path) -> None:
    config = NETWORK({"rtt": "@cp1"})
    assert with_absolute_paths(config, folder) == config
    assert [(name, path.name) for name, path in input_files(config, folder).items()] == [("@cp1", "cp1.csv")]
    with pytest.raises(InputError, match=r"did you mean @cp"):
        load_network(NETWORK({"rtt": "@cp11"}), folder, "x")


@pytest.mark.parametrize(
    ("given", "place", "message"),
    [
        ({"rtt": {"csv": "a", "time_colum": "x"}}, "rtt.time_colum", "Extra inputs"),
        ({"rtt": {"csv": "x", "rtt_unit": "us"}}, "rtt.rtt_unit", "Input should be"),
        ({"rtt": "x", "uplink_mbps": True}, "uplink_mbps", "valid number"),
        ({"rtt": "x", "downlink_mbps": {"csv": "x", "unit": "mb"}}, "downlink_mbps.unit", "'mbps', 'kbps' or 'bps'"),
        ({"rtt": "x", "uplink_mbps": float("inf")}, "uplink_mbps", "finite"),
        ({"rtt": "x", "bandwidth": 1}, "bandwidth", "Extra inputs"),
        ({"rtt": "x", "hops": {"hub": []}}, "hops.hub", "give a link"),
    ],
)
def test_one_complaint_at_the_key_that_is_wrong(given: Any, place: str, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        NETWORK(given)
    (error,) = caught.value.errors()
    assert ".".join(str(key) for key in error["loc"] if key not in ("CsvRtt", "CsvBandwidth", "number")) == place
    assert message in error["msg"]


@pytest.fixture
def bandwidth(folder: Path) -> Path:
    (folder / "rate.csv").write_text("time_s,mbps\n0,8\n1,0\n2,16\n")
    (folder / "cell.csv").write_text("t,dl_kbps,ul\n0,8000,8e6\n1000,,\n2000,16000,16e6\n")
    return folder


@pytest.mark.parametrize(
    "form",
    [
        "rate.csv",
        {"csv": "rate.csv", "unit": "mbps"},
        {"csv": "cell.csv", "time_column": "t", "time_unit": "ms", "column": "dl_kbps"},
        {"csv": "cell.csv", "time_column": "t", "time_unit": "ms", "column": "ul", "unit": "bps"},
    ],
)
def test_a_bandwidth_may_be_a_series(bandwidth: Path, form: Any) -> None:
    config = NETWORK({"rtt": {"constant_ms": 50}, "downlink_mbps": form})
    link = load_network(config, bandwidth, "cell").link
    assert isinstance(link.downlink_bps, BandwidthSeries)
    assert link.uplink_bps == 100e6
    assert [link.downlink_bps.at_one(at_s) for at_s in (0.0, 1.5, 2.9, 3.0)] == [8e6, 8e6, 16e6, 8e6]
    assert (link.downlink_bps.lost, link.downlink_bps.name) == (1, "cell, downlink")


def test_nearer_tiers_have_links_of_their_own(bandwidth: Path) -> None:
    wifi = [{"rtt": {"constant_ms": 3}}, {"rtt": "my.csv", "rtt_mean_ms": 6, "uplink_mbps": "rate.csv"}]
    config = NETWORK({"rtt": OTHER, "hops": {"gateway": wifi, "hub": {"rtt": {"constant_ms": 9}}}})
    network = load_network(config, bandwidth, "office")
    assert {device: len(links) for device, links in network.hops.items()} == {"gateway": 2, "hub": 1}
    first, second = network.hops["gateway"]
    assert (first.rtt.mean_s, second.rtt.mean_s, network.link.rtt.mean_s) == pytest.approx((0.003, 0.006, 0.06))
    assert isinstance(second.uplink_bps, BandwidthSeries)
    names = [network.link.rtt.name, first.rtt.name, second.rtt.name, network.hops["hub"][0].rtt.name]
    assert names == ["office", "office to gateway, 1", "office to gateway, 2", "office to hub"]
    assert [path.name for path in input_files(config, bandwidth).values()] == ["other.csv", "my.csv", "rate.csv"]
    absolute = with_absolute_paths(config, bandwidth)
    assert input_files(absolute, Path("/nowhere")) == input_files(config, bandwidth)
    assert with_absolute_paths(absolute, Path("/nowhere")) == absolute


def test_a_file_that_cannot_be_used_is_read_within_the_name_of_its_key(folder: Path) -> None:
    failed = []

    @contextmanager
    def named_by(*location: str | int) -> Iterator[None]:
        try:
            yield
        except InputError:
            failed.append(location)
            raise

    hub = [{"rtt": "my.csv"}, {"rtt": "my.csv", "uplink_mbps": "none.csv"}]
    for network in ({"rtt": "none.csv"}, {"rtt": "my.csv", "hops": {"hub": hub}}):
        with pytest.raises(InputError, match="none"):
            load_network(NETWORK(network), folder, "office", named_by)
    assert failed == [("rtt",), ("hops", "hub", 1, "uplink_mbps")]


def test_the_schema_describes_every_key_and_form() -> None:
    schema = NetworkConfiguration.model_json_schema(schema_generator=DescribedSchema)
    assert all("description" in key for key in schema["properties"].values())
    assert len(schema["properties"]["rtt"]["anyOf"]) == 3
    assert len(schema["properties"]["uplink_mbps"]["anyOf"]) == 3
    assert all("description" in key for part in schema["$defs"].values() for key in part["properties"].values())
