"""The notation of varied keys, the same in a sweep and in a plan."""

from __future__ import annotations

import pytest

from simnmt.experiment.deployment import VARIABLE
from simnmt.scenario.document import Override
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.varied_keys import (
    VariedKey,
    check_disjoint,
    check_grid,
    parse_varied_key,
    parse_varied_keys,
)


def values(key: VariedKey) -> list[object]:
    return list(key.values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("devices.cloud.count=1,2,4", [1, 2, 4]),
        ("devices.cloud.count=1:4", [1, 2, 3, 4]),
        ("devices.cloud.count=1:4:2", [1, 4]),
        ("devices.cloud.count=1:2:3", [1, 1.5, 2]),
        ("seed=9007199254740993:9007199254740995:3", [9007199254740993, 9007199254740994, 9007199254740995]),
        ("fit.share=0.1:0.9:9", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        ("devices.cloud.profile=@a,b.json", ["@a", "b.json"]),
        ("devices.cloud.batching=null,{kind: top_up, size: 8}", [None, {"kind": "top_up", "size": 8}]),
        ("devices.cloud.profile='a,b',\"c\"", ["a,b", "c"]),
        ("foresee_misroutes=true,false", [True, False]),
        ("policies.mine=[1, 2],[3]", [[1, 2], [3]]),
    ],
)
def test_values_are_yaml_between_commas_or_numbers_between_two_ends(text: str, expected: list[object]) -> None:
    parsed = values(parse_varied_key(text))
    assert parsed == expected
    assert list(map(type, parsed)) == list(map(type, expected))


@pytest.mark.parametrize("option", ["--grid", ""])
@pytest.mark.parametrize(
    "text",
    [
        "devices.cloud.count",
        "devices.cloud.count=",
        "devices.cloud.count=1,,2",
        "devices.cloud.count=8:2:4",
        "devices.cloud.count=2:2:4",
        "devices.cloud.count=2:8:1",
        "devices.cloud.count=2:8:-3",
        f"devices.cloud.count=1:8:{5_000 * '9'}",
        f"devices.cloud.count=1:{5_000 * '9'}",
        "fit.share=-1e308:1e308:3",
        "devices.cloud.count=1:20000000",
        "fit.share=0.2:0.6",
    ],
)
def test_a_wrong_key_or_value_is_one_short_line_that_names_its_option(text: str, option: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_varied_key(text, option).check(lambda part: True, "")
    line = str(refused.value)
    assert line.startswith(f"{option} {text[:90]}".strip()) and "\n" not in line and len(line) < 500


def test_a_key_of_the_run_is_fixed_but_one_of_a_device_with_the_same_name_is_not() -> None:
    with pytest.raises(ScenarioError):
        parse_varied_key("workloads.w.deadline_ms=1,2").check(VARIABLE.__contains__, "fixed")
    with pytest.raises(ScenarioError):
        parse_varied_key("sites.*.share=1,2").check(VARIABLE.__contains__, "fixed")
    parse_varied_key("devices.cloud.sti.deadline_ms=1,2").check(VARIABLE.__contains__, "fixed")
    parse_varied_key("sites.*.devices.gateway.profile=@a,@b").check(VARIABLE.__contains__, "fixed")
    with pytest.raises(ScenarioError):
        parse_varied_key("sites.x=1,2").check(VARIABLE.__contains__, "fixed")
    check_grid([parse_varied_key("workloads.w.deadline_ms=1,2")], [])


def test_two_keys_of_the_same_part_contradict_each_other() -> None:
    keys = [parse_varied_key(f"{key}=1,2") for key in ("devices.cloud.count", "devices.cloud.workers")]
    check_disjoint(keys)
    for text in ("devices.cloud.count=3", "devices={}"):
        with pytest.raises(ScenarioError):
            check_disjoint([*keys, parse_varied_key(text)])


def test_a_star_meets_the_key_of_one_site_and_the_key_that_sites_inherit() -> None:
    star = parse_varied_key("sites.*.devices.gateway.profile=@a,@b")
    check_disjoint([star, parse_varied_key("sites.berlin.devices.gateway.count=1,2")])
    for text in ("sites.berlin.devices.gateway.profile=@c", "devices.gateway.profile=@c"):
        for keys in ([star, parse_varied_key(text)], [parse_varied_key(text), star]):
            with pytest.raises(ScenarioError):
                check_disjoint(keys)


@pytest.mark.parametrize("options", [(), ("name=a,b",), ("seed=1:400:400", "requests=1:400:400")])
def test_an_empty_or_too_large_grid_is_refused(options: tuple[str, ...]) -> None:
    with pytest.raises(ScenarioError):
        check_grid(parse_varied_keys(options), ())


def test_a_key_is_not_swept_and_set() -> None:
    with pytest.raises(ScenarioError):
        check_grid(parse_varied_keys("seed=1,2"), [Override.parse("seed=3")])
    check_grid(parse_varied_keys("devices.cloud.count=1,2"), [Override.parse("devices.cloud={profile: a}")])
