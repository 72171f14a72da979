from __future__ import annotations

import enum
import pickle
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BeforeValidator, Field, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from simnmt.configuration import Configuration
from simnmt.scenario.complaints import validate
from simnmt.scenario.document import parse_document
from simnmt.scenario.errors import ScenarioError


class Cnmt(Configuration):
    kind: Literal["cnmt"] = "cnmt"
    len_slope: float | None = None
    len_offset: float | None = None
    initial_transfer_ms: Annotated[float, Field(ge=0)] = 0.0


class Edge(Configuration):
    kind: Literal["edge"] = "edge"


def named_by_its_key(policies: Any) -> Any:
    if not isinstance(policies, dict):
        return policies
    return {key: {"kind": key, **value} if isinstance(value, dict) else value for key, value in policies.items()}


class Constant(Configuration):
    constant_ms: Annotated[float, Field(gt=0)]


class Csv(Configuration):
    csv: Path
    time_unit: Literal["s", "ms"] = "s"


class Network(Configuration):
    rtt: str | Constant | Csv
    uplink_mbps: Annotated[float, Field(gt=0)] = 100.0


def one_form(value: Any, handler: Any) -> Any:
    """Picks the branch by hand, as a room may do; pydantic then names no branch."""
    if isinstance(value, dict):
        return (Constant if "constant_ms" in value else Csv).model_validate(value)
    raise PydanticCustomError("form", "Give csv or\nconstant_ms")


class Poisson(Configuration):
    kind: Literal["poisson"]
    rate_rps: Annotated[float, Field(gt=0)]


class BackToBack(Configuration):
    kind: Literal["back_to_back"]


class Device(Configuration):
    profile: str | dict[str, str]
    workers: Annotated[int, Field(ge=1)] = 1


class Fit(Configuration):
    share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    inferences: int = 10


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Whole(Configuration):
    version: Literal[1] = 1
    name: Annotated[str, Field(min_length=1, pattern=r"^[a-z-]*$")] = "x"
    seed: int = 1
    requests: Annotated[int, Field(ge=1)] = 10
    trace: bool = False
    colour: Colour = Colour.RED
    nodes: tuple[int, ...] = ()
    pair: Annotated[list[int], Field(min_length=2, max_length=2)] = Field(default_factory=lambda: [1, 2])
    arrivals: Annotated[Poisson | BackToBack, Field(discriminator="kind")] | str = "none"
    networks: Annotated[dict[str, Network], Field(min_length=1)] = Field(default_factory=lambda: {"cp1": Network(rtt="@cp1")})
    devices: dict[str, Device] = Field(default_factory=dict)
    fit: Fit | None = Fit()
    picked: Annotated[str | Constant | Csv, WrapValidator(one_form)] = "x"
    policies: Annotated[dict[str, Annotated[Cnmt | Edge, Field(discriminator="kind")]], BeforeValidator(named_by_its_key)] = (
        Field(default_factory=dict)
    )

    @model_validator(mode="after")
    def enough_to_fit(self) -> Whole:
        if self.requests > 1000 and self.fit is not None and self.fit.inferences == 0:
            raise ValueError("more than 1000 requests need fit.inferences")
        return self


def complaints(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        validate(Whole, parse_document(text, "s.yaml"), overrides)
    return str(caught.value).splitlines()


CASES = {
    "a misspelt key": (
        "policies:\n  cnmt:\n    len_slop: 0.8\n",
        "s.yaml:3:5: policies.cnmt.len_slop: unknown key (did you mean len_slope?)",
    ),
    "a key in another manner of writing": (
        "policies: {cnmt: {lenSlope: 1}}",
        "s.yaml:1:19: policies.cnmt.lenSlope: unknown key (did you mean len_slope?)",
    ),
    "a key like none": ("fit: {zzz: 1}", "s.yaml:1:7: fit.zzz: unknown key (known here: share, inferences)"),
    "a key taken from the wrong branch's words": (
        "policies: {edge: {len_slope: 1}}",
        "s.yaml:1:19: policies.edge.len_slope: unknown key (known here: kind)",
    ),
    "a misspelt kind given by the key": (
        "policies: {cnmtt: {}}",
        "s.yaml:1:12: policies.cnmtt: kind must be one of cnmt, edge, got the text 'cnmtt' (did you mean cnmt?)",
    ),
    "a misspelt kind": (
        "policies: {x: {kind: edgy}}",
        "s.yaml:1:22: policies.x.kind: must be one of cnmt, edge, got the text 'edgy' (did you mean edge?)",
    ),
    "nothing where a mapping belongs": (
        "policies:\n  cnmt:\n  edge: {}\n",
        "s.yaml:2:3: policies.cnmt: expected a mapping, got nothing (write {} for the defaults)",
    ),
    "a unit in the value": (
        "networks: {a: {rtt: {constant_ms: 50ms}}}",
        "s.yaml:1:35: networks.a.rtt.constant_ms: expected a number, got the text '50ms'; "
        "the unit stands in the key's name (write 50)",
    ),
    "another unit in the value": (
        "networks: {a: {rtt: x, uplink_mbps: 1 Gbps}}",
        "s.yaml:1:37: networks.a.uplink_mbps: expected a number, got the text '1 Gbps'; "
        "the unit stands in the key's name (write 1000)",
    ),
    "a unit of another kind": (
        "networks: {a: {rtt: x, uplink_mbps: 5 s}}",
        "s.yaml:1:37: networks.a.uplink_mbps: expected a number, got the text '5 s';"
        " the unit stands in the key's name, and is not s"
        " (write the number alone)",
    ),
    "a float for a whole number": ("seed: 1e5", "s.yaml:1:7: seed: expected a whole number, got 1e5 (write 100000)"),
    "a broken whole number": ("seed: 1.5", "s.yaml:1:7: seed: expected a whole number, got 1.5"),
    "underscores": ("seed: 100_000", "s.yaml:1:7: seed: expected a whole number, got the text '100_000' (write 100000)"),
    "a quoted number": ("seed: '3'", "s.yaml:1:7: seed: expected a whole number, got the text '3' (write 3 without quotes)"),
    "a truth of YAML 1.1": ("trace: yes", "s.yaml:1:8: trace: expected true or false, got the text 'yes' (write true)"),
    "a number for a text": ("name: 0x1F", 's.yaml:1:7: name: expected a text, got 0x1F (write "0x1F")'),
    "a mapping for a list": ("nodes: {}", "s.yaml:1:8: nodes: expected a list, got an empty mapping"),
    "an item of a list": ("nodes: [1, b]", "s.yaml:1:12: nodes.1: expected a whole number, got the text 'b'"),
    "too few": ("pair: [1]", "s.yaml:1:7: pair: needs at least 2 entries, has 1"),
    "too many": ("pair: [1, 2, 3]", "s.yaml:1:7: pair: takes at most 2 entries, has 3"),
    "an empty mapping": ("networks: {}", "s.yaml:1:11: networks: must not be empty"),
    "an empty text": ('name: ""', "s.yaml:1:7: name: must not be empty"),
    "a pattern": ("name: Foo", "s.yaml:1:7: name: must match ^[a-z-]*$, got the text 'Foo'"),
    "too small": ("requests: 0", "s.yaml:1:11: requests: must be >= 1, got 0"),
    "too large": ("fit: {share: 1.0}", "s.yaml:1:14: fit.share: must be < 1, got 1.0"),
    "a wrong version": ("version: 2", "s.yaml:1:10: version: must be 1, got 2"),
    "a quoted version": ("version: '1'", "s.yaml:1:10: version: must be 1, got the text '1' (write 1, without quotes)"),
    "a wrong choice": (
        "colour: read",
        "s.yaml:1:9: colour: must be one of red, blue, got the text 'read' (did you mean red?)",
    ),
    "a missing key": ("networks:\n  a: {uplink_mbps: 3}", "s.yaml:2:3: networks.a.rtt: missing key"),
    "a missing kind": (
        "arrivals: {rate_rps: 1}",
        "s.yaml:1:1: arrivals.kind: missing key (one of poisson, back_to_back)",
    ),
    "a kind inside a union": (
        "arrivals: {kind: poison}",
        "s.yaml:1:18: arrivals.kind: must be one of poisson, back_to_back, got the text 'poison' (did you mean poisson?)",
    ),
    "a fault below a kind inside a union": (
        "arrivals: {kind: poisson, rate_rps: -1}",
        "s.yaml:1:37: arrivals.rate_rps: must be > 0, got -1",
    ),
    "a value of no branch": (
        "networks: {a: {rtt: 5}}",
        "s.yaml:1:21: networks.a.rtt: expected a text or a mapping with constant_ms or a mapping with csv, got 5",
    ),
    "a mapping of no branch": (
        "networks: {a: {rtt: {foo: 1}}}",
        "s.yaml:1:21: networks.a.rtt: "
        "expected a text or a mapping with constant_ms or a mapping with csv, got a mapping with foo",
    ),
    "a branch told by a misspelt key": (
        "networks: {a: {rtt: {constan_ms: 1}}}",
        "s.yaml:1:22: networks.a.rtt.constan_ms: unknown key (did you mean constant_ms?)",
    ),
    "a branch told by its key": (
        "networks: {a: {rtt: {csv: a, time_unit: sec}}}",
        "s.yaml:1:41: networks.a.rtt.time_unit: must be one of s, ms, got the text 'sec'",
    ),
    "a branch picked by hand": ("picked: {constant_ms: -1}", "s.yaml:1:23: picked.constant_ms: must be > 0, got -1"),
    "a misspelt key of a branch picked by hand": (
        "picked: {constant_ms: 1, constant: s}",
        "s.yaml:1:26: picked.constant: unknown key (did you mean constant_ms?)",
    ),
    "a key of another branch than that picked by hand": (
        "picked: {constant_ms: 1, time_unt: s}",
        "s.yaml:1:26: picked.time_unt: unknown key (known here: constant_ms)",
    ),
    "a validator's own words": ("picked: 3", "s.yaml:1:9: picked: Give csv or constant_ms"),
    "a key near to one that is given": (
        "devices: {a: {profile: x, profil: y}}",
        "s.yaml:1:27: devices.a.profil: unknown key (did you mean profile?)",
    ),
    "a mapping in a union": (
        "devices: {gateway: {profile: {str: 1}}}",
        's.yaml:1:36: devices.gateway.profile.str: expected a text, got 1 (write "1")',
    ),
    "a check over several keys": (
        "requests: 2000\nfit: {inferences: 0}",
        "s.yaml:1:1: more than 1000 requests need fit.inferences",
    ),
    "a key that holds a dot": (
        'networks: {"a.b": {rtt: 1}}',
        's.yaml:1:25: networks."a.b".rtt: expected a text or a mapping with constant_ms or a mapping with csv, got 1',
    ),
}


@pytest.mark.parametrize(("text", "message"), CASES.values(), ids=CASES.keys())
def test_a_wrong_value_has_one_line_with_its_place_and_remedy(text: str, message: str) -> None:
    assert complaints(text) == [message]


def test_all_complaints_stand_in_the_order_of_the_file() -> None:
    assert complaints("fit: {share: 2.0}\nseed: a\nrequests: 0\n") == [
        "s.yaml:1:14: fit.share: must be < 1, got 2.0",
        "s.yaml:2:7: seed: expected a whole number, got the text 'a'",
        "s.yaml:3:11: requests: must be >= 1, got 0",
    ]


def test_no_more_than_ten_are_shown() -> None:
    lines = complaints("".join(f"k{index}: 1\n" for index in range(13)))
    assert len(lines) == 11
    assert lines[-1] == "... and 3 more"


def test_a_misspelt_key_is_not_reported_as_a_missing_one_too() -> None:
    assert complaints("networks: {a: {rt: x}}") == ["s.yaml:1:16: networks.a.rt: unknown key (did you mean rtt?)"]


def test_what_an_override_brings_in_names_it() -> None:
    assert complaints("policies:\n  cnmt: {}\n", "policies.cnmt.len_slop=0.8") == [
        "--set policies.cnmt.len_slop=0.8: policies.cnmt.len_slop: unknown key (did you mean len_slope?)"
    ]
    assert complaints("policies: {cnmt: {}}", "policies.cnmtt.len_slope=1") == [
        "--set policies.cnmtt.len_slope=1: policies.cnmtt: kind must be one of cnmt, edge, "
        "got the text 'cnmtt' (did you mean cnmt?)"
    ]
    assert complaints("seed: 1", "networks.a.uplink_mbps=5") == ["--set networks.a.uplink_mbps=5: networks.a.rtt: missing key"]
    assert complaints("seed: 1\nrequests: 0", "seed=x") == [
        "--set seed=x: seed: expected a whole number, got the text 'x'",
        "s.yaml:2:11: requests: must be >= 1, got 0",
    ]


def test_a_check_over_several_keys_names_the_overrides_among_them() -> None:
    assert complaints("fit: {inferences: 0}", "requests=2000") == [
        "s.yaml:1:1: more than 1000 requests need fit.inferences (with --set requests=2000)"
    ]


def test_what_is_right_is_taken_as_json_would_give_it() -> None:
    whole = validate(Whole, {"nodes": [1, 2], "colour": "blue", "networks": {"a": {"rtt": {"csv": "a.csv"}}}})
    assert whole.nodes == (1, 2)
    assert whole.colour is Colour.BLUE
    assert whole.networks["a"].rtt == Csv(csv=Path("a.csv"))


def test_data_from_no_file_is_complained_about_without_a_place() -> None:
    with pytest.raises(ScenarioError) as caught:
        validate(Whole, {"sed": 1})
    assert str(caught.value) == "sed: unknown key (did you mean seed?)"


def test_a_complaint_survives_the_way_between_processes() -> None:
    with pytest.raises(ScenarioError) as caught:
        validate(Whole, parse_document("sed: 1\nx: 1", "s.yaml"), ["name=X"])
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert (again.exit_status, again.path, again.line, again.column) == (2, "s.yaml", 1, 1)


KEYS = st.sampled_from([*Whole.model_fields, "a", "cnmt", "rtt", "csv", "constant_ms", "kind", "profile", "str", "Csv", "x\ny"])
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.sampled_from(["poisson", "5 ms", "a\nb", "1"])
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=4), max_leaves=15
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_whatever_the_data_a_model_comes_out_or_complaints_of_one_line_each(data: dict[str, Any]) -> None:
    try:
        validate(Whole, data)
    except ScenarioError as error:
        assert all(line.isprintable() and line for line in str(error).split("\n"))
