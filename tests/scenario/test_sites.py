"""Sites of a scenario: what each of them sees, what is drawn for it, and faults at their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from simnmt.base.errors import InputError
from simnmt.experiment.inputs import InputCache, read_sites
from simnmt.network.series import TraceError
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.source import Source, open_source

GOOD = """\
version: 1
name: offices
workloads:
  de-en: {lengths: "@de-en-news", end_nodes: 20, arrivals: {kind: poisson, rate_rps: 3}}
  fr-en: {lengths: "@de-en-news", end_nodes: 5, arrivals: {kind: poisson, rate_rps: 3}, slo: {p95_ms: 300}}
networks:
  today: {rtt: {constant_ms: 9}}
  fibre: {rtt: {constant_ms: 2}}
devices:
  gateway: {profile: "@tx2-bilstm"}
  server: {profile: "@titan-xp-bilstm", count: 2}
sites:
  berlin:
    end_nodes: 30
    share: 3
    workloads: [de-en]
    networks: {today: {rtt: "@cp1", rtt_add_ms: -5}}
    policies: {cnmt: {len_slope: 0.8}}
  rome: {devices: {gateway: null}}
  branches:
    count: 3
    devices: {gateway: {profile: "@titan-xp-bilstm", workers: 2}}
    networks: {today: {rtt: "@cp1", rtt_mean_ms: {dist: lognorm, s: 0.5, scale: 40}}}
policies:
  cnmt: {}
  oracle: {}
"""
ONE_WORKLOAD = "workloads={de-en: {lengths: '@de-en-news', arrivals: {kind: poisson, rate_rps: 3}}}"
TIERS = [
    "devices={gateway: {profile: '@tx2-bilstm'}, region: {profile: '@a'}, server: {profile: '@a'}}",
    *(f"networks.{name}.hops={{region: {{rtt: {{constant_ms: 5}}}}}}" for name in ("today", "fibre")),
    "sites.branches.networks.today.hops={region: {rtt: {constant_ms: 5}}}",
]


def source_of(folder: Path, *overrides: str) -> Source:
    (folder / "s.yaml").write_text(GOOD, encoding="utf-8")
    return open_source(folder / "s.yaml", overrides)


@pytest.fixture
def scenario(tmp_path: Path) -> ScenarioConfiguration:
    return source_of(tmp_path).scenario


def test_a_site_has_its_parts_and_those_of_the_scenario(scenario: ScenarioConfiguration) -> None:
    berlin, branch = scenario.at("berlin"), scenario.at("branches")
    assert {name: part.end_nodes for name, part in berlin.workloads.items()} == {"de-en": 30}
    assert {name: part.end_nodes for name, part in branch.workloads.items()} == {"de-en": 20, "fr-en": 5}
    assert berlin.policies["cnmt"].model_dump()["len_slope"] == 0.8
    assert branch.policies == scenario.policies
    assert list(berlin.networks) == ["today", "fibre"]
    assert berlin.networks["fibre"] == scenario.networks["fibre"]
    assert berlin.devices == scenario.devices
    assert [branch.devices["gateway"].workers, branch.devices["server"]] == [2, scenario.devices["server"]]
    assert not berlin.sites
    assert [scenario.nodes_of("de-en"), scenario.nodes_of("fr-en")] == [30 + 20 + 3 * 20, 5 + 3 * 5]


def test_a_site_without_a_first_device_sends_everything_to_the_device_behind(scenario: ScenarioConfiguration) -> None:
    assert scenario.own_device("rome") is None
    rome = scenario.at("rome")
    assert list(rome.devices) == ["gateway", "server"]
    assert {policy.devices_of(list(rome.devices))[0] for policy in rome.policies.values()} == {"server"}


def test_each_of_a_count_of_sites_draws_its_line_by_the_seed(scenario: ScenarioConfiguration, tmp_path: Path) -> None:
    def drawn_ms(*overrides: str) -> list[float]:
        return source_of(tmp_path, *overrides).scenario.drawn_means_ms["branches", "today", ()]

    means_ms = drawn_ms()
    assert len(set(means_ms)) == 3
    assert [scenario.at("branches", copy).networks["today"].rtt_mean_ms for copy in (1, 2, 3)] == means_ms
    assert drawn_ms("sites.branches.count=4")[:3] == means_ms
    assert not {*drawn_ms("seed=2")} & {*means_ms}
    wider_ms = drawn_ms("sites.branches.networks.today.rtt_mean_ms.scale=80")
    assert wider_ms == pytest.approx([2 * mean_ms for mean_ms in means_ms])


def test_all_sites_may_lack_a_first_device(tmp_path: Path) -> None:
    scenario = source_of(tmp_path, "sites={berlin: {devices: {gateway: null}}, rome: {devices: {gateway: null}}}").scenario
    assert [scenario.own_device(site) for site in scenario.sites] == [None, None]
    assert not any(plan.has_device for plan in read_sites(scenario, tmp_path))


@pytest.mark.parametrize(
    ("overrides", "shares"),
    [
        ([], True),
        (["sites={}"], True),
        (["sites={}", "workloads.fr-en.arrivals={kind: back_to_back}"], False),
        (["sites={}", "workloads.fr-en.arrivals={kind: clients, clients: 5, think_time: {constant_s: 1}}"], False),
        (["sites={}", ONE_WORKLOAD], False),
        (["sites={}", ONE_WORKLOAD, "share_devices=true"], True),
    ],
)
def test_sites_and_several_workloads_with_rates_share_devices(tmp_path: Path, overrides: list[str], shares: bool) -> None:
    assert source_of(tmp_path, *overrides).scenario.shares_devices is shares


def test_a_star_is_a_key_at_every_site_that_has_the_part_or_inherits_it(tmp_path: Path) -> None:
    profile = "sites.*.devices.gateway.profile=@cpu1-gru"
    source = source_of(tmp_path, profile, "sites.*.networks.today.rtt_add_ms=3", "sites.*.end_nodes=7")
    sites = source.scenario.sites
    assert source.scenario.own_device("rome") is None
    assert {source.scenario.own_device(name).profile for name in ("berlin", "branches")} == {"@cpu1-gru"}  # type: ignore[union-attr]
    assert sites["branches"].devices["gateway"].workers == 2  # type: ignore[union-attr]
    assert not sites["berlin"].devices, "it inherits the gateway of the scenario"
    lines = {name: source.scenario.at(name).networks["today"] for name in sites}
    assert [line.rtt_add_ms for line in lines.values()] == [3, 3, 3]
    assert {site.end_nodes for site in sites.values()} == {7}


def test_a_key_of_a_part_that_one_site_inherits_changes_a_copy_of_the_part(tmp_path: Path) -> None:
    source = source_of(tmp_path, "devices.gateway.count=2", "sites.berlin.devices.gateway.profile=@cpu1-gru")
    gateway = source.scenario.own_device("berlin")
    assert gateway is not None and (gateway.profile, gateway.count) == ("@cpu1-gru", 2)
    assert source.scenario.devices["gateway"].profile == "@tx2-bilstm"


@pytest.mark.parametrize(
    "overrides",
    [
        ["sites.*.devices.gatway.profile=@cpu1-gru"],
        ["sites={}", "sites.*.devices.gateway.profile=@cpu1-gru"],
        ["sites.berlim.share=2"],  # and no further site of that name
        ["sites=5", "sites.*.share=2"],
        ["devices=5", "sites.*.devices.gatway.profile=@cpu1-gru"],
    ],
)
def test_a_star_that_meets_no_part_is_one_line_that_names_the_option(tmp_path: Path, overrides: list[str]) -> None:
    with pytest.raises(ScenarioError) as caught:
        source_of(tmp_path, *overrides)
    assert caught.value.path == f"--set {overrides[-1]}"


def test_a_workload_is_judged_by_its_own_service_level(scenario: ScenarioConfiguration, tmp_path: Path) -> None:
    assert [scenario.criteria_of(name).good_within_s for name in scenario.workloads] == [None, 0.3]
    both = source_of(tmp_path, "slo={p99_ms: 900}").scenario
    assert [str(one) for name in both.workloads for one in both.requirements_of(name)] == ["p99_ms<=900", "p95_ms<=300"]
    assert {"p95_ms", "p99_ms"} <= {metric.name for metric in both.measured_metrics}


@pytest.mark.parametrize(
    ("overrides", "place"),
    [
        (["sites.berlin.workloads=[de-an]"], "sites.berlin.workloads.0"),
        (["sites.berlin.networks.todya={rtt: '@cp1'}"], "sites.berlin.networks.todya"),
        (["sites.berlin.policies.cnmmt={kind: cnmt}"], "sites.berlin.policies.cnmmt"),
        (["sites.berlin.policies.oracle={kind: cnmt}"], "sites.berlin.policies.oracle"),
        (["sites.berlin.devices.gatway={profile: '@tx2-bilstm'}"], "sites.berlin.devices.gatway"),
        (["sites.berlin.devices.server={profile: '@tx2-bilstm'}"], "sites.berlin.devices.server"),
        (["devices={gateway: {profile: '@tx2-bilstm'}}"], "sites.rome.devices.gateway"),
        (["devices.gateway.count=31"], "devices.gateway.count"),
        (["sites.branches.devices.gateway.count=21"], "sites.branches.devices.gateway.count"),
        (["sites.rome.workloads=[de-en]", "sites.branches.workloads=[de-en]"], "workloads.fr-en"),
        (["workloads.fr-en.arrivals=null"], "workloads.fr-en.arrivals"),
        (["workloads.fr-en.arrivals=null", "share_devices=true"], "share_devices"),
        (TIERS, "sites.rome.devices.gateway"),
        ([*TIERS, "sites.rome={}"], "sites.berlin.networks.today"),
        (["share_devices=false"], "share_devices"),
        (["sites.branches.count=0"], "sites.branches.count"),
        (["sites.all={}"], "sites.all"),
        (["sites.behind={}"], "sites.behind"),
        (["sites={}", "workloads.all={lengths: '@de-en-news', arrivals: {kind: poisson, rate_rps: 3}}"], "workloads.all"),
        (["late_answers={timeout_ms: 100}"], "sites.rome.devices"),
        (["sites.branches.networks.today.rtt_mean_ms={dist: lognrm, s: 1}"], "sites.branches.networks.today.rtt_mean_ms.dist"),
        (
            ["sites.branches.networks.today.rtt_mean_ms={dist: uniform, loc: 9e5}"],
            "sites.branches.networks.today.rtt_mean_ms",
        ),
        (["sites={}", "networks.today.rtt_mean_ms={dist: uniform}"], "networks.today.rtt_mean_ms"),
        (["networks.today.hops={region: {rtt: '@cp1'}}"], "networks.today.hops.region"),
        (["sites.berlin.networks.today.hops={region: {rtt: '@cp1'}}"], "sites.berlin.networks.today.hops.region"),
        (["sites.berlin.networks.today={}"], "sites.berlin.networks.today.rtt"),
        (["devices={server: {profile: '@titan-xp-bilstm'}}", "sites={berlin: {}, rome: {}}"], "devices.server"),
        (["devices={}", "sites={berlin: {}, rome: {}}"], "devices"),
        (["networks={}", "sites={}"], "networks"),
    ],
)
def test_a_fault_of_a_site_is_one_line_at_its_key(tmp_path: Path, overrides: list[str], place: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        source_of(tmp_path, *overrides)
    assert f": {place}: " in str(caught.value)


def test_a_fault_of_a_site_is_refused_at_its_line_and_column(tmp_path: Path) -> None:
    wrong = GOOD.replace("policies: {cnmt: {len_slope: 0.8}}", "policies: {cnmmt: {kind: cnmt}}")
    (tmp_path / "s.yaml").write_text(wrong, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        open_source(tmp_path / "s.yaml")
    assert str(caught.value).startswith(f"{tmp_path / 's.yaml'}:18:16: sites.berlin.policies.cnmmt: ")


def test_the_inputs_of_sites_are_read_once_and_their_lines_scaled(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    reads = list[object]()

    class Cache(InputCache):
        def get(self, key, read):  # type: ignore[no-untyped-def]
            return super().get(key, lambda: (reads.append(key), read())[1])

    berlin, rome, branches = read_sites(source.scenario, tmp_path, source.document, Cache())
    assert [berlin.share, rome.has_device, len(branches.networks["today"])] == [3.0, False, 3]
    means_s = [links.link.rtt.mean_s for links in branches.networks["today"]]
    assert means_s == pytest.approx([mean_ms / 1e3 for drawn in source.scenario.drawn_means_ms.values() for mean_ms in drawn])
    assert [target.profile.name for target in branches.cases["de-en"].targets] == ["titan-xp-bilstm"] * 2
    assert list(berlin.cases) == ["de-en"]
    assert [links.link.rtt.name for links in branches.networks["today"]] == ["today at branches"] * 3
    many = source_of(tmp_path, *(f"sites.berlin-{number}={{networks: {{today: {{rtt: '@cp1'}}}}}}" for number in range(100)))
    once = len(reads)
    plans = read_sites(many.scenario, tmp_path, many.document, Cache())
    assert len(reads) == 2 * once == 2 * len({*reads}) < 20
    assert plans[3].networks["today"][0].link.rtt.value is plans[99].networks["today"][0].link.rtt.value


def test_the_models_of_a_shared_device_are_those_of_all_sites(tmp_path: Path) -> None:
    held = "{profile: '@titan-xp-bilstm', memory_gb: 1, load_s: 1}"
    server = f"devices.server={{models: {{de-en: {held}, fr-en: {held}}}, memory_gb: 1.5, evict: never}}"
    apart = ["sites.rome.workloads=[de-en]", "sites.branches.workloads=[fr-en]"]
    source = source_of(tmp_path, server, *apart)
    with pytest.raises(ScenarioError, match=r": devices\.server\.memory_gb: "):
        read_sites(source.scenario, tmp_path, source.document)
    source = source_of(tmp_path, server, *apart, "devices.server.memory_gb=2")
    assert len(read_sites(source.scenario, tmp_path, source.document)) == 3


def test_an_unfit_input_of_a_site_is_refused_at_the_key_of_the_site(tmp_path: Path) -> None:
    source = source_of(tmp_path, "sites.berlin.networks.today.rtt_add_ms=-900")
    with pytest.raises(TraceError, match=r"sites.berlin.networks.today.rtt_add_ms"):
        read_sites(source.scenario, tmp_path, source.document)
    source = source_of(tmp_path, "sites.branches.devices.gateway.profile=@nosuch")
    with pytest.raises(InputError, match=r"sites.branches.devices.gateway.profile"):
        read_sites(source.scenario, tmp_path, source.document)
