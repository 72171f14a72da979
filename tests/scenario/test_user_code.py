"""Code that a scenario names is loaded from its folder, and a run directory repeats it."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import simnmt
from simnmt import InputError
from simnmt.scenario.document import parse_document
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.source import open_source
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


@pytest.fixture(autouse=True)
def _no_modules_of_before() -> Iterator[None]:
    """Python keeps modules by their names: those of a test are forgotten after it."""
    before = set(sys.modules)
    yield
    for name in sys.modules.keys() - before:
        if name.partition(".")[0] in ("mymod", "package"):
            del sys.modules[name]


def test_a_file_runs_as_it_is_now_and_meets_none_of_the_same_name_beside_another_scenario(tmp_path: Path) -> None:
    path, modules = list(sys.path), set(sys.modules)
    for number, (name, target) in enumerate([("a", 0), ("b", 1), ("a", 1)]):
        scenario, out = written(tmp_path / name, "mymod.py:P", mymod=policy(target)), tmp_path / f"run{number}"
        assert target_of(scenario, out=out) == target
        assert inputs_of(out)[str(tmp_path / name / "mymod.py")] == hashlib.sha256(policy(target).encode()).hexdigest()
    assert sys.path == path
    assert "mymod" not in sys.modules.keys() - modules


def test_a_module_of_the_same_name_as_an_imported_one_is_refused(tmp_path: Path) -> None:
    assert target_of(written(tmp_path / "a", "mymod:P", mymod=policy(0))) == 0
    with pytest.raises(ScenarioError) as refused:
        target_of(written(tmp_path / "b", "mymod:P", mymod=policy(1)))
    assert (refused.value.path, refused.value.line) == (str(tmp_path / "b" / "s.yaml"), 11)


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


@pytest.mark.parametrize("kind", [deep("mymod:P"), "mymod.py:P", "mymod.py:POLICY", "package.mymod:P"])
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


def test_runs_whose_arrivals_are_edited_code_are_not_paired(tmp_path: Path) -> None:
    arrivals = "import numpy\nclass A:\n    def times(self, size, *key):\n        return numpy.arange(size) * GAP_S\n"
    runs = []
    for gap_s in ("0.3", "0.3", "0.5"):
        modules = {"arr": arrivals.replace("GAP_S", gap_s), "pol": policy(1)}
        runs.append(simnmt.run(written(tmp_path, "pol.py:P", "'arr.py:A'", **modules), allow_code=True))
    paired = [set(pd.DataFrame(simnmt.compare(runs[0], run).rows)["paired"]) for run in runs[1:]]
    assert paired == [{True}, {False}]


def test_a_dataclass_with_a_default_factory_runs_on_several_processes(tmp_path: Path) -> None:
    fields = "    seen: list = field(default_factory=list)\n    target: int = 1\n"
    prepare = (
        "    def prepare(self, src_len):\n        self.seen.append(1)\n        return lambda request, delay_s: self.target\n"
    )
    module = f"from dataclasses import dataclass, field\n@dataclass\nclass P:\n{fields}{prepare}"
    assert target_of(written(tmp_path, "st.py:P", st=module), jobs=2) == 1


def test_an_object_is_no_parameter_of_code(tmp_path: Path) -> None:
    scenario = parse_document(written(tmp_path, "st.py:P", st=policy(1)).read_text()).data
    scenario["policies"]["mine"] = {"kind": f"{tmp_path}/st.py:P", "target": object()}
    with pytest.raises(ScenarioError) as refused:
        open_source(scenario, allow_code=True)
    assert str(refused.value).startswith("policies.mine: ")


class Attentive:
    sees_backlog: Any = True

    def prepare(self, src_len: object) -> Any: ...


class Numbered(Attentive):
    sees_backlog = "often"


def with_policy(policy: object) -> dict[str, Any]:
    data = parse_document(SCENARIO.replace("ARRIVALS", "{kind: back_to_back}")).data
    return data | {"policies": {"mine": policy}}


@pytest.mark.parametrize("given", [Attentive, Attentive()])
def test_attributes_of_a_policy_choose_its_estimates_as_keys_do(given: object) -> None:
    assert open_source(with_policy(given)).scenario.policies["mine"].estimation.sees_backlog is True


@pytest.mark.parametrize(
    ("given", "overrides", "place"),
    [
        (Numbered, (), "policies.mine: "),
        ({"kind": Attentive, "sees_backlog": True}, (), "policies.mine.kind: "),
        ({}, {"policies.mine": Attentive()}, "overrides: "),
        ({}, [(("policies", "mine"), Attentive())], "overrides: "),
    ],
)
def test_an_object_of_python_in_a_wrong_place_is_refused_in_one_line(given: object, overrides: Any, place: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        simnmt.run(with_policy(given), overrides=overrides)
    assert refused.value.what.startswith(place)
