"""The log of a live gateway: what is written is read, torn ends are left out, and a wrong line is named."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.results.live_log import (
    LIVE_OUTCOMES,
    BeginRecord,
    LiveLogError,
    ReferenceRecord,
    RequestRecord,
    format_record,
    read_live_log,
)

BEGIN = BeginRecord("cnmt", ("gateway", "cloud"), "live.yaml", {"cloud": "abc"})
DONE = RequestRecord(17, 12.034, 12.0341, 21, 19, 1, "cloud", 0.0, 0.0213, 0.0112, 12.067, "done", 4)
REFUSED = RequestRecord(18, 12.1, None, None, None, None, None, None, None, None, 12.1001, "refused")
REFERENCE = ReferenceRecord("gateway", 12.5, 0.0051)


def test_the_records_of_a_gateway_are_read_back_and_events_and_keys_of_later_versions_passed_over(tmp_path: Path) -> None:
    later = json.dumps({**asdict(DONE), "colour": "red"}) + "\n"
    lines = [*map(format_record, (BEGIN, DONE, REFERENCE, REFUSED)), '{"event": "end"}\n', "\n", later]
    (tmp_path / "log").write_text("".join(lines), encoding="utf-8")
    log = read_live_log(tmp_path / "log")
    assert log.begin == BEGIN
    assert (log.requests, log.references) == ([DONE, REFUSED, DONE], [REFERENCE])


@given(
    st.lists(
        st.builds(
            partial(replace, DONE),
            request=st.integers(0, 2**40),
            src_len=st.integers(0, 10**6),
            execution_s=st.floats(0.0, 1e6),
            outcome=st.sampled_from(LIVE_OUTCOMES),
            batch=st.integers(1, 1000),
        ),
        max_size=5,
    ),
    st.integers(0, 400),
)
def test_a_log_cut_anywhere_loses_only_its_last_record(
    tmp_path_factory: pytest.TempPathFactory, records: list[RequestRecord], cut: int
) -> None:
    text = (format_record(BEGIN) + "".join(map(format_record, records))).encode()
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(text[: max(len(text) - cut, 0)])
    log = read_live_log(path)
    whole = path.read_bytes().count(b"\n")
    assert max(whole - 1, 0) <= len(log.requests) <= whole
    assert log.requests == records[: len(log.requests)]


def changed(**keys: Any) -> str:
    return json.dumps({**asdict(DONE), **keys}) + "\n"


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("{not json}\n", ""),
        ('{"request": 1}\n', "event"),
        ("\udcff\n", ""),
        (changed(execution_s=-0.1), "execution_s"),
        (changed(execution_s=float("nan")), "execution_s"),
        (changed(src_len=True), "src_len"),
        (changed(tgt_len=10**400), "tgt_len"),
        (changed(batch=0), "batch"),
        (changed(outcome="lost"), "outcome"),
        ('{"event": "begin", "policy": "cnmt", "devices": []}\n', "devices"),
        ('{"event": "reference", "device": "gateway", "at_s": 1}\n', "execution_s"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, key: str) -> None:
    path = tmp_path / "log"
    path.write_bytes((format_record(DONE) + line + format_record(DONE)).encode(errors="surrogateescape"))
    with pytest.raises(LiveLogError) as error:
        read_live_log(path)
    assert (error.value.line, error.value.path) == (2, str(path))
    assert key in error.value.what
    for other in (tmp_path / "none", tmp_path):
        with pytest.raises(LiveLogError):
            read_live_log(other)
