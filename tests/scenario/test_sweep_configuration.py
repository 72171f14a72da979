"""What a sweep varies, from options and from a sweep file, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from simnmt.scenario.document import Override
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.sweep_configuration import read_sweep
from simnmt.scenario.varied_keys import parse_varied_key


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "nothing is swept"),
        (("fit.share=0.2:0.8",), "fit.share: a span of numbers without their number"),
        (("devices.cloud.count=1,2", "devices.cloud.count=3"), "devices.cloud.count is varied twice"),
        (("devices.cloud.count=1,2", "devices={}"), "devices.cloud.count is a part of devices, which is varied too"),
        (("name=a,b",), "name cannot be varied: it changes no number of a run"),
        (("seed=1:20000000",), "seed: 1 to 20000000 holds more than 100,000 values"),
        (("seed=1:400:400", "requests=1:400:400"), "160,000 points, more than 100,000"),
    ],
)
def test_an_empty_or_contradictory_grid_is_one_line(options: tuple[str, ...], message: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        read_sweep("@open-loop", [parse_varied_key(text, "--grid") for text in options])
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not options or len(options) > 1 or str(refused.value).startswith(f"--grid {options[0]}: ")


def test_a_span_of_whole_numbers_is_their_list() -> None:
    (key,) = read_sweep("@open-loop", ["devices.cloud.count=2:5"]).keys
    assert [node.plain() for node in key.values] == [2, 3, 4, 5]


def test_a_key_is_not_swept_and_set() -> None:
    with pytest.raises(ScenarioError, match="seed is varied, and set to one value by --set seed=3"):
        read_sweep("@open-loop", ["seed=1,2"], [Override.parse("seed=3")])
    inside = read_sweep("@open-loop", ["devices.cloud.count=1,2"], [Override.parse("devices.cloud={profile: a}")])
    assert len(inside.overrides) == 1


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
    assert type(sweep.keys[1].values[0].plain()) is int
    assert [(override.location, override.node.plain()) for override in sweep.overrides] == [(("requests",), 500)]


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
