"""Logs of AIPerf, GuideLLM and LiteLLM as arrivals and as lengths, in the forms of their documentation and sources."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.base.errors import InputError
from simnmt.workload.arrivals import ArrivalsError, Recorded
from simnmt.workload.arrivals.recording import read_recording
from simnmt.workload.configuration import WorkloadConfiguration
from simnmt.workload.errors import RequestLogError
from simnmt.workload.request_logs import RequestLog, read_request_log
from tests.command_line import Outcome, folder, simnmt

__all__ = ["folder", "simnmt"]

BEGAN_S = 1_759_813_207
Request = tuple[float, float | None, int, int]
"""(begin in seconds, latency in seconds or None if it failed, prompt tokens, generated tokens)"""
REQUESTS: list[Request] = [(0.0, 0.5, 30, 25), (2.5, 0.25, 10, 8), (1.0, None, 50, 0), (4.0, 1.5, 20, 21)]


def aiperf(request: Request, phase: str = "profiling") -> dict[str, Any]:
    begin_s, latency_s, src, tgt = request
    begin_ns = BEGAN_S * 10**9 + round(begin_s * 1e9)
    metrics: dict[str, Any] = {"input_sequence_length": {"value": src, "unit": "tokens"}}
    if latency_s is not None:
        metrics["request_latency"] = {"value": latency_s * 1e3, "unit": "ms"}
        metrics["output_sequence_length"] = {"value": tgt, "unit": "tokens"}
    return {
        "metadata": {
            "session_num": 0,
            "request_start_ns": begin_ns,
            "request_end_ns": begin_ns + round((latency_s or 0.0) * 1e9),
            "benchmark_phase": phase,
            "was_cancelled": False,
        },
        "metrics": metrics,
        "error": None if latency_s is not None else {"code": 503, "type": "HTTPError", "message": "busy"},
    }


def litellm(request: Request, **others: Any) -> dict[str, Any]:
    begin_s, latency_s, src, tgt = request
    failed = {"status": "failure", "error_information": {"error_code": "503"}}
    return {
        "id": "chatcmpl-1",
        "call_type": "acompletion",
        "status": "success",
        "total_tokens": src + tgt,
        "prompt_tokens": src,
        "completion_tokens": tgt,
        "startTime": BEGAN_S + begin_s,
        "endTime": BEGAN_S + begin_s + (latency_s or 0.0),
        "model": "m",
        "messages": [{"role": "user", "content": "Übersetze\u2028das"}],
        **(failed if latency_s is None else {}),
        **others,
    }


def guidellm(*runs: list[Request], older: bool = False, totals: int | None = None) -> dict[str, Any]:
    names = ("start_time", "end_time") if older else ("request_start_time", "request_end_time")

    def entry(request: Request) -> dict[str, Any]:
        begin_s, latency_s, src, tgt = request
        times = dict(zip(names, (BEGAN_S + begin_s, BEGAN_S + begin_s + (latency_s or 0.0)), strict=True))
        latency = {} if older else {"request_latency": latency_s}
        return {"request_id": "r", "prompt_tokens": src, "output_tokens": tgt or None, **times, **latency}

    benchmarks = []
    for run in runs:
        done = [entry(request) for request in run if request[1] is not None]
        failed = [entry(request) for request in run if request[1] is None]
        counts = {"successful": len(done) if totals is None else totals, "incomplete": 0, "errored": len(failed)}
        benchmarks.append(
            {
                "config": {"strategy": {"type_": "poisson", "rate": 2.0}},
                "metrics": {"request_totals": counts | {"total": sum(counts.values())}},
                "requests": {"successful": done, "incomplete": [], "errored": failed, "total": None},
            }
        )
    return {"metadata": {"version": 1}, "args": {}, "benchmarks": benchmarks}


def lines(entries: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)


LOGS: dict[str, str] = {
    "aiperf": lines([aiperf(request) for request in REQUESTS]),
    "litellm": lines([litellm(request) for request in REQUESTS]),
    "litellm array": json.dumps([litellm(request) for request in REQUESTS], indent=1),
    "litellm callback": lines([{"standard_logging_object": litellm(request)} for request in REQUESTS]),
    "guidellm": json.dumps(guidellm(REQUESTS)),
    "guidellm 0.3": json.dumps(guidellm(REQUESTS, older=True), indent=2),
}


def read(folder: Path, text: str, benchmark: int | None = None) -> RequestLog:
    path = folder / "log.json"
    path.write_text(text, encoding="utf-8")
    return read_request_log(path, benchmark)


@pytest.mark.parametrize("name", LOGS)
def test_every_log_gives_the_same_requests_in_the_order_of_their_begin(tmp_path: Path, name: str) -> None:
    log = read(tmp_path, LOGS[name])
    assert log.tool == name.split()[0]
    np.testing.assert_allclose(log.begin_s, [0.0, 1.0, 2.5, 4.0], atol=1e-6)
    np.testing.assert_allclose(log.latency_s, [0.5, np.nan, 0.25, 1.5], atol=1e-6)
    assert log.status.tolist() == [200, 0 if log.tool == "guidellm" else 503, 200, 200]
    assert log.src_tokens.tolist() == [30, 50, 10, 20]
    np.testing.assert_array_equal(log.tgt_tokens, [25, np.nan, 8, 21])
    assert (log.sampled_from, log.notes) == (None, ())


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_recognised_as_recorded_arrivals_plain_and_packed(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log"
    for content in (LOGS[name].encode(), gzip.compress(LOGS[name].encode())):
        path.write_bytes(content)
        recording = read_recording(path)
        assert (recording.form, recording.kind) == (name.split()[0], "measured")
        np.testing.assert_allclose(recording.time_s, [0.0, 1.0, 2.5, 4.0], atol=1e-6)
        assert recording.size_tokens is not None and recording.size_tokens.tolist() == [30, 50, 10, 20]


@pytest.mark.parametrize("name", LOGS)
def test_one_log_gives_arrivals_and_lengths_in_the_order_of_its_sizes(tmp_path: Path, name: str) -> None:
    (tmp_path / "log").write_text(LOGS[name], encoding="utf-8")
    workload = WorkloadConfiguration.model_validate(
        {"lengths": {"request_log": "log"}, "arrivals": {"kind": "recorded", "file": "log", "lengths": "rank"}}
    )
    table = workload.lengths.load(tmp_path)
    assert (table.src_len.tolist(), table.tgt_len.tolist()) == ([10, 20, 30], [8, 21, 25])
    assert (table.src_unit, table.tgt_unit, table.end_of_sentence) == ("token", "token", "none")
    assert "requests without both lengths left out: 1" in table.source
    assert workload.lengths.named_inputs(tmp_path) == {str(tmp_path / "log"): tmp_path / "log"}
    assert isinstance(workload.arrivals, Recorded)
    process = workload.arrivals.process(tmp_path)
    ranks = process.size_ranks(4, 1, 0, "a")
    assert ranks is not None and np.argsort(ranks).tolist() == [2, 3, 0, 1]


def test_the_template_of_the_prompts_is_subtracted_and_the_unit_named(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOGS["aiperf"])
    lengths = {"request_log": "log", "prompt_tokens": 12, "unit": "piece", "end_of_sentence": "target"}
    table = WorkloadConfiguration.model_validate({"lengths": lengths}).lengths.load(tmp_path)
    assert (table.src_len.tolist(), table.tgt_len.tolist()) == ([8, 18], [21, 25])
    assert (table.src_unit, table.end_of_sentence) == ("piece", "target")
    with pytest.raises(RequestLogError, match=r"no answered request of 4 states prompt tokens above 99 and generated"):
        WorkloadConfiguration.model_validate({"lengths": {"request_log": "log", "prompt_tokens": 99}}).lengths.load(tmp_path)


def test_requests_of_unknown_size_may_have_any_rank(tmp_path: Path) -> None:
    entries = [litellm((float(at), 0.1, 0 if at % 2 else at + 1, 5)) for at in range(200)]
    (tmp_path / "log").write_text(lines(entries), encoding="utf-8")
    ranks = Recorded(kind="recorded", file="log", lengths="rank").process(tmp_path).size_ranks(200, 1, 0, "a")
    assert ranks is not None
    assert (np.diff(ranks[::2]) > 0).all()
    assert np.quantile(ranks[1::2], [0.25, 0.75]) == pytest.approx([0.25, 0.75], abs=0.15)


def test_of_several_benchmarks_one_has_to_be_chosen(tmp_path: Path) -> None:
    report = json.dumps(guidellm(REQUESTS, REQUESTS[:2]))
    message = r"log\.json: benchmarks holds 2 benchmarks: 1 poisson, 2 poisson \(choose one by its number, --benchmark 1 \("
    with pytest.raises(RequestLogError, match=message):
        read(tmp_path, report)
    assert len(read(tmp_path, report, 1).begin_s) == 4
    assert len(read(tmp_path, report, 2).begin_s) == 2
    for number in (0, 3):
        with pytest.raises(RequestLogError, match=f"no benchmark {number} among 2"):
            read(tmp_path, report, number)
    with pytest.raises(RequestLogError, match="a log of AIPerf, which has no benchmarks"):
        read(tmp_path, LOGS["aiperf"], 1)
    assert len(Recorded(kind="recorded", file="log.json", benchmark=2).process(_written(tmp_path, report)).time_s) == 2


def _written(folder: Path, text: str) -> Path:
    (folder / "log.json").write_text(text)
    return folder


def test_a_sample_of_the_requests_is_no_arrival_process(tmp_path: Path) -> None:
    log = read(tmp_path, json.dumps(guidellm(REQUESTS, totals=400)))
    assert log.sampled_from == 401
    assert log.notes == ("a sample of 4 of 401 requests",)
    with pytest.raises(ArrivalsError, match=r"lists 4 of 401 requests.*\(run GuideLLM without --sample-requests\)"):
        read_recording(tmp_path / "log.json")


def test_what_no_request_sent_is_skipped_and_counted(tmp_path: Path) -> None:
    warm = [aiperf(REQUESTS[0], "warmup"), aiperf(REQUESTS[1])]
    assert read(tmp_path, lines(warm)).notes == ("requests of the warm-up skipped: 1",)
    calls = [litellm(REQUESTS[0], call_type="aembedding"), litellm(REQUESTS[1], cache_hit=True)]
    assert read(tmp_path, lines(calls)).notes == (
        "calls skipped that generate no text: 1",
        "answers from LiteLLM's cache, which reached no model: 1",
    )
    report = guidellm(REQUESTS)
    report["benchmarks"][0]["requests"]["incomplete"] = [{"prompt_tokens": 3}]
    assert read(tmp_path, json.dumps(report)).notes == ("requests skipped that never began: 1",)


@pytest.mark.parametrize("name", ["aiperf", "litellm", "litellm callback"])
def test_an_entry_within_which_the_log_ends_is_skipped_and_counted(tmp_path: Path, name: str) -> None:
    log = read(tmp_path, LOGS[name] + LOGS[name][:40])
    assert len(log.begin_s) == 4
    assert log.notes == ("entries skipped, since the file ends within them: 1",)
    with pytest.raises(RequestLogError, match=r"log\.json:5:\d+: no JSON: .* \(the file is damaged or cut off"):
        read(tmp_path, LOGS[name] + LOGS[name][:40] + "\n" + LOGS[name])


@pytest.mark.parametrize("name", ["guidellm", "guidellm 0.3", "litellm array"])
def test_a_document_that_is_cut_off_is_refused_with_its_place(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestLogError, match=r"log\.json:\d+:\d+: no JSON: .* \(the file is damaged or cut off"):
        read(tmp_path, LOGS[name][: len(LOGS[name]) * 2 // 3])


def test_dates_of_spend_logs_are_read_with_their_zone(tmp_path: Path) -> None:
    dates = ["2026-01-31T12:00:00.250000", "2026-01-31T12:00:01.250Z", "2026-01-31 14:00:02.250+02:00"]
    entries = [litellm(REQUESTS[0], startTime=date, endTime="2026-01-31T12:00:03+00:00") for date in dates]
    log = read(tmp_path, json.dumps(entries))
    np.testing.assert_allclose(log.begin_s, [0, 1, 2], atol=1e-6)
    np.testing.assert_allclose(log.latency_s, [2.75, 1.75, 0.75], atol=1e-6)


BROKEN = guidellm(REQUESTS)
BROKEN["benchmarks"][0]["requests"]["successful"][1]["prompt_tokens"] = float("nan")
NO_LIST = guidellm(REQUESTS)
NO_LIST["benchmarks"][0]["requests"] = None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": empty (give AIPerf's"),
        ("[]", ": no log of requests that is known, keys: none"),
        ("[3]", ": an entry is no JSON object"),
        ('{"a": 1, "b": 2}', ":1: no log of requests that is known, keys: a, b (give AIPerf's"),
        (json.dumps(BROKEN), ": benchmarks[0].requests.successful[1].prompt_tokens is nan, no number from 0 to 1e+09"),
        (json.dumps(NO_LIST), ": benchmarks[0].requests lists no requests (run GuideLLM without --sample-requests)"),
        ('{"benchmarks": []}', ": benchmarks holds no benchmark of GuideLLM"),
        (lines([aiperf(REQUESTS[0]), {"metadata": {}}]), ":2: not a record of AIPerf's profile_export.jsonl: metadata.request"),
        (lines([litellm(REQUESTS[0]), litellm(REQUESTS[1], startTime="noon")]), ":2: startTime is 'noon', no date (write 2026"),
        (lines([litellm(REQUESTS[0], startTime=BEGAN_S * 1e3)] * 2), ":1: startTime is 1.75981e+12, which is no Unix time"),
        (lines([litellm(REQUESTS[0], endTime=1.0)] * 2), ":1: endTime is before startTime (correct the entry"),
        (json.dumps([litellm(REQUESTS[0], prompt_tokens=2.5)]), ": entry 1: prompt_tokens is 2.5, no whole number"),
        (lines([aiperf(REQUESTS[0], "warmup")] * 2), ": no requests of AIPerf: requests of the warm-up skipped: 2"),
    ],
)
def test_what_is_no_log_is_refused_in_one_line_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RequestLogError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'log.json'}{message}")
    assert "\n" not in str(caught.value) and caught.value.remedy


def test_a_stated_form_must_be_that_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOGS["aiperf"])
    with pytest.raises(ArrivalsError, match=r"a log of AIPerf, not of the form litellm \(give form: aiperf, or leave it out\)"):
        read_recording(tmp_path / "log", "litellm")
    (tmp_path / "times").write_text("t_s\n0\n1\n")
    with pytest.raises(ArrivalsError, match="benchmark is for a report of GuideLLM"):
        read_recording(tmp_path / "times", benchmark=1)
    with pytest.raises(ArrivalsError, match="no such file"):
        read_recording(tmp_path / "missing")


requests = st.lists(
    st.tuples(
        st.integers(0, 10**7).map(lambda microseconds: microseconds / 1e6),
        st.integers(1, 10**7).map(lambda microseconds: microseconds / 1e6),
        st.integers(1, 10**5),
        st.integers(1, 10**5),
    ),
    min_size=1,
    max_size=20,
    unique_by=lambda request: request[0],
)


@settings(max_examples=40)
@given(requests)
def test_all_tools_tell_the_same_of_any_requests(tmp_path_factory: pytest.TempPathFactory, sent: list[Request]) -> None:
    folder = tmp_path_factory.getbasetemp()
    texts = [lines([aiperf(request) for request in sent]), lines([litellm(request) for request in sent])]
    texts += [json.dumps(guidellm(sent)), json.dumps(guidellm(sent, older=True))]
    begin_s, latency_s, src, tgt = zip(*sorted(sent), strict=True)
    for text in texts:
        log = read(folder, text)
        np.testing.assert_allclose(log.begin_s, np.array(begin_s) - begin_s[0], atol=1e-6)
        np.testing.assert_allclose(log.latency_s, latency_s, atol=1e-6)
        assert (log.src_tokens.tolist(), log.tgt_tokens.tolist()) == (list(src), list(tgt))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def places(document: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every path of keys within a document."""
    items = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    return [path] * bool(path) + [place for key, value in items for place in places(value, (*path, key))]


@settings(max_examples=40)
@given(st.sampled_from([aiperf(REQUESTS[0]), litellm(REQUESTS[2]), guidellm(REQUESTS[1:3])]), st.data(), json_values)
def test_any_change_of_a_log_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, log: dict[str, Any], data: st.DataObject, value: Any
) -> None:
    changed = json.loads(json.dumps(log))
    path = data.draw(st.sampled_from(places(changed)))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    try:
        read(tmp_path_factory.getbasetemp(), json.dumps(changed))
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 700


def test_a_scenario_runs_on_one_log_and_a_wrong_one_is_one_line(folder: Path, simnmt: Callable[..., Outcome]) -> None:
    (folder / "log.jsonl").write_text(LOGS["litellm"], encoding="utf-8")
    workload = "{lengths: {request_log: log.jsonl, unit: word}, arrivals: {kind: recorded, file: log.jsonl, lengths: rank}}"
    done = simnmt("run", "small.yaml", "--set", f"workloads={{chat: {workload}}}", "--out", "run")
    assert (done.status, done.err) == (0, "")
    inputs = json.loads((folder / "run" / "manifest.json").read_text())["inputs"]
    assert "log.jsonl" in {Path(name).name for name in inputs}
    (folder / "log.jsonl").write_text(LOGS["litellm"].replace('"completion_tokens": 8', '"completion_tokens": NaN'))
    wrong = simnmt("run", "small.yaml", "--set", f"workloads={{chat: {workload}}}", "--out", "again")
    assert wrong.status == 2
    assert "log.jsonl:2: completion_tokens is nan, no number from 0 to 1e+09 (" in wrong.err
    assert len(wrong.err.splitlines()) == 1
