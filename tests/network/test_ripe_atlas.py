"""RIPE Atlas results, made up here in each form that the description of measurement results knows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.network.errors import TraceError
from simnmt.network.trace_options import ReadOptions
from simnmt.network.traces.readings import Trace
from simnmt.network.traces.ripe_atlas import kind_of
from simnmt.network.traces.trace_file import read_trace

IDENTITY = {"msm_id": 5001, "prb_id": 77, "timestamp": 1_400_000_000}
NEW_IDENTITY = {**IDENTITY, "af": 4, "dst_addr": "192.0.2.9", "dst_name": "goal.example", "from": "198.51.100.4"}
SUMMARY = {"avg": 20.0, "min": 18.0, "max": 22.0, "dup": 0, "rcvd": 3, "sent": 3}
REPLIES = [{"rtt": 20.5}, {"rtt": 18.0}, {"rtt": 22.0}]


def ping(fw: int, result: list[Any] = REPLIES, **more: Any) -> dict[str, Any]:
    return NEW_IDENTITY | SUMMARY | {"fw": fw, "type": "ping", "proto": "ICMP", "result": result} | more


OLD_PING = IDENTITY | SUMMARY | {"fw": 1, "addr": "192.0.2.9", "name": "goal.example", "size": 56}
TEXTS = {"avg": "20.0", "min": "18.0", "max": "22.0", "rcvd": "3", "sent": "3"}
RICH_REPLIES = [{"rtt": 20.5, "ttl": 54}, {"rtt": 18.0, "srcaddr": "10.0.0.2"}, {"rtt": 22.0}]

PINGS: dict[str, dict[str, Any]] = {
    "0, texts and a summary alone": IDENTITY | TEXTS | {"fw": 0, "type": "ping", "dst_addr": "192.0.2.9"},
    "1, a summary alone and no type": OLD_PING,
    "4400": OLD_PING | {"fw": 4400, "type": "ping", "result": REPLIES, "ttl": 52},
    "4460": ping(4460),
    "4550, replies that say more": ping(4550, RICH_REPLIES, lts=36),
    "4570": ping(4570, lts=-1, step=360),
    "4610": ping(4610, group_id=5001),
    "4750": ping(4750, ttr=3.2),
    "5080": ping(5080, mver="2.6.2", stored_timestamp=1_400_000_030),
}


def reply(rtt: float, address: str = "192.0.2.9", **more: Any) -> dict[str, Any]:
    return {"from": address, "rtt": rtt, "size": 28, "ttl": 60} | more


def goal(hop: int = 2, **more: Any) -> dict[str, Any]:
    return {"hop": hop, "result": [reply(rtt, **more) for rtt in (20.5, 18.0, 22.0)]}


def route(fw: int, *hops: Any, **more: Any) -> dict[str, Any]:
    head = {"fw": fw, "type": "traceroute", "paris_id": 3, "proto": "UDP", "endtime": 1_400_000_004}
    return NEW_IDENTITY | head | {"result": list(hops)} | more


def printed(goal_line: str) -> dict[str, Any]:
    head = (
        "traceroute to goal.example (192.0.2.9), 32 hops max NEWLINE 1 10.0.0.1 1.2 ms 0.9 ms 1.1 ms NEWLINE 2 * * * NEWLINE "
    )
    return IDENTITY | {"fw": 1, "result": head + goal_line}


STARS = [{"x": "*"}] * 3
SILENCE = {"hop": 255, "result": STARS}
NEAR = {"hop": 1, "result": [reply(rtt, "10.0.0.1") for rtt in (1.2, 0.9, 1.1)]}
LATE = {"late": 2, "from": "192.0.2.9", "ttl": 60, "size": 68}
IPV6 = {"af": 6, "dst_addr": "2001:db8:0:0:0:0:0:9"}

ROUTES: dict[str, dict[str, Any]] = {
    "1, as it was printed": printed("3 192.0.2.9 20.5 ms 18.0 ms 22.0 ms NEWLINE"),
    "1, from two addresses": printed("3 10.0.0.7 3.0 ms goal.example (192.0.2.9) 20.5 ms 18.0 ms 22.0 ms !A"),
    "4400": route(4400, NEAR, goal()),
    "4460, the destination again at hop 255": route(4460, NEAR, {"hop": 2, "result": [reply(9.0)]}, goal(255)),
    "4470, a hop behind it that is silent": route(4470, NEAR, goal(), SILENCE),
    "4500, with extensions": route(4500, NEAR, goal(icmpext={"version": 2}, ittl=2)),
    "4610, its port unreachable as UDP has it": route(4610, NEAR, goal(err="p")),
    "4610, TCP": route(4610, NEAR, goal(flags="SA"), proto="TCP"),
    "4620, IPv6 written in two ways": route(4620, NEAR, goal(address="2001:db8::9", dstoptsize=8), **IPV6),
    "4720, late replies between": route(4720, NEAR, {"hop": 2, "result": [LATE, *goal()["result"]]}),
    "5080": route(5080, NEAR, goal(), mver="2.6.2", destination_ip_responded=True),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "results.json"


def read(file: Path, *results: Any, **how: Any) -> Trace:
    file.write_text(json.dumps(list(results)), encoding="utf-8")
    (trace,) = read_trace(file, ReadOptions(**how))
    return trace


@pytest.mark.parametrize("result", [*PINGS.values(), *ROUTES.values()], ids=[*PINGS, *ROUTES])
def test_every_firmware_form_gives_the_least_reply_of_the_destination(file: Path, result: dict[str, Any]) -> None:
    trace = read(file, result)
    assert (trace.value.tolist(), trace.kind, trace.began_s) == ([0.018], "measured", 1.4e9)
    assert trace.source.startswith("RIPE Atlas probe 77, measurement 5001, ")
    assert trace.source.endswith("the least of each round's replies")


@pytest.mark.parametrize("result", [*PINGS.values(), *ROUTES.values()], ids=[*PINGS, *ROUTES])
def test_mean_and_first_can_be_requested(file: Path, result: dict[str, Any]) -> None:
    mean_s = (0.0205 + 0.018 + 0.022) / 3 if "result" in result else 0.020
    assert read(file, result, reply="mean").value.tolist() == pytest.approx([mean_s])
    if "result" in result:
        assert read(file, result, reply="first").value.tolist() == [0.0205]
    else:
        with pytest.raises(TraceError, match=r"result 1 gives no single replies.*\(take --reply min or mean\)"):
            read(file, result, reply="first")


NONE = {"avg": -1, "min": -1, "max": -1, "rcvd": 0}
UNREACHABLE = "connect failed: Network is unreachable"
TOO_LATE = [{"x": "*"}, {"dup": 1, "rtt": 1600.0}, {"dup": 1, "rtt": 1800.0}]
IMPOSSIBLE = [{"rtt": 0.0}, {"rtt": -3.0}, {"rtt": "soon"}]
FROM_ITSELF = {"hop": 1, "result": [reply(2998.0, "198.51.100.4", err="H")]}

LOST: dict[str, tuple[dict[str, Any], str | None]] = {
    "a negative average": (OLD_PING | NONE, "negative RTT"),
    "a negative average in texts": (OLD_PING | {"avg": "-1.0", "min": "-1.0", "rcvd": "0"}, "negative RTT"),
    "no average at all": (IDENTITY | {"fw": 1, "rcvd": 0, "sent": 3}, None),
    "no reply": (ping(4460, STARS, **NONE), None),
    "duplicates of what came too late": (ping(4610, TOO_LATE, **NONE), "duplicate replies left out: 2"),
    "an error": (ping(4610, [{"error": "sendto failed:\nno route"}], **NONE), "errors (sendto failed: no route): 1"),
    "an error of the whole": (NEW_IDENTITY | {"type": "ping", "sent": 0, "error": "no address"}, "no address"),
    "an empty result": (ping(5080, [], **NONE), "negative RTT"),
    "RTTs of no network": (ping(5080, IMPOSSIBLE), "impossible RTT left out: 3"),
    "a route that ends before": (route(5080, NEAR, SILENCE), "did not answer"),
    "a route of errors from elsewhere": (route(4610, FROM_ITSELF), "did not answer"),
    "a hop that failed": (route(4610, {"hop": 1, "error": UNREACHABLE}), UNREACHABLE),
    "late replies alone": (route(4720, {"hop": 255, "result": [LATE]}), "late replies left out: 1"),
    "a name that nobody knew": (IDENTITY | {"type": "traceroute", "result": [{"error": "no such name"}]}, "no such name"),
    "a route without hops": (route(5080), "did not answer"),
    "a printed route that ends before": (printed("3 * * *"), "did not answer"),
}


@pytest.mark.parametrize(("result", "why"), LOST.values(), ids=LOST)
def test_a_lost_round_is_held_and_its_reason_counted(file: Path, result: dict[str, Any], why: str | None) -> None:
    whole = ping(4460) if kind_of(result) == "ping" else ROUTES["5080"]
    before, after = (whole | {"timestamp": 1_400_000_000 + shift} for shift in (-240, 240))
    trace = read(file, before, result, after)
    assert trace.value.tolist() == [0.018] * 3
    assert (trace.lost.tolist(), trace.time_s.tolist()) == ([False, True, False], [0.0, 240.0, 480.0])
    if why is None:
        assert trace.remarks == ()
    else:
        assert why in "; ".join(trace.remarks)
        assert not any("\n" in message for message in trace.remarks)
    with pytest.raises(TraceError, match="RTT: no sample of 1 arrived") as caught:
        read(file, result)
    assert (why or "") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_duplicates_and_timeouts_leave_the_other_replies(file: Path) -> None:
    replies = [{"x": "*"}, {"dup": 1, "rtt": 3.0}, {"rtt": 41.0, "ttl": 50}, {"dup": 1, "rtt": 2.0}]
    assert read(file, ping(4610, replies, min=41.0)).value.tolist() == [0.041]


FORMS = {
    "an array": lambda results: json.dumps(results, indent=2),
    "an object a line": lambda results: "".join(json.dumps(result) + "\r\n" for result in results) + "\n",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_files_come_in_several_forms_and_in_any_order(file: Path, form: Any) -> None:
    results = [PINGS["4460"] | {"timestamp": 1_400_000_000 + at, "result": [{"rtt": 10.0 + at}]} for at in (0, 480, 240, 240)]
    file.write_text(form(results), encoding="utf-8", newline="")
    (trace,) = read_trace(file)
    assert trace.time_s.tolist() == [0.0, 240.0, 480.0]
    assert trace.value == pytest.approx([0.010, 0.250, 0.490])
    assert trace.remarks == (
        "1 sample stood behind a later one, by 240 s at most: sorted by time",
        "1 sample repeated the time of another: the first that arrived was kept",
    )


def test_a_single_object_is_a_file_too(file: Path) -> None:
    file.write_text(json.dumps(PINGS["5080"], indent=1))
    assert read_trace(file)[0].value.tolist() == [0.018]


@pytest.fixture
def mixed() -> list[dict[str, Any]]:
    """Two probes in one measurement, one of them in another as well."""
    pings = [PINGS["4460"] | {"prb_id": probe, "timestamp": 1_400_000_000 + at} for probe in (1, 2) for at in (0, 240)]
    return [*pings, PINGS["4460"] | {"prb_id": 2, "msm_id": 6, "result": [{"rtt": 7.0}]}]


def test_of_several_series_one_has_to_be_chosen(file: Path, mixed: list[dict[str, Any]]) -> None:
    message = "results of 2 probes: 2 (3), 1 (2); results of 2 measurements: 5001 (4), 6 (1)"
    with pytest.raises(TraceError, match=re.escape(f"{file}: {message} (choose one by --probe and --measurement)")):
        read(file, *mixed)
    with pytest.raises(TraceError, match=r"2 probes: 1 \(2\), 2 \(2\) \(choose one by --probe\)"):
        read(file, *mixed, measurement=5001)
    assert len(read(file, *mixed, probe=1).value) == 2
    assert read(file, *mixed, probe=2, measurement=6).value.tolist() == [0.007]
    with pytest.raises(TraceError, match=r"no probe 3 among 2 \(3\), 1 \(2\)"):
        read(file, *mixed, probe=3)
    with pytest.raises(TraceError, match="probe 1 has no results of measurement 6"):
        read(file, *mixed, probe=1, measurement=6)


def test_a_destination_with_several_addresses_is_remarked(file: Path) -> None:
    moved = PINGS["4460"] | {"timestamp": 1_400_000_240, "dst_addr": "192.0.2.10"}
    assert "2 destination addresses: 192.0.2.9 (1), 192.0.2.10 (1)" in read(file, PINGS["4460"], moved).remarks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", ": no results (give at least one round)"),
        ('[{"type": "dns"}]', ": result 1 is of type 'dns' (give results of ping or traceroute)"),
        ('[{"type": "traceroute", "result": [3]}]', ": result 1 has a hop that is none"),
        ('[{"type": "ping", "min": ' + "9" * 5000 + "}]", ":1: no JSON that could hold results"),
    ],
)
def test_what_is_no_result_is_refused_in_one_line_with_its_place(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(TraceError, match=re.escape(f"{file}{message}")) as caught:
        read_trace(file)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["result", "rtt", "hop", "from", "x", "dup", "late", "error"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(
    st.sampled_from([*PINGS.values(), *ROUTES.values()]),
    st.sampled_from(["result", "min", "avg", "timestamp", "type", "dst_addr"]),
    json_values,
)
def test_any_change_of_a_result_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, result: dict[str, Any], key: str, value: Any
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    try:
        trace = read(file, result | {key: value})
    except TraceError as error:
        assert "\n" not in str(error)
    else:
        assert (trace.value > 0).all()


def test_pings_and_traceroutes_do_not_mix(file: Path) -> None:
    with pytest.raises(TraceError, match=r"results of 2 kinds: ping \(2\), traceroute \(1\)"):
        read(file, ping(5080), route(5080, NEAR, goal()) | {"timestamp": 1_400_000_240}, ping(5080, timestamp=1_400_000_480))


def test_an_error_of_a_hop_without_a_sender_is_counted(file: Path) -> None:
    trace = read(file, route(5080, {"hop": 1, "result": [{"error": UNREACHABLE}, *STARS[:2]]}, goal()))
    assert f"errors ({UNREACHABLE}): 1" in trace.remarks
    assert trace.value.tolist() == [0.018]


def test_rounds_of_an_unsynchronised_clock_are_kept_and_remarked(file: Path) -> None:
    rounds = [ping(5080, lts=lts, timestamp=1_400_000_000 + 240 * place) for place, lts in enumerate((20, -1, 90_000, 300))]
    trace = read(file, *rounds)
    assert len(trace.value) == 4 and not trace.lost.any()
    assert "rounds of a probe whose clock was not known to be right (lts): 2" in trace.remarks
