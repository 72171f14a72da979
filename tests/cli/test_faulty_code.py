"""A fault of a user's code ends the command with status 2 and one line that names policy, request and place; no run is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.refusals import assert_one_line

POLICY = """\
import numpy as np


class Mine:
    def prepare(self, src_len):
        {prepare}
        return self.decide

    def decide(self, request, delay_s):
        return {decide}


class Lacking:
    pass


class Held:
    prepare = 3


class NoLengths:
    def prepare(self):
        pass


class NoDelays:
    def prepare(self, src_len):
        pass

    def decide(self, request):
        return 0


def function(knowledge):
    return 1
"""
KEY = "simnmt: own.yaml:15:25: policies.mine"
AT = "simnmt: policy mine (workload news, network office, replication 0)"
TARGET = "(return the number of a target, 0 to 1)"
SO = "so it is no policy (write a class with prepare(src_len), which returns decide(request, delay_s))"
FAULTS = {
    "a class that is not there": (
        "Mien", "", "0", f"{KEY}.kind: mine.py has no Mien (did you mean Mine?)"
    ),
    "no method": ("Lacking", "", "0", f"{KEY}.kind: mine.py:Lacking has no method prepare, {SO}"),
    "no method but an attribute": (
        "Held", "", "0", f"{KEY}.kind: mine.py:Held has no method prepare, {SO}"
    ),
    "a function": (
        "function", "", "0",
        f"{KEY}: mine.py:function returned 1, which has no method prepare, {SO}",
    ),
    "another prepare": (
        "NoLengths", "", "0",
        f"{AT}: prepare raised TypeError: NoLengths.prepare() takes 1 positional argument but 2 were given",
    ),
    "another decide": (
        "NoDelays", "", "0",
        f"{AT}, request 0: decide raised TypeError: NoDelays.decide() takes 2 positional arguments but 3 were given",
    ),
    "raises in prepare": (
        "Mine", "self.weights", "0",
        f"{AT}: prepare raised AttributeError: 'Mine' object has no attribute 'weights' in mine.py:6",
    ),
    "exits in prepare": ("Mine", "raise SystemExit(3)", "0", f"{AT}: prepare raised SystemExit: 3 in mine.py:6"),
    "raises in decide": (
        "Mine", "", "[0][request // 7]", f"{AT}, request 7: decide raised IndexError: list index out of range in mine.py:10"
    ),
    "exits in decide": ("Mine", "", "exit('\\n')", f"{AT}, request 0: decide raised SystemExit in mine.py:10"),
    "a target beyond the last": (
        "Mine", "", "2 * (request == 9)",
        f"{AT}, request 9: decide returned 2 {TARGET}",
    ),
    "a target below 0": (
        "Mine", "", "-1", f"{AT}, request 0: decide returned -1 {TARGET}"
    ),
    "a number of numpy beyond the last": (
        "Mine", "", "np.int64(2)",
        f"{AT}, request 0: decide returned {np.int64(2)!r} {TARGET}",
    ),
    "a fraction": ("Mine", "", "0.5", f"{AT}, request 0: decide returned 0.5 {TARGET}"),
    "a whole float": ("Mine", "", "1.0", f"{AT}, request 0: decide returned 1.0 {TARGET}"),
    "a float of numpy": ("Mine", "", "np.float64(1)", f"{AT}, request 0: decide returned {np.float64(1)!r} {TARGET}"),
    "a truth value": ("Mine", "", "True", f"{AT}, request 0: decide returned True {TARGET}"),
    "a truth value of numpy": ("Mine", "", "np.bool_(True)", f"{AT}, request 0: decide returned {np.bool_(True)!r} {TARGET}"),
    "nothing": ("Mine", "", "None", f"{AT}, request 0: decide returned None {TARGET}"),
    "a text": ("Mine", "", "'cloud'", f"{AT}, request 0: decide returned 'cloud' {TARGET}"),
    "an array": ("Mine", "", "np.array([1, 0])", f"{AT}, request 0: decide returned array([1, 0]) {TARGET}"),
}  # fmt: skip


OTHERS = {
    "arrivals that raise": (
        "lengths: {source: news.de, target: news.en, src_unit: word, tgt_unit: word}",
        'lengths: {source: news.de, target: news.en, src_unit: word, tgt_unit: word}\n    arrivals: {kind: "mine.py:Late"}',
        "simnmt: own.yaml:9:22: workloads.news.arrivals: mine.py:Late: times raised ValueError: no clock in mine.py:3",
    ),
    "a cost function that raises": (
        "cloud: {profile: cloud.json}",
        'cloud: {profile: {kind: "mine.py:cost"}}',
        "simnmt: own.yaml:13:27: devices.cloud.profile: cost function mine.py:cost raised ValueError: no cost in mine.py:7",
    ),
    "a cost function that raises later": (
        "cloud: {profile: cloud.json}",
        'cloud: {profile: {kind: "mine.py:cost_of_few"}}',
        "simnmt: own.yaml:13:27: devices.cloud.profile: cost function mine.py:cost_of_few raised ValueError: no cost",
    ),
}  # fmt: skip
CODE = """\
class Late:
    def times(self, size, seed, replication, stream_name):
        raise ValueError("no clock")


def cost(src_len, tgt_len):
    raise ValueError("no cost")


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
    assert done.err.strip() == expected
    assert set(tree(folder)) - before == {"own.yaml", "mine.py"}  # no run, nor a part of one


def test_a_faulty_policy_leaves_no_run_in_the_usual_folder_either(run_policy: Callable[..., Any], folder: Path) -> None:
    assert run_policy(POLICY.format(prepare="pass", decide="[0][request // 7]")).status == 2
    assert not list(folder.glob("reports/*"))


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
