"""The names of cells and places."""

from __future__ import annotations

import pytest

from simnmt.results.places import ALL, CellName, Place, by_cell


@pytest.mark.parametrize(
    ("site", "workload", "name"),
    [
        (ALL, "de-en", "de-en on cp1"),
        ("berlin", ALL, "berlin on cp1"),
        ("berlin", "de-en", "berlin, de-en on cp1"),
        (ALL, ALL, "all requests on cp1"),
    ],
)
def test_a_cell_is_named_by_its_group_and_its_network(site: str, workload: str, name: str) -> None:
    assert str(CellName(site, workload, "cp1")) == name


def test_rows_of_two_sites_are_two_cells() -> None:
    places = [Place(site, "w", "n", policy) for site in ("berlin", "rome") for policy in ("edge", "cloud")]
    cells = by_cell([place._asdict() for place in places])
    assert [[Place.of(row) for row in rows] for rows in cells.values()] == [places[:2], places[2:]]
    assert [*cells] == [places[0].cell, places[2].cell]
