"""Code of users on the command line: allowed files, installed packages, and faults, which are a line with policy and place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simnmt import InputError, run
from simnmt.base.extension import installed_kinds
from simnmt.scenario.template import schema_text
from simnmt.world.structures import library
from tests.campaigns.harness import deep
from tests.command_line import COMMAND, ROOT, Command, Tree, assert_one_line

RECIPES = ROOT / "docs" / "recipes" / "simnmt-recipes"
POLICY = '''\
"""Send long sentences to the cloud."""

from dataclasses import dataclass

print("imported")


@dataclass
class LongAway:
    threshold: int
    target: int = 1

    def prepare(self, src_len):
        print("prepared")
        away = (src_len > self.threshold).tolist()
        return lambda request, delay_s: self.target if away[request] else 0


class Lacking:
    pass
'''
SCENARIO = """\
version: 1
name: own
requests: 300
replications: 2
workloads: {news: {lengths: "@de-en-news"}}
networks: {cp1: {rtt: "@cp1"}}
devices:
  gateway: {profile: "@tx2-bilstm"}
  cloud: {profile: "@titan-xp-bilstm"}
fit: {inferences: 500}
policies:
  cnmt: {}
  mine:
    kind: "mypolicy.py:LongAway"
    threshold: 20
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder, with a policy and a scenario that names it."""
    monkeypatch.chdir(tmp_path)
    Path("mypolicy.py").write_text(POLICY)
    Path("own.yaml").write_text(SCENARIO)


@pytest.mark.parametrize("jobs", ["1", deep("2")])
@pytest.mark.usefixtures("here")
def test_a_policy_of_twenty_lines_is_set_beside_cnmt_in_one_command(simnmt: Command, process: Command, jobs: str) -> None:
    command = simnmt if jobs == "1" else process
    done = command("run", "own.yaml", "--allow-code", "--jobs", jobs, "--out", "run", "--json")
    assert done.status == 0, done.err
    result = json.loads(done.out)  # what the policy prints is not in it
    assert "imported" in done.err and "prepared" in done.err
    (change,) = [row for row in result["comparisons"] if (row["policy"], row["baseline"]) == ("cnmt", "mine")]
    assert change["effect"] in ("faster", "slower", "not distinguishable")
    manifest = json.loads(Path("run/manifest.json").read_text())
    assert set(manifest["engines"].values()) == {"reference" if library() is None else "compiled"}
    assert str(Path("mypolicy.py").absolute()) in manifest["inputs"]

    with pytest.raises(InputError, match=r"mypolicy.py:LongAway is code, which runs only if you allow it"):
        run("run")
    run("run", allow_code=True, out="again")
    assert Path("again/summary.json").read_bytes() == Path("run/summary.json").read_bytes()
    Path("mypolicy.py").write_text(POLICY + "\n")
    with pytest.raises(InputError, match="an input of that run has changed since"):
        run("run", allow_code=True)


REFUSED = {
    "code that is not allowed": ("", "", "own.yaml:14:11: policies.mine.kind: mypolicy.py:LongAway is code"),
    "an unknown parameter": (
        "threshold: 20",
        "treshold: 20",
        "own.yaml:15:5: policies.mine.treshold: unknown key (did you mean",
    ),
    "a file that is not there": ("mypolicy.py", "policy.py", "own.yaml:14:11: policies.mine.kind: no file policy.py"),
    "a module that raises": ("mypolicy.py:LongAway", "broken.py:Mine", "own.yaml:14:11: policies.mine.kind: broken.py"),
    "parameters that exclude each other": ("mypolicy.py:LongAway", "ordered.py:Mine", "own.yaml:14:5: policies.mine: least is"),
}


@pytest.mark.parametrize("fault", REFUSED)
@pytest.mark.usefixtures("here")
def test_code_that_cannot_be_used_is_one_line_with_its_place(simnmt: Command, fault: str) -> None:
    Path("broken.py").write_text("1 / 0\n")
    Path("ordered.py").write_text(
        "from simnmt import PolicySettings\nfrom pydantic import model_validator\n"
        "class Mine(PolicySettings):\n    threshold: int\n    least: int = 30\n"
        "    def policy(self, knowledge): ...\n"
        "    @model_validator(mode='after')\n    def _ordered(self):\n"
        "        if self.least > self.threshold:\n            raise ValueError('least is above threshold')\n"
        "        return self\n"
    )
    written, instead, expected = REFUSED[fault]
    Path("own.yaml").write_text(SCENARIO.replace(written, instead))
    done = simnmt("run", "own.yaml", *(["--allow-code"] if written else []))
    assert (done.status, done.out) == (2, "")
    printed = "imported\n" * (fault == "an unknown parameter")  # what the file prints, where it may be imported
    assert done.err.startswith(printed)
    assert_one_line(done.err.removeprefix(printed))
    assert expected in done.err.replace(f"{Path.cwd()}/", "")
    assert not Path("reports").exists()


@pytest.mark.deep
@pytest.mark.usefixtures("here")
def test_the_recipe_package_is_built_under_another_name_installed_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(RECIPES, tmp_path / "package")
    project = tmp_path / "package" / "pyproject.toml"
    project.write_text(project.read_text().replace('name = "simnmt-recipes"', 'name = "kinds-of-ours"'))
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--quiet", "--target", "installed"]
    built = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "./package"], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    kinds = ("long_away", "every", "power_law", "longest_first")
    with pytest.raises(InputError, match=r"package/scenario.yaml:7:.*must be one of.*got the text 'every'"):
        run("package/scenario.yaml")
    assert not any(f'"{kind}"' in schema_text() for kind in kinds)

    # Processes of its own find the package by themselves, and the run records its version.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path / "installed")]))
    command = [*COMMAND, "run", "package/scenario.yaml", "--requests", "300", "--out", "first", "--jobs", "2"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert set(json.loads(Path("first/manifest.json").read_text())["packages"]) == {"kinds-of-ours"}

    monkeypatch.syspath_prepend(tmp_path / "installed")
    for known in (installed_kinds, schema_text):
        known.cache_clear()
    try:
        assert all(f'"{kind}"' in schema_text() for kind in kinds)
        assert "simnmt_recipes" not in sys.modules
        result = run("package/scenario.yaml", requests=300)
        assert {row["policy"] for row in result.summary_rows} == {"cnmt", "long_away"}
        log = result.cells[0].logs["long_away"]
        assert ((log["target"][:] == 1) == (log["src_len"][:] > 20)).all()
        with pytest.raises(InputError, match=r"policies.long_away.treshold: unknown key \(did you mean threshold"):
            run("package/scenario.yaml", overrides=["policies.long_away.treshold=3"])
        with pytest.raises(InputError, match="did you mean long_away"):
            run("package/scenario.yaml", overrides=["policies.cnmt.kind=long_awai"])
        run("first", out="again")
        assert Path("again/summary.json").read_bytes() == Path("first/summary.json").read_bytes()
    finally:
        for known in (installed_kinds, schema_text):
            known.cache_clear()


FAULTY = """\
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
    "a cost function": (
        "profile: cloud.json",
        "profile: {kind: 'mine.py:negative'}",
        "simnmt: own.yaml:13:27: devices.cloud.profile",
    ),
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


def negative(src_len, tgt_len):
    return -1.0 * src_len


def cost_of_few(src_len, tgt_len):
    if len(src_len) >= 200:
        raise ValueError("no cost")
    return 0.01 * tgt_len
"""


@pytest.fixture
def run_policy(folder: Path, simnmt: Command) -> Command:
    """Runs small.yaml with a policy of the user's beside another."""

    def run(source: str, name: str = "Mine", *options: str) -> Any:
        scenario = (folder / "small.yaml").read_text().replace("policies: {", f'policies: {{mine: {{kind: "mine.py:{name}"}}, ')
        (folder / "own.yaml").write_text(scenario)
        (folder / "mine.py").write_text(source)
        return simnmt("run", "own.yaml", "--allow-code", *options)

    return run


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_policy_is_one_line_and_leaves_no_run(run_policy: Command, folder: Path, tree: Tree, fault: str) -> None:
    name, prepare, decide, expected = FAULTS[fault]
    before = set(tree(folder))
    done = run_policy(FAULTY.format(prepare=prepare or "pass", decide=decide), name, "--out", "new")
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)
    assert done.err.startswith(expected), done.err
    assert set(tree(folder)) - before == {"own.yaml", "mine.py"}  # no run, nor a part of one


@pytest.mark.parametrize("jobs", ["1", deep("2")])
def test_a_fault_within_a_library_names_the_line_of_the_user_and_verbose_prints_the_traceback(
    run_policy: Command, jobs: str
) -> None:
    source = "import json\n" + FAULTY.format(prepare="pass", decide='json.loads("{")')
    done = run_policy(source)
    assert done.status == 2 and done.err.rstrip().endswith(" in mine.py:11"), done.err
    assert_one_line(done.err)
    command = [*COMMAND, "run", "own.yaml", "--allow-code", "-v", "--jobs", jobs]
    verbose = subprocess.run(command, capture_output=True, text=True, check=False)
    _, fault = done.err.split("replication 0")  # of two processes any may be the first to fail
    assert verbose.returncode == 2 and fault in verbose.stderr
    assert "Traceback" in verbose.stderr and 'mine.py", line 11' in verbose.stderr and "decoder.py" in verbose.stderr


@pytest.mark.parametrize("fault", OTHERS)
def test_a_fault_of_another_kind_has_the_place_of_its_key(folder: Path, simnmt: Command, fault: str) -> None:
    written, instead, expected = OTHERS[fault]
    (folder / "own.yaml").write_text((folder / "small.yaml").read_text().replace(written, instead))
    (folder / "mine.py").write_text(CODE)
    done = simnmt("run", "own.yaml", "--allow-code")
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)
    assert done.err.startswith(expected), done.err
