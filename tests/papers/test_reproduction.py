"""A small reproduction of C-NMT: its parts, one record per claim and basis, and messages on missing profiles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.papers.cnmt import published, table_replay
from simnmt.papers.cnmt.reproduction import Reproduction, reproduce
from simnmt.papers.kit.report import PaperReport
from tests.campaigns.harness import deep
from tests.papers.stand_ins import write_stand_ins

REQUESTS = 2000
KEYS = {"id", "claim", "published", "ours", "verdict", "why", "hardware_dependent", "basis", "profiles", "bare", "device"}


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stand_ins(tmp_path_factory.mktemp("stand-ins"))


@pytest.fixture(scope="module")
def reproduction(scenario: Path) -> Reproduction:
    return reproduce(measured=scenario, requests=REQUESTS)


@pytest.fixture(scope="module")
def shipped() -> Reproduction:
    """On the shipped measured profiles."""
    return reproduce(requests=500)


@pytest.fixture(scope="module")
def report(reproduction: Reproduction) -> PaperReport:
    return reproduction.report()


FITTED = {"cpu1-gru.json": "@tx2-gru", "cpu2-gru.json": "@titan-xp-gru"}
"""Shipped profiles that were fitted, in the place of the stand-ins."""


@pytest.fixture
def one_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay once, for tests that use no interval."""
    monkeypatch.setattr(table_replay, "REPLICATIONS", 1)


@pytest.fixture
def without_profiles(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return `without_profiles(prefix)`, which hides all shipped profiles whose names begin with `prefix`."""
    there = shipped_files.names

    def take_away(prefix: str) -> None:
        monkeypatch.setattr(shipped_files, "names", lambda kind: [name for name in there(kind) if not name.startswith(prefix)])

    return take_away


def test_there_is_one_record_per_claim_and_basis(reproduction: Reproduction, report: PaperReport) -> None:
    claims = report.document()["claims"]
    letters = [f"CNMT-17 ({letter})" for letter in (*"abcde", "reductions")]
    devices = ["CNMT-06 (linear in M)", "CNMT-06 (Transformer on a GPU)", "CNMT-06 (recurrent encoders)", "CNMT-12"]
    expected = {"inferred": letters, "measured": [*letters, *devices]}
    assert [(record["id"], record["bare"], record["profiles"]) for record in claims] == [
        (f"{name}, {part}", name, part) for part, names in expected.items() for name in names
    ]
    assert len({record.id for record in reproduction.claims}) == 16
    assert all(set(record) == KEYS for record in claims)
    for record in reproduction.claims:
        assert record.verdict in ("holds", "does not hold", "not distinguishable", "not measurable here")
        assert record.basis == ("fitted" if record.device == "inferred" else "measured")
        assert ("consistency, not proof" in record.why) == (record.basis == "fitted" and record.hardware_dependent)


def test_both_devices_win_requests_on_each_data_sets_own_networks_and_the_orders_hold_there(shipped: Reproduction) -> None:
    shares = [row["oracle_offloaded_share"] for row in shipped.networks if row["profiles"] == "measured"]
    assert len(shares) == 6 and all(0.2 <= share <= 0.8 for share in shares)
    verdicts = {record.id: record.verdict for record in shipped.claims}
    assert [verdicts[f"CNMT-17 ({letter}), measured"] for letter in "abd"] == ["holds"] * 3


def test_the_scenarios_one_pair_is_shown_beside_with_its_cells_outside_the_range(shipped: Reproduction) -> None:
    assert [part.name for part in shipped.parts] == ["inferred", "measured", "measured, one network"]
    (levels,) = {
        tuple(row["mean_rtt_ms"] for row in shipped.networks[-6:] if row["workload"] == w) for w in published.WORKLOADS
    }
    assert levels[0] > levels[1]
    reasons = {record.id: record.why for record in shipped.claims}
    assert "less than 20 or more than 80 % away in FR-EN CP1" in reasons["CNMT-17 (b), measured, one network"]
    own_pairs = "; each data set on its own pair of RTT levels, chosen so that the oracle sends 20 to 80 % away"
    on_own_pairs = [name for name, why in reasons.items() if why.endswith(own_pairs)]
    assert on_own_pairs == [f"CNMT-17 ({letter}), measured" for letter in (*"abcde", "reductions")]


def test_verdicts_rest_on_intervals_over_replications(reproduction: Reproduction) -> None:
    """The scenario has one replication, which would give no interval."""
    judged = {record.id: record for record in reproduction.claims if record.identifier.startswith("CNMT-17")}
    assert not any("one replication" in record.why for record in judged.values())
    for letter in ("a", "b", "c", "d", "e", "reductions"):
        assert re.search(r"\[[+-]?[\d.]+, [+-]?[\d.]+\]", judged[f"CNMT-17 ({letter}), measured"].ours), letter


def test_claims_that_can_hardly_fail_are_marked_as_theorems(shipped: Reproduction) -> None:
    reasons = {record.id: record.why for record in shipped.claims}
    assert all("theorem" in reasons[f"CNMT-17 ({letter}), measured"] for letter in "ad")


@pytest.mark.parametrize(("basis", "profiles"), [deep("synthetic", {}), ("fitted", FITTED)])
@pytest.mark.usefixtures("one_replication")
def test_parts_on_profiles_that_were_not_measured_are_not_called_measured(
    tmp_path: Path, basis: str, profiles: dict[str, str]
) -> None:
    path = write_stand_ins(tmp_path, "synthetic")
    text = path.read_text()
    for synthetic, fitted in profiles.items():
        text = text.replace(synthetic, fitted)
    path.write_text(text)
    reproduction = reproduce(measured=path, requests=200)
    names = {record.device for record in reproduction.claims if record.device != "inferred"}
    assert all(name.startswith(f"given, {basis}") for name in names) and f"given, {basis}" in names
    assert {r.basis for r in reproduction.claims if r.device in names} == {basis}
    assert not any("measured" in record.id for record in reproduction.claims)
    assert len({record.id for record in reproduction.claims}) == len(reproduction.claims)
    report = reproduction.report()
    assert ", measured. " not in report.text()
    if basis == "fitted":
        kinds = next(part["kinds"] for part in report.document()["parts"] if part["name"] == "given, fitted")
        assert kinds == {"de-en": ["synthetic"], "fr-en": ["inferred"], "en-zh": ["synthetic"]}


def test_the_tables_hold_every_cell_and_ratio_with_a_column_for_each_part(
    reproduction: Reproduction, report: PaperReport
) -> None:
    document = report.document()
    _setting, table, implied, ratios, networks, times = document["tables"]
    first = next(row for row in implied["rows"] if (row["workload"], row["network"]) == ("de-en", "cp1"))
    assert [round(ratio, 4) for ratio in first["server"]] == [1.1735, 1.1706]  # CNMT-16: the paper's two ways differ
    assert len(table["cells"]) == 36 and len(ratios["rows"]) == 24 and len(networks["rows"]) == 12
    origins = ("published", "inferred", "measured")
    assert all(isinstance(cell[f"{origin}_percent"], float) for cell in table["cells"] for origin in origins)
    gateway = {
        (c["workload"], c["network"], c["policy"]): c["measured_percent"] for c in table["cells"] if c["baseline"] == "edge"
    }
    for ratio in ratios["rows"]:
        if ratio["policy"] in published.POLICIES:
            change = gateway[ratio["workload"], ratio["network"], ratio["policy"]]
            assert ratio["measured"] == pytest.approx(1 + change / 100), "the table and the ratios are of the same runs"
    assert set(ratios["mean_absolute_error"]) == {"all", "fitted", "test", *published.WORKLOADS}
    assert [row["role"] for row in ratios["rows"]].count("test") == 9
    assert {(row["workload"], row["device"]) for row in times["rows"]} == {
        (workload, device) for workload in published.WORKLOADS for device in ("gateway", "cloud")
    }
    assert len(document["slips"]) == 7


@pytest.mark.usefixtures("one_replication")
def test_missing_profiles_leave_their_claims_not_measurable(without_profiles: Any) -> None:
    without_profiles("cpu")
    reproduction = reproduce(requests=200)
    measured = [record for record in reproduction.claims if record.device == "measured"]
    assert len(measured) == 10 and {record.verdict for record in measured} == {"not measurable here"}
    assert all("FR-EN needs @cpu1-gru and @cpu2-gru" in record.why for record in measured if record.hardware_dependent)
    assert all(record.verdict == "holds" for record in reproduction.claims if record.id == "CNMT-17 (a), inferred")
    report = reproduction.report()
    document, text = report.document(), report.text()
    cell = document["tables"][1]["cells"][0]
    assert cell["measured_percent"] is None and isinstance(cell["inferred_percent"], float)
    assert "Not at hand: " in text


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("  cp2: {rtt", "  other: {rtt", "not both networks cp1 and cp2"),
        ("clock: spread", "clock: own", "a network whose clock is not spread over the trace"),
    ],
)
def test_another_protocol_is_refused(scenario: Path, old: str, new: str, complaint: str) -> None:
    text = scenario.read_text()
    assert old in text
    other = scenario.with_name("other.yaml")
    other.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=f"no scenario of Table I: {complaint}"):
        table_replay.prepare(other)
