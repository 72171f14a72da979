"""What a sweep varies, from options and from a sweep file, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from simnmt.scenario.document import Override
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.sweep_configuration import parse_sample, parse_swept_key, read_sweep


def values(text: str) -> list[object]:
    return [node.plain() for node in parse_swept_key(text).values]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("devices.cloud.count=1,2,4", [1, 2, 4]),
        ("devices.cloud.count=2:8:4", [2, 4, 6, 8]),
        ("fit.share=0.1:0.9:9", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        ("devices.cloud.profile=@a,b.json", ["@a", "b.json"]),
        ("devices.cloud.batching=null,{kind: top_up, size: 8}", [None, {"kind": "top_up", "size": 8}]),
        ("devices.cloud.profile='a,b',\"c\"", ["a,b", "c"]),
        ("foresee_misroutes=true,false", [True, False]),
        ("policies.mine=[1, 2],[3]", [[1, 2], [3]]),
    ],
)
def test_values_are_yaml_between_commas_or_evenly_spaced_numbers(text: str, expected: list[object]) -> None:
    parsed = values(text)
    assert parsed == expected
    assert list(map(type, parsed)) == list(map(type, expected))


def test_a_dotted_key_may_quote_parts() -> None:
    key = parse_swept_key('workloads."load-0.2".end_nodes=1,2')
    assert (key.location, key.name) == (("workloads", "load-0.2", "end_nodes"), 'workloads."load-0.2".end_nodes')


def test_a_span_gives_every_share_a_number_between_its_ends() -> None:
    key = parse_swept_key("fit.share=0.2:0.6")
    assert [key.at(share).plain() for share in (0.0, 0.5)] == [0.2, 0.4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "nothing is swept"),
        (("devices.cloud.count",), "no '='"),
        (("devices.cloud.count=",), "an empty value"),
        (("devices.cloud.count=1,,2",), "an empty value"),
        (("devices.cloud.count=8:2:4",), "devices.cloud.count: 8 to 2 runs backwards"),
        (("devices.cloud.count=2:2:4",), "devices.cloud.count: 2 to 2 is one value"),
        (("devices.cloud.count=2:8:1",), "devices.cloud.count: 2 to 8 in 1 values"),
        (("devices.cloud.count=2:8",), "devices.cloud.count: a span of numbers without their number"),
        (("devices.cloud.count=2,2",), "devices.cloud.count: 2 twice"),
        (("devices.cloud.count=1,2", "devices.cloud.count=3"), "devices.cloud.count is swept twice"),
        (("devices.cloud.count=1,2", "devices={}"), "devices.cloud.count is a part of devices, which is swept too"),
        (("device.cloud.count=1,2",), "device.cloud.count: unknown key"),
        (("name=a,b",), "name cannot be swept: it changes no number of a run"),
        (("seed=1:400:400", "requests=1:400:400"), "160,000 points, more than 100,000"),
    ],
)
def test_an_empty_or_contradictory_grid_is_one_line(options: tuple[str, ...], message: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        read_sweep("@open-loop", options)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not options or len(options) > 1 or str(refused.value).startswith(f"--grid {options[0]}: ")


def test_a_key_is_not_swept_and_set() -> None:
    with pytest.raises(ScenarioError, match="seed is swept, and set to one value by --set seed=3"):
        read_sweep("@open-loop", ["seed=1,2"], None, [Override.parse("seed=3")])
    inside = read_sweep("@open-loop", ["devices.cloud.count=1,2"], None, [Override.parse("devices.cloud={profile: a}")])
    assert len(inside.overrides) == 1


@pytest.mark.parametrize("text", ["sobol", "sobol:0", "sobol:x", "halton:8", "sobol:1000000"])
def test_a_sample_has_a_known_name_and_size(text: str) -> None:
    with pytest.raises(ScenarioError, match="is no sample"):
        parse_sample(text)


def test_a_sample_as_large_as_its_grid_is_refused() -> None:
    with pytest.raises(ScenarioError, match="--sample sobol:4 of 4 combinations"):
        read_sweep("@open-loop", ["seed=1,2", "requests=10,20"], "sobol:4")
    assert read_sweep("@open-loop", ["seed=1,2", "requests=10,20"], "sobol:3").sample == 3


SWEEP = """\
scenario: near.yaml
set:
  requests: 500
grid:
  devices.cloud.count: [1, 2]
  networks.cp1.rtt_mean_ms: {from: 20, to: 60, steps: 3}
"""


def written(folder: Path, text: str) -> str:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return str(path)


def test_a_sweep_file_names_its_scenario_beside_it(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path, SWEEP))
    assert sweep.scenario == str(tmp_path / "near.yaml")
    assert [key.name for key in sweep.keys] == ["devices.cloud.count", "networks.cp1.rtt_mean_ms"]
    assert [[node.plain() for node in key.values] for key in sweep.keys] == [[1, 2], [20, 40, 60]]
    assert [(override.location, override.node.plain()) for override in sweep.overrides] == [(("requests",), 500)]
    sampled = read_sweep(written(tmp_path, SWEEP.replace(", steps: 3", "") + "sample: {sobol: 16}\n"), ["seed=1,2"])
    assert (sampled.sample, len(sampled.keys)) == (16, 3)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("grid:", "grdi:"), ":4:1: grdi: unknown key (did you mean grid?)"),
        (("[1, 2]", "[]"), ":5:3: devices.cloud.count: no values"),
        (("[1, 2]", "[1, 1]"), ":5:3: devices.cloud.count: 1 twice"),
        (("from: 20", "from: 90"), ":6:3: networks.cp1.rtt_mean_ms: 90 to 60 runs backwards"),
        (("steps: 3", "steps: 1"), ':6:55: grid."networks.cp1.rtt_mean_ms".steps: must be >= 2, got 1'),
        (("devices.cloud.count", "device.count"), ":5:3: device.count: unknown key"),
    ],
)
def test_faults_of_a_sweep_file_name_their_line(tmp_path: Path, changed: tuple[str, str], message: str) -> None:
    path = written(tmp_path, SWEEP.replace(*changed))
    with pytest.raises(ScenarioError) as refused:
        read_sweep(path)
    assert str(refused.value).startswith(path + message), str(refused.value)
