"""The notation of varied keys, the same in a sweep and in a plan, and what of it is refused."""

from __future__ import annotations

import time

import pytest

from simnmt.experiment.plan.candidates import FIXED_KEYS
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.sweep_configuration import UNSWEPT
from simnmt.scenario.varied_keys import VariedKey, check_disjoint, parse_varied_key


def values(key: VariedKey) -> list[object]:
    return [node.plain() for node in key.listed().values]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("devices.cloud.count=1,2,4", [1, 2, 4]),
        ("devices.cloud.count=1:4", [1, 2, 3, 4]),
        ("devices.cloud.count=1:4:2", [1, 4]),
        ("devices.cloud.count=2:8:4", [2, 4, 6, 8]),
        ("devices.cloud.count=1:2:3", [1, 1.5, 2]),
        ("seed=10000000000001:10000000000003:3", [10000000000001, 10000000000002, 10000000000003]),
        ("seed=9007199254740993:9007199254740995:3", [9007199254740993, 9007199254740994, 9007199254740995]),
        ("fit.share=0.1:0.9:9", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        ("devices.cloud.profile=@a,b.json", ["@a", "b.json"]),
        ("devices.cloud.batching=null,{kind: top_up, size: 8}", [None, {"kind": "top_up", "size": 8}]),
        ("devices.cloud.batching={kind: mini, size: 4},{kind: top_up, size: 8}",
         [{"kind": "mini", "size": 4}, {"kind": "top_up", "size": 8}]),
        ("devices.cloud.profile='a,b',\"c\"", ["a,b", "c"]),
        ("foresee_misroutes=true,false", [True, False]),
        ("policies.mine=[1, 2],[3]", [[1, 2], [3]]),
    ],
)  # fmt: skip
def test_values_are_yaml_between_commas_or_numbers_between_two_ends(text: str, expected: list[object]) -> None:
    parsed = values(parse_varied_key(text))
    assert parsed == expected
    assert list(map(type, parsed)) == list(map(type, expected))


def test_a_dotted_key_may_quote_parts() -> None:
    key = parse_varied_key('workloads."load-0.2".end_nodes=1,2')
    assert (key.location, key.name) == (("workloads", "load-0.2", "end_nodes"), 'workloads."load-0.2".end_nodes')


@pytest.mark.parametrize("option", ["--grid", "--vary", ""])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("devices.cloud.count", "no '='"),
        ("devices.cloud.count=", "an empty value"),
        ("devices.cloud.count=1,,2", "an empty value"),
        ("devices.cloud.count=8:2", "devices.cloud.count: 8 to 2 runs backwards"),
        ("devices.cloud.count=8:2:4", "devices.cloud.count: 8 to 2 runs backwards"),
        ("devices.cloud.count=2:2:4", "devices.cloud.count: 2 to 2 is one value"),
        ("devices.cloud.count=2:8:1", "devices.cloud.count: 2 to 8 in 1 values"),
        ("devices.cloud.count=2:8:-3", "devices.cloud.count: -3 values (give 2 to 100,000)"),
        ("devices.cloud.count=1:8:1000000", "devices.cloud.count: 1000000 values (give 2 to 100,000)"),
        (f"devices.cloud.count=1:8:{5_000 * '9'}", "values (give 2 to 100,000)"),
        (f"devices.cloud.count=1:{5_000 * '9'}", "devices.cloud.count: 1 to inf are numbers without end"),
        ("devices.cloud.count=1:1e999:3", "devices.cloud.count: 1 to inf are numbers without end"),
        ("fit.share=-1e308:1e308:3", "fit.share: -1e+308 to 1e+308 are numbers without end"),
        ("devices.cloud.count=1:20000000", "devices.cloud.count: 1 to 20000000 holds more than 100,000 values"),
        ("fit.share=0.2:0.6", "fit.share: a span of numbers without their number"),
        ("devices.cloud.count=2,2", "devices.cloud.count: 2 twice"),
        ("devices.cloud.batching={size: 8, kind: mini},{kind: mini, size: 8.0}", "8.0} twice"),
        ("device.cloud.count=1,2", "device.cloud.count: unknown key"),
    ],
)
def test_a_wrong_key_or_value_is_one_line_that_names_its_option(text: str, message: str, option: str) -> None:
    began_s = time.process_time()
    with pytest.raises(ScenarioError) as refused:
        parse_varied_key(text, option).listed().check({})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(f"{option} {text[:90]}".strip())
    assert len(str(refused.value)) < 500 and time.process_time() - began_s < 1.0


def test_numbers_and_truth_values_are_different_values_and_many_are_compared_soon() -> None:
    parse_varied_key("foresee_misroutes=true,1").check({})
    began_s = time.process_time()
    parse_varied_key("seed=1:50000").listed().check({})
    assert time.process_time() - began_s < 5.0, "of 50,000 values, each with each, would take minutes"


def test_a_key_of_the_run_is_fixed_but_one_of_a_device_with_the_same_name_is_not() -> None:
    with pytest.raises(ScenarioError, match=r"workloads\.w\.deadline_ms cannot be varied: it is no part of a deployment"):
        parse_varied_key("workloads.w.deadline_ms=1,2").check(FIXED_KEYS)
    parse_varied_key("devices.cloud.sti.deadline_ms=1,2").check(FIXED_KEYS)
    parse_varied_key("workloads.w.deadline_ms=1,2").check(UNSWEPT)


def test_two_keys_of_the_same_part_contradict_each_other() -> None:
    keys = [parse_varied_key(f"{key}=1,2") for key in ("devices.cloud.count", "devices.cloud.workers")]
    check_disjoint(keys)
    with pytest.raises(ScenarioError, match=r"^devices\.cloud\.count=3: devices\.cloud\.count is varied twice"):
        check_disjoint([*keys, parse_varied_key("devices.cloud.count=3")])
