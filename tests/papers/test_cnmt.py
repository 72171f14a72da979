"""Table I as printed, the ratios that CNMT-16 derives from it, and a small reproduction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simnmt.papers.cnmt import table_one
from simnmt.papers.cnmt.reproduction import reproduce
from simnmt.papers.cnmt.table_one import POLICIES, TABLE, WORKLOADS, implied_ratios, printed_percent
from simnmt.papers.kit.rendering import Report
from tests.papers.stand_ins import write_stand_ins

IMPLIED = {
    # CNMT-16: Server twice, Oracle twice, Naive, C-NMT
    ("de-en", "cp1"): (1.1735, 1.1706, 0.8651, 0.8636, 1.1174, 0.8645),
    ("de-en", "cp2"): (0.8851, 0.9188, 0.7403, 0.7555, 0.8384, 0.7566),
    ("fr-en", "cp1"): (1.5922, 1.5753, 0.8725, 0.8664, 0.9426, 0.8771),
    ("fr-en", "cp2"): (1.3681, 1.3912, 0.8042, 0.8108, 0.9285, 0.8200),
    ("en-zh", "cp1"): (0.9018, 0.9005, 0.7177, 0.7177, 0.8289, 0.7883),
    ("en-zh", "cp2"): (0.7109, 0.7195, 0.5870, 0.5915, 0.6369, 0.6434),
}
Rows = list[dict[str, Any]]


def test_table_one_has_36_cells_and_sums_to_the_printed_digits() -> None:
    cells = [printed_percent(*cell) for cell in table_one.table_cells()]
    assert len(cells) == 36
    assert sum(cells) == pytest.approx(-338.30, abs=1e-9)


def test_worked_example_of_cnmt_16() -> None:
    for cell, expected in IMPLIED.items():
        ratios = implied_ratios(cell)
        ours = (*ratios["cloud"], *ratios["oracle"], ratios["naive"][0], ratios["cnmt"][0])
        assert tuple(round(value, 4) for value in ours) == expected


def test_eleven_of_twelve_double_derivations_disagree_by_more_than_the_rounding() -> None:
    pairs = [implied_ratios(cell)[policy] for cell in IMPLIED for policy in ("cloud", "oracle")]
    assert sum(abs(one - other) > 2e-4 for one, other in pairs) == 11


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stand_ins(tmp_path_factory.mktemp("stand-ins"))


@pytest.fixture(scope="module")
def report(scenario: Path) -> Report:
    return reproduce(measured=str(scenario), requests=2000)


@pytest.fixture(scope="module")
def shipped() -> Report:
    """On the shipped measured profiles."""
    return reproduce(requests=500)


def test_both_devices_win_requests_on_each_data_sets_own_networks_and_the_orders_hold_there(shipped: Report) -> None:
    document = shipped.document()
    assert [part["name"] for part in document["parts"]] == ["inferred", "measured", "measured, one network"]
    networks = next(table["rows"] for table in document["tables"] if table["id"] == "networks")
    shares = [row["oracle_offloaded_share"] for row in networks if row["profiles"] == "measured"]
    assert len(shares) == 6 and all(0.2 <= share <= 0.8 for share in shares)
    verdicts = {record.id: record.verdict for record in shipped.claims}
    assert [verdicts[f"CNMT-17 ({letter}), measured"] for letter in "abd"] == ["holds"] * 3
    (levels,) = {tuple(row["mean_rtt_ms"] for row in networks[-6:] if row["workload"] == name) for name in WORKLOADS}
    assert levels[0] > levels[1]


def test_the_tables_hold_every_cell_and_ratio_with_a_column_for_each_part(report: Report) -> None:
    document = report.document()
    tables = {table["id"]: table["rows"] for table in document["tables"]}
    assert len(tables["table-one"]) == 36 and len(tables["ratios"]) == 24 and len(tables["networks"]) == 12
    origins = ("published", "inferred", "measured")
    assert all(isinstance(cell[f"{origin}_percent"], float) for cell in tables["table-one"] for origin in origins)
    gateway = {
        (cell["workload"], cell["network"], cell["policy"]): cell["measured_percent"]
        for cell in tables["table-one"]
        if cell["baseline"] == "edge"
    }
    for ratio in tables["ratios"]:
        if ratio["policy"] in POLICIES:
            change = gateway[ratio["workload"], ratio["network"], ratio["policy"]]
            assert ratio["measured"] == pytest.approx(1 + change / 100), "the table and the ratios are of the same runs"
    assert set(document["mean_absolute_error"]) == {"all", "fitted", "test", *WORKLOADS}
    assert [row["role"] for row in tables["ratios"]].count("test") == 9
    assert {(row["workload"], row["device"]) for row in tables["times"]} == {
        (workload, device) for workload in WORKLOADS for device in ("gateway", "cloud")
    }
    lines = report.text().splitlines()
    assert " claims hold, " in lines[0]
    first = next(line for line in lines if line.startswith("DE-EN Naive"))
    assert first.split()[2:] == ["published", *(f"{value:+.2f}" for value in list(TABLE.rows[0].values())[2:])]
