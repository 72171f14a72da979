"""Code of users on the command line: allowed modules and files, installed packages, and what they may not do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simnmt import InputError, run
from simnmt.base.extension import installed_kinds
from simnmt.scenario.template import schema_text
from tests.campaigns.harness import deep
from tests.command_line import ROOT, Outcome

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
COMMAND = [sys.executable, "-c", "from simnmt.cli import main; main()"]


def in_a_process(*arguments: str) -> Outcome:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=environment, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mypolicy.py").write_text(POLICY)
    Path("own.yaml").write_text(SCENARIO)


@pytest.mark.parametrize("jobs", ["1", deep("2")])
def test_a_policy_of_twenty_lines_is_set_beside_cnmt_in_one_command(simnmt: Callable[..., Outcome], jobs: str) -> None:
    command = simnmt if jobs == "1" else in_a_process
    done = command("run", "own.yaml", "--allow-code", "--jobs", jobs, "--out", "run", "--json")
    assert done.status == 0, done.err
    result = json.loads(done.out)  # what the policy prints is not in it
    assert "imported" in done.err and "prepared" in done.err
    (change,) = [row for row in result["comparisons"] if (row["policy"], row["baseline"]) == ("cnmt", "mine")]
    assert change["effect"] in ("faster", "slower", "not distinguishable")
    manifest = json.loads(Path("run/manifest.json").read_text())
    assert set(manifest["engines"].values()) == {"compiled"}
    assert str(Path("mypolicy.py").absolute()) in manifest["inputs"]

    with pytest.raises(InputError, match=r"mypolicy.py:LongAway is code, which runs only if you allow it"):
        run("run")
    run("run", allow_code=True, out="again")
    assert Path("again/summary.json").read_bytes() == Path("run/summary.json").read_bytes()
    Path("mypolicy.py").write_text(POLICY + "\n")
    with pytest.raises(InputError, match="an input of that run has changed since"):
        run("run", allow_code=True)


def test_nothing_is_imported_without_leave(simnmt: Callable[..., Outcome]) -> None:
    refused = simnmt("run", "own.yaml")
    assert (refused.status, refused.out) == (2, "")
    place = "own.yaml:14:11: policies.mine.kind: mypolicy.py:LongAway is code"
    assert refused.err.startswith(f"simnmt: {place}") and "give --allow-code" in refused.err
    assert "imported" not in refused.err
    assert not Path("reports").exists()


SLIPS = {
    "an unknown parameter": (
        "threshold: 20",
        "treshold: 20",
        "own.yaml:15:5: policies.mine.treshold: unknown key (did you mean",
    ),
    "a file that is not there": ("mypolicy.py", "policy.py", "own.yaml:14:11: policies.mine.kind: no file policy.py"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_one_line_with_its_place(slip: str) -> None:
    written, instead, expected = SLIPS[slip]
    Path("own.yaml").write_text(SCENARIO.replace(written, instead))
    with pytest.raises(InputError) as refused:
        run("own.yaml", allow_code=True, out="run")
    assert expected in str(refused.value) and "\n" not in str(refused.value)
    assert not Path("run").exists()


def test_a_fault_of_several_parameters_together_names_the_policy() -> None:
    Path("mypolicy.py").write_text(
        "from simnmt import PolicySettings\nfrom pydantic import model_validator\n"
        "class LongAway(PolicySettings):\n    threshold: int\n    least: int = 30\n"
        "    def policy(self, knowledge): ...\n"
        "    @model_validator(mode='after')\n    def _ordered(self):\n"
        "        if self.least > self.threshold:\n            raise ValueError('least is above threshold')\n"
        "        return self\n"
    )
    with pytest.raises(InputError, match=r"^own.yaml:1[34]:\d+: policies.mine: least is above threshold$"):
        run("own.yaml", allow_code=True)


def test_a_module_that_raises_is_one_line(simnmt: Callable[..., Outcome]) -> None:
    Path("mypolicy.py").write_text("1 / 0\n")
    done = simnmt("run", "own.yaml", "--allow-code")
    assert done.status == 2 and "cannot be imported: ZeroDivisionError: division by zero in mypolicy.py:1" in done.err


@pytest.mark.deep
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

    monkeypatch.syspath_prepend(tmp_path / "installed")
    with _installed_anew():
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


@contextmanager
def _installed_anew() -> Iterator[None]:
    """Forget what is known of installed packages, before and after."""
    _forget_installed()
    yield
    _forget_installed()


def _forget_installed() -> None:
    for known in (installed_kinds, schema_text):
        known.cache_clear()
    for module in [name for name in sys.modules if name.partition(".")[0] == "demo_policies"]:
        del sys.modules[module]


@pytest.fixture
def in_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package whose policy takes its threshold from another module, and return its folder."""
    site = tmp_path / "site-packages"
    package, record = site / "demo_policies", site / "demo_policies-1.2.dist-info"
    package.mkdir(parents=True)
    record.mkdir()
    (package / "__init__.py").write_text("")
    (package / "threshold.py").write_text("THRESHOLD = 20\n")
    (package / "policies.py").write_text(
        "from demo_policies.threshold import THRESHOLD\n\n\nclass LongAway:\n    def prepare(self, src_len):\n"
        "        return lambda request, delay_s: int(src_len[request] > THRESHOLD)\n"
    )
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: demo-policies\nVersion: 1.2\n")
    (record / "entry_points.txt").write_text("[simnmt.policies]\nlong_away = demo_policies.policies:LongAway\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(site)]))
    scenario = SCENARIO.replace("mypolicy.py:LongAway", "long_away").replace("    threshold: 20\n", "")
    Path("installed.yaml").write_text(scenario)
    return site


@pytest.mark.deep
def test_a_run_with_the_policy_of_an_installed_package_is_repeated_and_records_its_version(
    in_site: Path, simnmt: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run is made by processes of its own, which find the package by themselves."""
    command = [*COMMAND, "run", "installed.yaml", "--out", "first", "--jobs", "2"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    manifest = json.loads(Path("first/manifest.json").read_text())
    assert manifest["packages"] == {"demo-policies": "1.2"}
    monkeypatch.syspath_prepend(in_site)
    with _installed_anew():
        assert simnmt("run", "first", "--out", "again").status == 0
    assert Path("again/summary.json").read_bytes() == Path("first/summary.json").read_bytes()
