"""Every shipped scenario is a template that runs, and the schema judges as the reader does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from simnmt.base import shipped_files
from simnmt.scenario.document import read_document
from tests.command_line import Command

TEMPLATES = shipped_files.names("scenarios")


@pytest.fixture(scope="module")
def schema() -> Any:
    from simnmt.scenario.template import schema_text

    return json.loads(schema_text())


@pytest.fixture(scope="module")
def validator(schema: Any) -> jsonschema.Draft202012Validator:
    """Validates without checking the schema itself each time."""
    return jsonschema.Draft202012Validator(schema)


def test_help_names_every_template(folder: Path, simnmt: Command) -> None:
    # The help breaks its lines at hyphens too.
    text = re.sub(r"-\s+", "-", simnmt("init", "--help").out)
    assert [name for name in TEMPLATES if name not in text] == []


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_is_the_shipped_file_and_runs(folder: Path, simnmt: Command, name: str) -> None:
    done = simnmt("init", "deep.yaml", "--template", name)
    assert (done.status, done.err) == (0, "")
    assert done.out == "wrote deep.yaml\nwrote scenario.schema.json\nrun it: simnmt run deep.yaml\n"
    text = Path("deep.yaml").read_text()
    assert text.splitlines()[0] == "# yaml-language-server: $schema=scenario.schema.json"
    assert text == shipped_files.find("scenarios", name).read_text()
    few = ("--requests", "40", "--replications", "1", "--set", "fit.inferences=50")
    done = simnmt("run", "deep.yaml", *few, "--out", "one")
    assert done.status == 0
    lines = done.err.splitlines()
    assert all(line.startswith("simnmt: warning: profile cpu") for line in lines), "of shipped measurements alone"
    assert done.out.startswith(f"{name}: 40 requests each, one replication\n")


def test_the_name_of_a_template_runs_as_its_file_does(folder: Path, simnmt: Command) -> None:
    assert simnmt("init", "deep.yaml", "--template", "tiers").status == 0
    for scenario, out in (("deep.yaml", "one"), ("@tiers", "two")):
        assert simnmt("run", scenario, "--requests", "40", "--replications", "1", "--out", out).status == 0
    assert Path("one/requests.parquet").read_bytes() == Path("two/requests.parquet").read_bytes()


def test_quickstart_is_the_default_and_its_schema_is_printed_and_kept(folder: Path, simnmt: Command) -> None:
    assert simnmt("init").status == 0
    assert Path("scenario.yaml").read_bytes() == shipped_files.find("scenarios", "quickstart").read_bytes()
    assert simnmt("schema").out == Path("scenario.schema.json").read_text()
    Path("scenario.schema.json").write_text("precious")
    assert simnmt("init", "new.yaml").out == "wrote new.yaml\nrun it: simnmt run new.yaml\n"
    assert Path("scenario.schema.json").read_text() == "precious"


def test_the_schema_is_one(schema: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_schema_accepts_what_is_shipped(validator: jsonschema.Draft202012Validator, name: str) -> None:
    validator.validate(read_document(shipped_files.find("scenarios", name)).data)


def test_the_schema_accepts_every_form_that_the_reader_does(schema: Any, folder: Path, simnmt: Command) -> None:
    data = read_document("small.yaml").data
    data["workloads"]["news"]["arrivals"] = None
    data["networks"] = {"a": {"rtt": {"constant_ms": 50}}, "b": {"rtt": {"csv": "office.csv"}, "clock": "own"}}
    data["policies"] = {"edge": None, "cloud": {}, "oracle": {"kind": "oracle"}, "mine": {"kind": "cnmt", "len_slope": 0.8}}
    jsonschema.validate(data, schema)
    Path("forms.yaml").write_text(json.dumps(data))
    assert simnmt("run", "forms.yaml").status == 0


def test_the_schema_accepts_sites(validator: jsonschema.Draft202012Validator, folder: Path) -> None:
    data = read_document("small.yaml").data
    networks, gateway = data["networks"], {"gateway": data["devices"]["gateway"]}
    networks["office"]["rtt_mean_ms"] = {"dist": "lognorm", "s": 0.5, "scale": 40}
    near = {"networks": networks, "devices": gateway, "policies": {"cnmt": {"len_slope": 0.8}}}
    data["sites"] = {"near": near, "far": {"networks": networks, "devices": {"gateway": None}, "count": 3}}
    validator.validate(data)
    networks["office"]["rtt_mean_ms"]["scale"] = "wide"
    assert not validator.is_valid(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(sed=1),
        lambda data: data["networks"]["office"].update(uplink=1),
        lambda data: data["policies"]["cnmt"].update(len_slop=1),
        lambda data: data["policies"].update(mine={"kind": "cnmt", "len_slop": 1}),
        lambda data: data["policies"].update(mine={"kind": "cmnt"}),
        lambda data: data.update(requests="200"),
        lambda data: data.update(requests=0),
        lambda data: data["workloads"]["news"].update(arrivals={"kind": "poisson"}),
        lambda data: data["workloads"]["news"]["lengths"].update(src_unit="words"),
        lambda data: data["devices"].clear(),
        lambda data: data.update(slo={}),
        lambda data: data.update(sites={"near": {"share": 0}}),
        lambda data: data.update(sites={"near": {"policies": {"cnmt": {"len_slop": 1}}}}),
    ],
)
def test_the_schema_rejects_what_the_reader_rejects(
    validator: jsonschema.Draft202012Validator, folder: Path, simnmt: Command, change: Callable[[Any], None]
) -> None:
    data = read_document("small.yaml").data
    change(data)
    assert not validator.is_valid(data)
    Path("wrong.yaml").write_text(json.dumps(data))
    assert simnmt("run", "wrong.yaml").status == 2
