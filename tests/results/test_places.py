"""The names of cells and places."""

from __future__ import annotations

import pytest

from simnmt.results.places import ALL, CellName


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
