"""What stands in the place of an input file: each reader refuses a missing file and a folder in one line."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.refusals import assert_one_line

READERS = {
    "scenario": "run {}",
    "measured scenario": "reproduce cnmt --out new --measured {}",
    "corpus": "corpus fit {} news.en",
    "targets of a corpus": "corpus fit news.de {}",
    "corpus to count": "corpus table {} news.en --out new.csv",
    "targets to count": "corpus table news.de {} --out new.csv",
    "source text": "run small.yaml --set workloads.news.lengths.source={}",
    "bandwidths": "run small.yaml --set networks.office.uplink_mbps={}",
    "trace to import": "trace import {} --out new.csv",
    "trace to resample": "trace resample {} --hours 1 --out new.csv",
    "recorded arrivals": """run small.yaml --set 'workloads.news.arrivals={{"kind":"recorded","speed":1,"file":"{}"}}'""",
    "arrival rates": """run small.yaml --set 'workloads.news.arrivals={{"kind":"varying","series":{{"csv":"{}"}}}}'""",
    "profile": "profile inspect {}",
    "compared profile": "profile compare gateway.json {}",
    "profile of a scenario": "run small.yaml --set devices.cloud.profile={}",
    "profile of top-up": "reproduce topup --out new --profile {}",
    "profile of fused layers": "reproduce fused --out new --profile {}",
    "round trips": "run small.yaml --set networks.office.rtt={}",
    "length table": """run small.yaml --set 'workloads.news.lengths={{"table":"{}"}}'""",
    "sentencepiece model": "corpus fit news.de news.en --unit sentencepiece:{}",
    "sentencepiece model to count": "corpus table news.de news.en --out new.csv --unit sentencepiece:{}",
    "sentencepiece model of a scenario": """run small.yaml --set 'workloads.news.lengths.src_unit={{"sentencepiece":"{}"}}'""",
    "trace": "trace inspect {}",
    "streaming profile": "sti plan --profile {} --deadline 100ms --preload 1MB",
    "importance": "reproduce sti --study {} --out new",
    "pipeline": "reproduce sti --pipeline {} --out new",
    "vocabulary study": "reproduce vocab --study {} --out new",
    "bench": "reproduce vocab --bench {} --out new",
    "run to compare": "compare {} other",
    "swept scenario": "sweep {} --out new --grid requests=1,2",
    "swept traces": "sweep small.yaml --out new --grid networks.office.rtt={},longer.csv",
    "trace of a sweep": "sweep small.yaml --out new --grid requests=1,2 --set networks.office.rtt={}",
    "planned scenario": "plan {} --slo 'p95_ms<=300'",
    "varied traces": """plan small.yaml --slo 'p95_ms<=300' --rate 1 --vary networks.office.rtt={},longer.csv """
    """--set 'workloads.news.arrivals={{"kind":"poisson","rate_rps":1}}'""",
    "trace of a plan": "plan small.yaml --slo 'p95_ms<=300' --set networks.office.rtt={}",
}


@pytest.mark.parametrize("reader", READERS)
def test_a_missing_file_and_a_folder_are_refused_in_one_line(folder: Path, simnmt: Callable[..., Any], reader: str) -> None:
    Path("longer.csv").write_text("time_s,rtt_ms\n" + "".join(f"{k},{50 + k * k % 17}\n" for k in range(400)))
    Path("folder").mkdir()
    before = sorted(path.name for path in folder.iterdir())
    for name in ("missing", "folder"):
        done = simnmt(*shlex.split(READERS[reader].format(name)))
        assert (done.status, done.out) == (2, ""), (name, done)
        assert_one_line(done.err)
        assert name in done.err and "unknown key" not in done.err, done.err
        assert sorted(path.name for path in folder.iterdir()) == before, name
