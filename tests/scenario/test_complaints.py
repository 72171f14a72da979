from __future__ import annotations

import pickle
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from simnmt.base.configuration import Configuration
from simnmt.network.configuration import ConstantRtt, CsvRtt
from simnmt.scenario.configuration import Scenario
from simnmt.scenario.document import Override, parse_document
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.source import open_source
from simnmt.scenario.validation import validate
from simnmt.scenario.yaml_text import write_document

WHOLE: dict[str, Any] = {
    "version": 1,
    "name": "x",
    "workloads": {"w": {"lengths": "@w"}},
    "networks": {"n": {"rtt": "@n"}},
    "devices": {"gateway": {"profile": "@g"}, "cloud": {"profile": "@c"}},
    "policies": {"edge": {}},
}


def complaints(text: str, *overrides: str) -> list[str]:
    """About a scenario that says this first, and then, out of sight, all that it needs and this does not say."""
    with pytest.raises(ScenarioError) as caught:
        given = parse_document(text, "s.yaml")
        rest = {key: value for key, value in WHOLE.items() if key not in given.data}
        validate(Scenario, parse_document(f"{text.rstrip()}\n{write_document(rest)}" if rest else text, "s.yaml"), overrides)
    return caught.value.lines


LENGTHS = "source: a, target: b, src_unit: word, tgt_unit: word"


@pytest.mark.parametrize(
    ("workload", "place", "replacement"),
    [
        ("lengths: {request_log: x.csv}", "lengths", "table"),
        ("lengths: {dataset: x}", "lengths", "jsonl"),
        ("lengths: {sacrebleu: wmt19, pair: de-en}", "lengths", "source"),
        (f"lengths: {{{LENGTHS}, expect_ratio: 1}}", "lengths.expect_ratio", "corpus fit"),
        (f"lengths: {{{LENGTHS}, filter: paracrawl}}", "lengths.filter", "ratio"),
        ("lengths: '@w', arrivals: {kind: recorded, file: x, form: aiperf}", "arrivals.form", "pandas"),
        ("lengths: '@w', arrivals: {kind: recorded, file: x, benchmark: 1}", "arrivals.benchmark", "pandas"),
    ],
)
def test_a_removed_key_is_refused_in_one_line_with_what_replaces_it(workload: str, place: str, replacement: str) -> None:
    (line,) = complaints(f"workloads: {{w: {{{workload}}}}}")
    assert f": workloads.w.{place}: " in line and replacement in line.rpartition("(")[2]


@pytest.mark.parametrize("estimate", ["probing", "{kind: probing, every_s: 1}"])
def test_a_removed_estimate_is_refused_with_what_replaces_it(estimate: str) -> None:
    (line,) = complaints(f"policies: {{cnmt: {{transfer_estimate: {estimate}}}}}")
    assert ": policies.cnmt.transfer_estimate: " in line and "quantile" in line


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
    "a key of another kind": (
        "policies: {edge: {len_slope: 1}}",
        "s.yaml:1:19: policies.edge.len_slope: unknown key (known here: kind)",
    ),
    "a key that is the name of the kind": (
        "policies: {cnmt: {cnmt: 1, len_slope: a}}",
        "s.yaml:1:19: policies.cnmt.cnmt: unknown key (known here: initial_transfer_ms, "
        "transfer_estimate, sees_backlog, plan_state, kind, len_slope, len_offset, lengths, minimises, batch)",
        "s.yaml:1:39: policies.cnmt.len_slope: expected a number, got the text 'a'",
    ),
    "a misspelt kind given by the key": (
        "policies: {cnmtt: {}}",
        "s.yaml:1:12: policies.cnmtt.kind: missing key "
        "(one of edge, cloud, fixed, oracle, naive, cnmt; did you mean cnmt by cnmtt?)",
    ),
    "a misspelt kind": (
        "policies: {x: {kind: edgy}}",
        "s.yaml:1:22: policies.x.kind: must be one of edge, cloud, fixed, oracle, naive, cnmt, "
        "got the text 'edgy' (did you mean edge?)",
    ),
    "a value where a kind belongs": ("policies: {x: 5}", "s.yaml:1:15: policies.x: expected a mapping with kind, got 5"),
    "nothing where a mapping belongs": (
        "fit:\n",
        "s.yaml:1:1: fit: expected a mapping, got nothing (write {} for the defaults)",
    ),
    "nothing where a mapping with keys belongs": (
        "devices: {gateway: null, cloud: {profile: x}}",
        "s.yaml:1:20: devices.gateway: expected a mapping with profile, got nothing",
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
        "networks: {a: {rtt: x, rtt_mean_ms: 5 Mbps}}",
        "s.yaml:1:37: networks.a.rtt_mean_ms: expected a number, got the text '5 Mbps';"
        " the unit stands in the key's name, and is not Mbps (write the number alone)",
    ),
    "a float for a whole number": ("seed: 1e5", "s.yaml:1:7: seed: expected a whole number, got 1e5 (write 100000)"),
    "a broken whole number": ("seed: 1.5", "s.yaml:1:7: seed: expected a whole number, got 1.5"),
    "underscores": ("seed: 100_000", "s.yaml:1:7: seed: expected a whole number, got the text '100_000' (write 100000)"),
    "a quoted number": ("seed: '3'", "s.yaml:1:7: seed: expected a whole number, got the text '3' (write 3 without quotes)"),
    "a number for a text": ("name: 0x1F", 's.yaml:1:7: name: expected a text, got 0x1F (write "0x1F")'),
    "a list for a mapping": ("networks: []", "s.yaml:1:11: networks: expected a mapping, got an empty list"),
    "an empty mapping": ("networks: {}", "s.yaml:1:11: networks: must not be empty"),
    "an empty text": ('name: ""', "s.yaml:1:7: name: must not be empty"),
    "a long text": (f"name: {'x' * 81}", "s.yaml:1:7: name: takes at most 80 characters, has 81"),
    "a pattern": ("name: a/b", r"s.yaml:1:7: name: must match ^[^\x00-\x1f\x7f/\\]+$, got the text 'a/b'"),
    "a pattern of keys": (
        "networks: {a/b: {rtt: x}}",
        r"s.yaml:1:12: networks.a/b: must match ^[^\x00-\x1f\x7f/\\]+$, got the text 'a/b'",
    ),
    "a key that looks like pydantic's mark of a key": (
        'fit: {"[key]": 1}',
        "s.yaml:1:7: fit.[key]: unknown key (known here: share, inferences)",
    ),
    "too small": ("requests: 0", "s.yaml:1:11: requests: must be >= 1, got 0"),
    "too many requests": ("requests: 10000001", "s.yaml:1:11: requests: must be <= 10000000, got 10000001"),
    "too large": ("fit: {share: 1.0}", "s.yaml:1:14: fit.share: must be < 1, got 1.0"),
    "a wrong version": ("version: 2", "s.yaml:1:10: version: must be 1, got 2"),
    "a quoted version": ("version: '1'", "s.yaml:1:10: version: must be 1, got the text '1' (write 1, without quotes)"),
    "a wrong choice": (
        "networks: {a: {rtt: x, clock: spred}}",
        "s.yaml:1:31: networks.a.clock: must be one of pace, spread, arrival, own, got the text 'spred' (did you mean spread?)",
    ),
    "a missing key": ("networks:\n  a: {uplink_mbps: 3}", "s.yaml:2:3: networks.a.rtt: missing key"),
    "a missing kind": (
        "workloads: {a: {lengths: '@x', arrivals: {rate_rps: 1}}}",
        "s.yaml:1:32: workloads.a.arrivals.kind: missing key "
        "(one of back_to_back, poisson, renewal, varying, on_off, recorded, engagements, clients)",
    ),
    "a fault below a kind": (
        "workloads: {a: {lengths: '@x', arrivals: {kind: poisson, rate_rps: -1}}}",
        "s.yaml:1:68: workloads.a.arrivals.rate_rps: must be >= 1e-06, got -1",
    ),
    "a fault below a tag": (
        "workloads: {a: {lengths: {tsv: x, src_unit: word, tgt_unit: 3}}}",
        "s.yaml:1:61: workloads.a.lengths.tgt_unit: expected a text or a mapping with sentencepiece or a mapping with "
        "tokenizers, got 3",
    ),
    "a key of another tag": (
        "workloads: {a: {lengths: {table: x, tsv: y}}}",
        "s.yaml:1:37: workloads.a.lengths.tsv: unknown key (known here: fertility, filter_replay, table, "
        "end_of_sentence, filter)",
    ),
    "a key that is the tag": (
        "workloads: {a: {lengths: {table: x, table_file: y}}}",
        "s.yaml:1:37: workloads.a.lengths.table_file: unknown key (did you mean table?)",
    ),
    "a validator's own words": (
        "workloads: {a: {lengths: 3}}",
        "s.yaml:1:26: workloads.a.lengths: expected the @name of a shipped table, or one of table, tsv, jsonl, "
        "source and target, lognormal",
    ),
    "a validator's own words as ValueError": (
        "networks: {a: {rtt: 5}}",
        's.yaml:1:21: networks.a.rtt: give "@name", a path, {csv: path} or {constant_ms: number}',
    ),
    "a form picked by hand": (
        "networks: {a: {rtt: {csv: a, time_unit: sec}}}",
        "s.yaml:1:41: networks.a.rtt.time_unit: must be one of s, ms, got the text 'sec'",
    ),
    "a key of another form than that picked by hand": (
        "networks: {a: {rtt: {constant_ms: 1, csv: x}}}",
        "s.yaml:1:38: networks.a.rtt.csv: unknown key (known here: constant_ms)",
    ),
    "a key near to one that is given": (
        "devices: {gateway: {profile: x, profil: y}, cloud: {profile: x}}",
        "s.yaml:1:33: devices.gateway.profil: unknown key (did you mean profile?)",
    ),
    "a value of neither form": (
        "devices: {gateway: {profile: 5}, cloud: {profile: x}}",
        "s.yaml:1:30: devices.gateway.profile: expected a text or a mapping, got 5",
    ),
    "a value below one form": (
        "devices: {gateway: {profile: {by_workload: 1}}, cloud: {profile: x}}",
        's.yaml:1:44: devices.gateway.profile.by_workload: expected a text, got 1 (write "1")',
    ),
    "a key that holds a dot": (
        'networks: {"a.b": {rtt: x, rtt_mean_ms: a}}',
        "s.yaml:1:41: networks.\"a.b\".rtt_mean_ms: expected a number, got the text 'a'",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_wrong_value_has_one_line_with_its_place_and_remedy(case: tuple[str, ...]) -> None:
    text, *messages = case
    assert complaints(text) == messages


class Node(Configuration):
    rate_rps: float
    drawn: bool = False


class Ring(Configuration):
    kind: Literal["ring"]
    nodes: list[Node]


class Star(Configuration):
    kind: Literal["star"]
    centre: Node | None = None


class Shapes(Configuration):
    """What no scenario has yet: lists, optional parts, plain unions."""

    shapes: Annotated[list[Annotated[Ring | Star, Field(discriminator="kind")]], Field(min_length=2)]
    either: Node | int | None = None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "shapes: [{kind: star}, {kind: ring, nodes: [{rate_rps: 1}, {rate_rp: 2}]}]",
            "s.yaml:1:61: shapes.1.nodes.1.rate_rp: unknown key (did you mean rate_rps?)",
        ),
        (
            "shapes: [{kind: star}, {kind: star, centre: {rate_rps: 1, drawn: yes}}]",
            "s.yaml:1:66: shapes.1.centre.drawn: expected true or false, got the text 'yes' (write true)",
        ),
        (
            "shapes: [{kind: star}, {kind: star, centre: 2}]",
            "s.yaml:1:45: shapes.1.centre: expected a mapping with rate_rps, got 2",
        ),
        ("shapes: [{kind: star}, {}]", "s.yaml:1:24: shapes.1.kind: missing key (one of ring, star)"),
        ("shapes: [{kind: star}, 3]", "s.yaml:1:24: shapes.1: expected a mapping with kind, got 3"),
        ("shapes: [{kind: star}]", "s.yaml:1:9: shapes: needs at least 2 entries, has 1"),
        ("shapes: {}", "s.yaml:1:9: shapes: expected a list, got an empty mapping"),
        (
            "shapes: [{kind: star}, {kind: star}]\neither: x",
            "s.yaml:2:9: either: expected a mapping with rate_rps or a whole number, got the text 'x'",
        ),
    ],
)
def test_lists_optional_parts_and_plain_unions(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        validate(Shapes, parse_document(text, "s.yaml"))
    assert str(caught.value) == message


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


def test_a_key_without_its_unit_means_the_key_with_it_even_if_that_is_given() -> None:
    text = "devices: {a: {sti: {deadline_ms: 5, preload_mb: 1, %s: 1}, profile: x}}"
    place = "s.yaml:1:52: devices.a.sti."
    assert complaints(text % "deadline") == [f"{place}deadline: unknown key (did you mean deadline_ms?)"]
    assert complaints(text % "cache") == [f"{place}cache: unknown key (did you mean cache_mb?)"]
    assert "keeps_" in complaints(text % "keeps")[0], "two keys begin so: the nearer one"


def test_what_an_override_brings_in_names_it() -> None:
    assert complaints("policies:\n  cnmt: {}\n", "policies.cnmt.len_slop=0.8") == [
        "--set policies.cnmt.len_slop=0.8: policies.cnmt.len_slop: unknown key (did you mean len_slope?)"
    ]
    assert complaints("policies: {cnmt: {}}", "policies.cnmtt.len_slope=1") == [
        "--set policies.cnmtt.len_slope=1: policies.cnmtt: unknown name, and a new one needs the key kind (did you mean cnmt?)"
    ]
    near = "networks:\n  near: {rtt: {constant_ms: 1}}"
    unknown = "--set networks.{0}.uplink_mbps=5: networks.{0}: unknown name, and a new one needs the key rtt ({1})"
    assert complaints(near, "networks.naer.uplink_mbps=5") == [unknown.format("naer", "did you mean near?")]
    assert complaints("seed: 1", "networks.a.uplink_mbps=5") == [unknown.format("a", "known: n")]
    assert complaints("seed: 1\nrequests: 0", "seed=x") == [
        "--set seed=x: seed: expected a whole number, got the text 'x'",
        "s.yaml:2:11: requests: must be >= 1, got 0",
    ]


def test_what_is_right_is_taken() -> None:
    rtts = [validate(Scenario, WHOLE, [f"networks.n.rtt={text}"]).networks["n"].rtt for text in ("x", "{constant_ms: 5}")]
    assert rtts == [CsvRtt(csv="x"), ConstantRtt(constant_ms=5)]
    cases = (validate(Scenario, WHOLE, [f"devices.cloud.profile={text}"]) for text in ("x", "{w: y}"))
    profiles = [scenario.devices["cloud"].profile for scenario in cases]
    assert profiles == ["x", {"w": "y"}]


def test_data_from_no_file_is_complained_about_without_a_place() -> None:
    with pytest.raises(ScenarioError) as caught:
        validate(Scenario, {**WHOLE, "sed": 1})
    assert str(caught.value) == "sed: unknown key (did you mean seed?)"


def test_a_complaint_survives_the_way_between_processes() -> None:
    with pytest.raises(ScenarioError) as caught:
        validate(Scenario, parse_document("sed: 1\nx: 1", "s.yaml"), ["name=a/b"])
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert (again.exit_status, again.path, again.line, again.column) == (2, "s.yaml", 1, 1)


KEYS = st.sampled_from([*WHOLE, *"abnw", "cnmt", "rtt", "csv", "constant_ms", "kind", "profile", "one", "[key]", "x\ny"])
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.sampled_from(["poisson", "5 ms", "a\nb", "1"])
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=4), max_leaves=15
)
PLACES = [
    (),
    *((key,) for key in WHOLE),
    ("workloads", "w", "lengths"),
    ("networks", "n", "rtt"),
    ("devices", "cloud", "profile"),
    ("policies", "cnmt"),
]


@given(st.sampled_from(PLACES), st.dictionaries(KEYS, VALUES, max_size=4))
def test_whatever_the_data_a_scenario_comes_out_or_complaints_of_one_line_each(
    place: tuple[str, ...], data: dict[str, Any]
) -> None:
    try:
        validate(Scenario, WHOLE if place else data, [Override.of(place, data)] if place else [])
    except ScenarioError as error:
        assert all(line.isprintable() and line for line in str(error).split("\n"))


@pytest.mark.parametrize(
    ("text", "place"),
    [("policies: {x: {kind: mine}}", "policies.x"), ("workloads: {x: {arrivals: {kind: bursts}}}", "workloads.x.arrivals")],
)
def test_the_remedy_of_an_unknown_kind_is_the_way_to_name_a_class_of_the_user(text: str, place: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        open_source({**WHOLE, **parse_document(text, "s.yaml").data})
    line = next(line for line in caught.value.lines if f"{place}.kind: must be one of" in line)
    assert "write package.module:CLASS or FILE.py:CLASS, and give --allow-code or allow_code=True)" in line
