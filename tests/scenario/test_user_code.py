"""Code that a scenario names is that of its own files, as they are now, and a run directory repeats it."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import simnmt
from simnmt import InputError
from tests.campaigns.harness import deep

SCENARIO = """\
version: 1
name: own
requests: 60
replications: 2
workloads: {news: {lengths: "@de-en-news", arrivals: ARRIVALS}}
networks: {cp1: {rtt: "@cp1"}}
devices:
  gateway: {profile: "@tx2-bilstm"}
  cloud: {profile: "@titan-xp-bilstm"}
fit: {inferences: 500}
policies: {edge: {}, cloud: {}, mine: {kind: "KIND"}}
"""
ALWAYS = "class P:\n    def prepare(self, src_len):\n        return lambda request, delay_s: TARGET\nPOLICY = P()\n"


def policy(target: object) -> str:
    return ALWAYS.replace("TARGET", str(target))


def written(folder: Path, kind: str, arrivals: str = "back_to_back", **files: str) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/', 1)}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    text = SCENARIO.replace("KIND", kind).replace("ARRIVALS", f"{{kind: {arrivals}}}")
    (folder / "s.yaml").write_text(text)
    return folder / "s.yaml"


def target_of(scenario: Path, **options: Any) -> int:
    """Return the target that the policy of the scenario always chooses."""
    result = simnmt.run(scenario, allow_code=True, **options)
    latency_s = {row["policy"]: row["mean_latency_s"] for row in pd.DataFrame(result.rows).to_dict("records")}
    return [latency_s["edge"], latency_s["cloud"]].index(latency_s["mine"])


def inputs_of(directory: Path) -> Mapping[str, str]:
    inputs: Mapping[str, str] = json.loads((directory / "manifest.json").read_text())["inputs"]
    return inputs


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_modules_of_the_same_name_beside_two_scenarios_do_not_meet(tmp_path: Path) -> None:
    path, modules = list(sys.path), set(sys.modules)
    for name, target in (("a", 0), ("b", 1)):
        helper = f"TARGET = {target}\n"
        scenario = written(tmp_path / name, "mymod:P", mymod=f"import helper\n{policy('helper.TARGET')}", helper=helper)
        assert target_of(scenario) == target
    assert sys.path == path
    assert not {"mymod", "helper"} & (sys.modules.keys() - modules)


@pytest.mark.parametrize("kind", ["st.py:P", deep("st:P"), deep("st.py:POLICY"), "package.st:P"])
def test_an_edited_file_runs_as_it_is_now(tmp_path: Path, kind: str) -> None:
    module = "package__st" if kind.startswith("package") else "st"
    file = str(tmp_path / f"{module.replace('__', '/')}.py")
    for target in (0, 1):
        scenario = written(tmp_path, kind, **{module: policy(target)})
        out = tmp_path / f"run{target}"
        assert target_of(scenario, out=out) == target
        assert inputs_of(out)[file] == digest_of(policy(target))


def test_an_edited_helper_runs_as_it_is_now_and_is_an_input_of_the_run(tmp_path: Path) -> None:
    mymod = "from package.helper import TARGET\n" + policy("TARGET")
    for target in (0, 1):
        scenario = written(tmp_path, "mymod.py:P", mymod=mymod, package__helper=f"TARGET = {target}\n")
        assert target_of(scenario, out=tmp_path / f"run{target}") == target
    inputs = inputs_of(tmp_path / "run1")
    assert inputs[str(tmp_path / "mymod.py")] == digest_of(mymod)
    assert inputs[str(tmp_path / "package/helper.py")] == digest_of("TARGET = 1\n")


@pytest.mark.parametrize(
    ("imported_from", "files"),
    [
        (".", ("helper",)),
        deep("elsewhere", ("helper",)),
        deep(".", ("package__helper",)),
        ("elsewhere", ("package__helper",)),
        (".", ("package____init__", "package__helper")),
        deep("elsewhere", ("package____init__", "package__helper")),
    ],
)
def test_a_helper_that_python_imported_before_is_executed_anew_and_an_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imported_from: str, files: tuple[str, ...]
) -> None:
    name = files[-1].replace("__", ".")
    monkeypatch.syspath_prepend(tmp_path / imported_from)
    for key in ("helper", "package", "package.helper"):
        monkeypatch.delitem(sys.modules, key, raising=False)
    written(tmp_path / imported_from, "mymod:P", **dict.fromkeys(files, "TARGET = 0\n"))
    before = importlib.import_module(name)
    mymod = f"from {name} import TARGET\n" + policy("TARGET")
    scenario = written(tmp_path, "mymod:P", mymod=mymod, **dict.fromkeys(files, "TARGET = 1  # edited\n"))
    assert target_of(scenario, out=tmp_path / "run") == 1
    file = str(tmp_path / f"{files[-1].replace('__', '/')}.py")
    assert inputs_of(tmp_path / "run")[file] == digest_of("TARGET = 1  # edited\n")
    assert sys.modules[name] is before and before.TARGET == 0
    for key in ("helper", "package", "package.helper"):
        sys.modules.pop(key, None)


@pytest.mark.parametrize("jobs", [1, deep(2)])
def test_a_package_imports_its_own_modules(tmp_path: Path, jobs: int) -> None:
    scenario = written(
        tmp_path,
        "package.policies:P",
        package____init__="",
        package__policies="from .helper import TARGET\n" + policy("TARGET"),
        package__helper="TARGET = 1\n",
    )
    assert target_of(scenario, jobs=jobs) == 1


@pytest.mark.parametrize("kind", [deep("mymod:P"), "mymod.py:P", deep("mymod:POLICY"), "package.mymod:P"])
def test_a_run_directory_is_repeated_from_any_folder_until_its_code_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    module = "package__mymod" if kind.startswith("package") else "mymod"
    scenario = written(tmp_path / "a", kind, **{module: policy(1)})
    assert target_of(scenario, out=tmp_path / "run") == 1
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert target_of(tmp_path / "run") == 1
    written(tmp_path / "a", kind, **{module: policy(0)})
    with pytest.raises(InputError, match="an input of that run has changed since"):
        target_of(tmp_path / "run")


def test_the_file_that_is_named_is_an_input_though_another_one_defines_the_class(tmp_path: Path) -> None:
    scenario = written(tmp_path, "x.py:P", x="from helper import P\n", helper=policy(1))
    assert target_of(scenario, out=tmp_path / "run") == 1
    assert {str(tmp_path / "x.py"), str(tmp_path / "helper.py")} <= inputs_of(tmp_path / "run").keys()


def test_a_run_ends_in_one_line_if_its_code_is_edited_before_its_processes_load_it(tmp_path: Path) -> None:
    editing = "from pathlib import Path\nPath(__file__).write_text(Path(__file__).read_text() + '# edited\\n')\n"
    scenario = written(tmp_path, "st.py:P", st=editing + policy(1))
    with pytest.raises(InputError, match=r"the code of st.py:P changed during the run \(run it again\)"):
        target_of(scenario, jobs=2)


def test_runs_whose_arrivals_are_edited_code_are_not_paired(tmp_path: Path) -> None:
    arrivals = "import numpy\nclass A:\n    def times(self, size, *key):\n        return numpy.arange(size) * GAP_S\n"
    runs = []
    for gap_s in ("0.3", "0.3", "0.5"):
        modules = {"arr": arrivals.replace("GAP_S", gap_s), "pol": policy(1)}
        runs.append(simnmt.run(written(tmp_path, "pol.py:P", "'arr:A'", **modules), allow_code=True))
    paired = [set(pd.DataFrame(simnmt.compare(runs[0], run).rows)["paired"]) for run in runs[1:]]
    assert paired == [{True}, {False}]


def test_a_dataclass_with_a_default_factory_runs_on_several_processes(tmp_path: Path) -> None:
    fields = "    seen: list = field(default_factory=list)\n    target: int = 1\n"
    prepare = (
        "    def prepare(self, src_len):\n        self.seen.append(1)\n        return lambda request, delay_s: self.target\n"
    )
    module = f"from dataclasses import dataclass, field\n@dataclass\nclass P:\n{fields}{prepare}"
    assert target_of(written(tmp_path, "st.py:P", st=module), jobs=2) == 1
