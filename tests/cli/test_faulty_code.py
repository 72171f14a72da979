"""A fault of a user's code ends the command with status 2 and one line that names policy, request and place; no run is left."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.harness import deep
from tests.command_line import COMMAND
from tests.refusals import assert_one_line

POLICY = """\
import numpy as np


class Mine:
    def prepare(self, src_len):
        {prepare}
        return self.decide

    def decide(self, request, delay_s):
        return {decide}


class NoDelays:
    def prepare(self, src_len):
        pass

    def decide(self, request):
        return 0
"""
AT = "simnmt: policy mine (workload news, network office, replication 0)"
FAULTS = {
    "another decide": ("NoDelays", "", "0", f"{AT}, request 0: decide raised TypeError"),
    "raises in prepare": ("Mine", "self.weights", "0", f"{AT}: prepare raised AttributeError"),
    "raises in decide": ("Mine", "", "[0][request // 7]", f"{AT}, request 7: decide raised IndexError"),
    "exits in decide": ("Mine", "", "exit('\\n')", f"{AT}, request 0: decide raised SystemExit in mine.py:10"),
    "a target beyond the last": ("Mine", "", "2 * (request == 9)", f"{AT}, request 9: decide returned 2 "),
}


OTHERS = {
    "arrivals that raise": (
        "lengths: {source: news.de, target: news.en, src_unit: word, tgt_unit: word}",
        'lengths: {source: news.de, target: news.en, src_unit: word, tgt_unit: word}\n    arrivals: {kind: "mine.py:Late"}',
        "simnmt: own.yaml:9:22: workloads.news.arrivals.kind: mine.py:Late: times raised ValueError",
    ),
    "a cost function that raises later": (
        "cloud: {profile: cloud.json}",
        'cloud: {profile: {kind: "mine.py:cost_of_few"}}',
        "simnmt: own.yaml:13:27: devices.cloud.profile.kind: cost function mine.py:cost_of_few raised ValueError",
    ),
}
CODE = """\
class Late:
    def times(self, n, rng):
        raise ValueError("no clock")


def cost_of_few(src_len, tgt_len):
    if len(src_len) >= 200:
        raise ValueError("no cost")
    return 0.01 * tgt_len
"""


@pytest.fixture
def run_policy(folder: Path, simnmt: Callable[..., Any]) -> Callable[..., Any]:
    """Runs small.yaml with a policy of the user's beside another."""

    def run(source: str, name: str = "Mine", *options: str) -> Any:
        scenario = (folder / "small.yaml").read_text().replace("policies: {", f'policies: {{mine: {{kind: "mine.py:{name}"}}, ')
        (folder / "own.yaml").write_text(scenario)
        (folder / "mine.py").write_text(source)
        return simnmt("run", "own.yaml", "--allow-code", *options)

    return run


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_policy_is_one_line_and_leaves_no_run(
    run_policy: Callable[..., Any], folder: Path, tree: Callable[[Path], Any], fault: str
) -> None:
    name, prepare, decide, expected = FAULTS[fault]
    before = set(tree(folder))
    done = run_policy(POLICY.format(prepare=prepare or "pass", decide=decide), name, "--out", "new")
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)
    assert done.err.startswith(expected), done.err
    assert set(tree(folder)) - before == {"own.yaml", "mine.py"}  # no run, nor a part of one


@pytest.mark.parametrize("jobs", ["1", deep("2")])
def test_a_fault_within_a_library_names_the_line_of_the_user_and_verbose_prints_the_traceback(
    run_policy: Callable[..., Any], jobs: str
) -> None:
    source = "import json\n" + POLICY.format(prepare="pass", decide='json.loads("{")')
    done = run_policy(source)
    assert done.status == 2 and done.err.rstrip().endswith(" in mine.py:11"), done.err
    assert_one_line(done.err)
    command = [*COMMAND, "run", "own.yaml", "--allow-code", "-v", "--jobs", jobs]
    verbose = subprocess.run(command, capture_output=True, text=True, check=False)
    assert verbose.returncode == 2 and verbose.stderr.endswith(done.err)
    assert "Traceback" in verbose.stderr and 'mine.py", line 11' in verbose.stderr and "decoder.py" in verbose.stderr


@pytest.mark.parametrize("fault", OTHERS)
def test_a_fault_of_another_kind_has_the_place_of_its_key(folder: Path, simnmt: Callable[..., Any], fault: str) -> None:
    written, instead, expected = OTHERS[fault]
    (folder / "own.yaml").write_text((folder / "small.yaml").read_text().replace(written, instead))
    (folder / "mine.py").write_text(CODE)
    done = simnmt("run", "own.yaml", "--allow-code")
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)
    assert done.err.startswith(expected), done.err


def test_a_fault_of_a_cost_function_that_an_option_names_names_its_key_once(folder: Path, simnmt: Callable[..., Any]) -> None:
    Path("costs.py").write_text("def seconds(src_len, tgt_len):\n    return -1.0 * src_len\n")
    given = "devices.cloud.profile={kind: 'costs.py:seconds'}"
    done = simnmt("run", "small.yaml", "--allow-code", "--set", given)
    assert done.status == 2
    assert_one_line(done.err)
    assert done.err.startswith(f"simnmt: --set {given}: devices.cloud.profile") and done.err.count("--set") == 1
