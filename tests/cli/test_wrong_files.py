"""Files of another kind than expected: one line that says what the file is, and where it belongs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import ROOT, Outcome

Run = Callable[..., Outcome]
PING = """\
PING office (192.0.2.9) 56(84) bytes of data.
[1700000000.1] 64 bytes from 192.0.2.9: icmp_seq=1 ttl=55 time=11.2 ms
[1700000001.1] 64 bytes from 192.0.2.9: icmp_seq=2 ttl=55 time=12.2 ms
[1700000003.1] 64 bytes from 192.0.2.9: icmp_seq=4 ttl=55 time=11.9 ms
"""
SCENARIO = ROOT / "scenarios" / "quickstart.yaml"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.py").write_text('"""A policy."""\nclass Mine:\n    def prepare(self, src_len): ...\n')
    Path("notes.md").write_text("# Notes\n\nWhat follows: a list: of things\n  - one\n")
    Path("ping.log").write_text(PING)
    Path("manual.fr").write_text("Le manuel est ici.\nVoici une phrase; avec une autre.\n")
    Path("scenario.yaml").write_bytes(SCENARIO.read_bytes())


WRONG = {
    "Python as a scenario": (["run", "policy.py"], ["policy.py:1:"]),
    "a text as a scenario": (["run", "notes.md"], ["notes.md:3:"]),
    "a ping log as a series": (
        ["run", "scenario.yaml", "--set", "networks.cp1.rtt=ping.log"],
        ["networks.cp1.rtt: ", "this is a log of ping, no series", "simnmt trace import ping.log --out"],
    ),
    "a text as a ping log": (["trace", "import", "manual.fr", "--out", "x.csv"], ["manual.fr: no log of ping"]),
    "a scenario as a profile": (
        ["run", "scenario.yaml", "--set", "devices.cloud.profile=scenario.yaml"],
        ["devices.cloud.profile: ", "scenario.yaml: this is a scenario, no device profile"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_of_another_kind_is_one_line_that_says_what_it_is(simnmt: Run, case: str) -> None:
    arguments, parts = WRONG[case]
    done = simnmt(*arguments)
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert all(part in done.err for part in parts), done.err


def test_a_log_without_a_column_of_times_is_still_asked_for_one(simnmt: Run) -> None:
    Path("log.csv").write_text("when,how\n1,20\n2,30\n")
    assert "name it by --column time=NAME" in simnmt("trace", "import", "log.csv", "--out", "x.csv").err


def test_an_import_and_a_run_count_lost_samples(simnmt: Run) -> None:
    assert "lost samples: 1" in simnmt("trace", "import", "ping.log", "--out", "office.csv").out
    networks = "networks={office: {rtt: office.csv}}"
    run = simnmt("run", "scenario.yaml", "--requests", "300", "--replications", "1", "--json", "--set", networks)
    assert "lost samples: 1" in run.out
