"""Logs of hey, locust and AIPerf, in the forms that their documentation shows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.service.load_logs import LoadLogError, read_load_log
from tests.command_line import Outcome, folder, simnmt

__all__ = ["folder", "simnmt"]

HEY = """\
response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset
0.0200,0.0010,0.0000,0.0001,0.0180,0.0001,200,0.5000
0.0100,0.0010,0.0000,0.0001,0.0080,0.0001,200,0.1000
0.0400,0.0010,0.0000,0.0001,0.0380,0.0001,200,1.0600
0.0010,0.0010,0.0000,0.0001,0.0001,0.0001,429,1.0000
"""
LOCUST = """\
Type,Name,Request Count,Failure Count,Median Response Time,Average Response Time,Min Response Time,Max Response Time,\
Average Content Size,Requests/s,Failures/s,50%,66%,75%,80%,90%,95%,98%,99%,99.9%,99.99%,100%
POST,/translate,100,4,21,24.5,9,88,140,10.5,0.5,21,22,25,28,40,52,80,88,88,88,88
,Aggregated,100,4,21,24.5,9,88,140,10.5,0.5,21,22,25,28,40,52,80,88,88,88,88
"""
LOCUST_JSON: list[dict[str, Any]] = [
    {
        "name": "/translate",
        "method": "POST",
        "last_request_timestamp": 1670363796.0,
        "start_time": 1670363792.0,
        "num_requests": 8,
        "num_none_requests": 0,
        "num_failures": 2,
        "total_response_time": 64.0,
        "max_response_time": 19.2,
        "min_response_time": 3.2,
        "total_content_length": 4920,
        "response_times": {"19": 1, "9": 1, "4": 3, "10": 1, "3": 1, "8": 1},
        "num_reqs_per_sec": {"1670363793": 8},
        "num_fail_per_sec": {},
    }
]


def aiperf(begin_ns: int, latency_ms: float | None, code: int | None = None) -> str:
    end_ns = begin_ns + round((latency_ms or 0.0) * 1e6)
    error = None if code is None else {"code": code, "type": "RequestCancellationError", "message": "cancelled"}
    metrics = {} if code is not None else {"request_latency": {"value": latency_ms, "unit": "ms"}}
    metadata = {"session_num": 0, "request_start_ns": begin_ns, "request_end_ns": end_ns, "was_cancelled": code == 499}
    return json.dumps({"metadata": metadata, "metrics": metrics, "error": error}) + "\n"


def test_hey_lists_requests(tmp_path: Path) -> None:
    path = tmp_path / "hey.csv"
    path.write_text(HEY)
    log = read_load_log(path)
    assert log.requests is not None
    np.testing.assert_allclose(log.requests.begin_s, [0.0, 0.4, 0.9, 0.96])
    assert log.requests.status.tolist() == [200, 200, 429, 200]
    summary = log.summary
    assert (summary.tool, summary.requests, summary.failures, summary.p50_s) == ("hey", 4, 1, 0.02)
    assert summary.mean_s == pytest.approx(0.07 / 3)
    assert summary.throughput_rps == pytest.approx(3.0)


def test_the_aggregated_row_of_locust_counts(tmp_path: Path) -> None:
    path = tmp_path / "run_stats.csv"
    path.write_text(LOCUST)
    log = read_load_log(path)
    assert log.requests is None
    assert log.summary == ("locust", 100, 4, 0.0245, 0.021, 0.052, 0.088, 10.0, True)


def test_locust_json_gives_quantiles_of_its_counts(tmp_path: Path) -> None:
    path = tmp_path / "locust.json"
    path.write_text(json.dumps(LOCUST_JSON))
    assert read_load_log(path).summary == ("locust", 8, 2, 0.008, 0.004, 0.019, 0.019, 1.5, True)


def test_aiperf_lists_requests_and_failures(tmp_path: Path) -> None:
    path = tmp_path / "profile_export.jsonl"
    begin_ns = 1_759_813_207_532_900_363
    lines = [
        aiperf(begin_ns + 10**9, 500.0),
        aiperf(begin_ns, 300.0),
        aiperf(begin_ns + 5 * 10**8, None, 499),
        aiperf(begin_ns + 7 * 10**8, None, 503),
    ]
    path.write_text("".join(lines) + lines[0][:50])
    log = read_load_log(path)
    assert log.requests is not None
    np.testing.assert_allclose(log.requests.begin_s, [0.0, 0.5, 0.7, 1.0], atol=1e-6)
    assert log.requests.status.tolist() == [200, 499, 503, 200]
    assert log.summary[:4] == ("aiperf", 4, 2, pytest.approx(0.4))
    assert log.summary.throughput_rps == pytest.approx(2.0 / 1.5, rel=1e-5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ":1: not a log of a load tool"),
        ("a,b\n1,2\n", ":1: not a log of a load tool"),
        (HEY.replace("0.0400", "soon"), ":4: response-time: 'soon' is not a number"),
        (HEY + "1,2\n", ":6: 2 cells, but the first row names 8"),
        (LOCUST.replace("Aggregated", "Total"), "no row Aggregated"),
        ('[{"name": "/"}]', "not the statistics of locust --json"),
        ("[1", ":1: no JSON"),
        ('{"metadata": {}}\n', ":1: not a record of AIPerf's"),
        (aiperf(1, 2.0) + "{bad\n", ":2: no JSON"),
    ],
)
def test_a_wrong_log_is_refused_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "log"
    path.write_text(content)
    with pytest.raises(LoadLogError) as error:
        read_load_log(path)
    assert message in str(error.value)


def test_guidellm_and_litellm_are_measurements_and_a_cut_entry_is_a_note(folder: Path, simnmt: Callable[..., Outcome]) -> None:
    payload = {"startTime": 100.0, "endTime": 100.5, "prompt_tokens": 3, "completion_tokens": 4, "status": "success"}
    entries = [payload, payload | {"startTime": 101.0, "endTime": 102.5}, payload | {"status": "failure"}]
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / "litellm.jsonl").write_text(text + text[:30])
    outcome = simnmt("live", "import", "litellm.jsonl")
    assert outcome.status == 0
    assert "3 requests, 1 failed" in outcome.out and "mean        1,000.0 ms" in outcome.out
    assert "  note: entries skipped, since the file ends within them: 1" in outcome.out
    document = json.loads(simnmt("live", "import", "litellm.jsonl", "--json").out)
    assert document["notes"] == ["entries skipped, since the file ends within them: 1"]
    (folder / "packed").write_bytes(gzip.compress(text.encode()))
    assert read_load_log(folder / "packed").summary == read_load_log(folder / "litellm.jsonl").summary
    (folder / "array.json").write_text(json.dumps(entries))
    assert read_load_log(folder / "array.json").summary == read_load_log(folder / "litellm.jsonl").summary
    request = {"request_start_time": 100.0, "request_latency": 0.25, "prompt_tokens": 3, "output_tokens": 4}
    runs = [{"requests": {"successful": [request] * many, "errored": [], "incomplete": []}} for many in (1, 2)]
    (folder / "benchmarks.json").write_text(json.dumps({"benchmarks": runs}))
    assert "2 requests, 0 failed" in simnmt("live", "import", "benchmarks.json", "--benchmark", "2").out
    several = simnmt("live", "import", "benchmarks.json")
    assert several.status == 2
    assert "benchmarks.json: benchmarks holds 2 benchmarks: 1, 2 (choose one by its number, --benchmark 1" in several.err
    (folder / "hey.csv").write_text(HEY)
    assert simnmt("live", "import", "hey.csv", "--benchmark", "1").status == 2


def test_the_command_prints_a_summary(folder: Path, simnmt: Callable[..., Outcome]) -> None:
    (folder / "hey.csv").write_text(HEY)
    outcome = simnmt("live", "import", "hey.csv")
    assert outcome.status == 0
    assert "4 requests, 1 failed" in outcome.out
    document = json.loads(simnmt("live", "import", "hey.csv", "--json").out)
    assert document["summary"]["p50_s"] == 0.02
    assert document["requests"]["latency_s"] == [0.01, 0.02, 0.001, 0.04]
    assert simnmt("live", "import", "small.yaml").status == 2
