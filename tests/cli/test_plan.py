"""`simnmt plan` as a user meets it: the answer, JSON, page and scenario, and what it refuses."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simnmt import api
from simnmt.base import shipped_files
from tests.command_line import Command, assert_one_line

SMALL = ("--requests", "400", "--replications", "2")
SLO = ("--slo", "p95_ms<=300")
RATE = ("@capacity", *SLO, *SMALL, "--precision", "20%")
PLAN = ("@capacity", *SLO, *SMALL, "--rate", "500", "--vary", "devices.cloud.count=1,3,4")


@pytest.fixture(autouse=True, scope="module")
def answers() -> Iterator[None]:
    """The same question is answered once, and printed in several ways."""
    answer, known = api.plan, {}

    def plan(*arguments: Any, **options: Any) -> Any:
        key = repr((arguments, {name: value for name, value in options.items() if name != "progress"}))
        if key not in known:
            known[key] = answer(*arguments, **options)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "plan", plan)
        yield


def test_capacity_is_printed_with_its_interval_and_what_is_at_its_limit(folder: Path, simnmt: Command) -> None:
    done = simnmt("plan", *RATE, "--page", "page.html")
    assert done.status == 0
    assert_warnings(done.err)
    assert done.out.startswith("capacity: highest rate with p95_ms<=300\ndevice profiles: cloud measured; ")
    assert "\n\ncloud takes " in done.out
    assert "for de-en on office. At its limit: " in done.out
    assert "requests/s are kept with a probability of 95 % (" in done.out
    page = Path("page.html").read_text(encoding="utf-8")
    assert "simnmt plan" in page and 'data-table="capacities"' in page


def assert_warnings(err: str) -> None:
    """Assert that standard error holds warnings alone: of a short run, and none of how the profiles were measured."""
    lines = err.splitlines()
    assert all(line.startswith("simnmt: warning: ") for line in lines), err
    assert "simnmt: warning: a run of 400 requests " in lines[0] and "latencies may be too low" in lines[0]
    assert not any("the box was busy" in line for line in lines)
    assert any("cloud: joining a running batch is taken as free" in line for line in lines)
    assert "(gateway)" not in err, "no request is executed there"


def test_json_of_an_answer_has_its_figures_and_warnings_as_its_page(folder: Path, simnmt: Command) -> None:
    documents = []
    for given in (RATE, PLAN):
        done = simnmt("plan", *given, "--json", "--page", "page.html", "--force")
        document, page = json.loads(done.out), Path("page.html").read_text(encoding="utf-8")
        assert done.err.splitlines() == [f"simnmt: warning: {warning}" for warning in document["warnings"]]
        assert document["sources"].startswith("device profiles: cloud measured; ")
        assert page.count("<li>") == len(document["warnings"]) >= 2
        documents.append(document)
    rate, plan = documents
    capacity, sure = rate["capacity"], rate["sure"]
    assert 200.0 < capacity["low"] < capacity["rate_rps"] < capacity["high"] < 400.0 and "cloud" in capacity["binding"]
    assert 100.0 < sure["rate_rps"] < capacity["rate_rps"] and sure["runs"] == 40
    assert (plan["choice"], plan["runner_up"]["choice"]) == ({"devices.cloud.count": 3}, {"devices.cloud.count": 4})
    assert plan["latency_change_percent"]["mean"] < 0.0
    assert (plan["chosen"]["certainty"]["runs"], plan["chosen"]["certainty"]["runs_met"]) == (40, 40)
    assert 0.0 < plan["p_slo"] <= 1.0


def test_a_plan_is_printed_with_all_that_it_rests_on_and_its_scenario_runs(folder: Path, simnmt: Command) -> None:
    done = simnmt("plan", *PLAN, "--out", "choice.yaml", "--page", "page.html")
    assert done.status == 0
    assert_warnings(done.err)
    assert "The least of 3 deployments for 500 requests/s with p95_ms<=300: 3 cloud servers." in done.out
    for part in (
        "A run of it keeps the level with a probability of 98 % (40 of 40 runs keep it), over ",
        "Headroom: ",
        "The runner-up is ",
    ):
        assert part in done.out
    assert (
        "  simnmt live server choice.yaml --device cloud   # on each of 3 boxes, behind a load balancer at "
        "http://CLOUD:5001 (simulated: round_robin)\n"
    ) in done.out
    assert "  simnmt live gateway choice.yaml --policy cloud --server cloud=http://CLOUD:5001\n" in done.out
    assert "3 cloud servers" in Path("page.html").read_text(encoding="utf-8")
    assert "rate_rps: 500" in Path("choice.yaml").read_text(encoding="utf-8")
    assert simnmt("run", "choice.yaml", "--requests", "50", "--replications", "1", "--out", "run").status == 0


def test_a_plan_on_inferred_profiles_asks_for_the_model_that_they_do_not_name(folder: Path, simnmt: Command) -> None:
    """Its commands once could not be started."""
    few = ("--requests", "60", "--replications", "1")
    done = simnmt("plan", "@open-loop", "--rate", "5", "--slo", "mean_ms<=9000", "--set", "policies={cnmt: {}}", *few)
    assert done.status == 0
    assert "  simnmt live server @open-loop --device cloud --model MODEL --set devices.cloud.count=1\n" in done.out
    assert " --model MODEL --server cloud=http://CLOUD:5001 --set devices.cloud.count=1\n" in done.out
    assert "MODEL: your translation model" in done.out


@pytest.mark.deep
def test_a_plan_of_a_scenario_from_standard_input_is_that_of_its_file_and_names_no_file(
    folder: Path, simnmt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = shipped_files.find("scenarios", "@capacity").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
    done = simnmt("plan", "-", *PLAN[1:])
    assert done.status == 0
    assert_warnings(done.err)
    assert done.out == simnmt("plan", *PLAN).out.replace("@capacity", "SCENARIO.yaml")
    assert "  simnmt live server SCENARIO.yaml --device cloud " in done.out


def test_a_level_that_nothing_keeps_exits_with_3_and_the_nearest_miss(folder: Path, simnmt: Command) -> None:
    done = simnmt("plan", "@capacity", "--slo", "p95_ms<=20", *SMALL, "--rate", "300", "--vary", "devices.cloud.count=2,4")
    assert done.status == 3
    assert "No deployment of 2 keeps 300 requests/s with p95_ms<=20.\nThe nearest miss is " in done.out
    done = simnmt("plan", "@capacity", "--slo", "p95_ms<=20", *SMALL)
    assert done.status == 3 and "No rate keeps p95_ms<=20: " in done.out


def test_loads_of_models_are_named_as_the_cause_and_memory_as_the_remedy(simnmt: Command, folder: Path) -> None:
    models = {name: {"profile": "@titan-xp-bilstm", "memory_gb": 1.3, "load_s": 3} for name in ("de-en", "fr-en")}
    workload = {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 1}}
    scenario = {
        "version": 1,
        "name": "memory",
        "workloads": dict.fromkeys(models, workload),
        "networks": {"office": {"rtt": {"constant_ms": 20}}},
        "devices": {"gateway": {"profile": "@tx2-bilstm"}, "server": {"models": models, "memory_gb": 2}},
        "policies": {"server": {"kind": "cloud"}},
    }
    Path("memory.json").write_text(json.dumps(scenario))
    done = simnmt("plan", "memory.json", "--slo", "p95_ms<=1000", *SMALL)
    assert done.status == 3 and "because of loads of models at server.\nMore memory saves loads: " in done.out
    assert "--vary devices.server.memory_gb=" in done.out
    keys = ("--rate", "1", "--vary", "devices.server.memory_gb=2,3", "--vary", "devices.server.count=1")
    done = simnmt("plan", "memory.json", "--slo", "p95_ms<=1000", *SMALL, *keys)
    assert "p95_ms<=1000: 1 server, devices.server.memory_gb=3." in done.out and "because of loads" not in done.out


def test_a_plan_for_the_peak_of_a_log_names_it_and_warns_of_its_bursts(folder: Path, simnmt: Command) -> None:
    batches = [(second, batch) for second in range(0, 20, 2) for batch in range(100 if second == 8 else 40)]
    rows = [f"{second + batch / 400}\n" * 5 for second, batch in batches]
    Path("log.csv").write_text("t_s\n" + "".join(rows))
    keys = ("--slo", "mean_ms<=9000", *SMALL, "--vary", "devices.cloud.count=4")
    done = simnmt("plan", "@capacity", *keys, "--rate", "peak:log.csv:1s", "--json")
    document = json.loads(done.out)
    assert (done.status, document["rate_rps"]) == (0, 500.0)
    assert "of log.csv (unstated), from 8 s on" in document["sources"]
    assert any("{kind: recorded, file: log.csv}" in warning for warning in document["warnings"])


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (("@capacity", *SLO, "--rate", "peak:log.csv"), "--rate"),
        (("@capacity", *SLO, "--rate", "peak:office.csv:1h"), "office.csv"),
        (("@capacity", *SLO, "--rate", "many"), "--rate"),
        (("@capacity", "--slo", "p95ms<=300"), "p95ms"),
        (("@capacity", *SLO, "--minimise", "latency"), "minimise"),
        (("@capacity", *SLO, "--out", "x.yaml"), "--out"),
        (("@capacity", *SLO, "--rate", "9", "--minimise", "cost"), "minimise cost"),
    ],
)
def test_bad_input_is_refused_in_one_line(folder: Path, simnmt: Command, options: tuple[str, ...], place: str) -> None:
    done = simnmt("plan", *options)
    assert done.status == 2 and place in done.err
    assert_one_line(done.err)
    assert not Path("x.yaml").exists()


def test_a_plan_of_sites_prints_the_gateway_of_each_site_that_has_one(folder: Path, simnmt: Command) -> None:
    few = ("--requests", "2000", "--replications", "1", "--set", "policies={cnmt: {}}", "--vary", "devices.server.count=1")
    done = simnmt("plan", "@three-offices", "--rate", "8", "--slo", "mean_ms<=9000", *few)
    gateways = [line.split(" --model")[0] for line in done.out.splitlines() if "live gateway" in line]
    command = "  simnmt live gateway @three-offices --policy cnmt --site"
    served = ("berlin --workload de-en", "berlin --workload fr-en", "porto --workload de-en")
    assert gateways == [f"{command} {site}" for site in served]
