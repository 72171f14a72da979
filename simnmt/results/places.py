"""What a row of results is about: a site and a workload (the group), a network, and a policy."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

Row = TypeVar("Row", bound=Mapping[str, Any])
ALL = "all"
"""The site or the workload of rows that are about all of them; the only site of a scenario without sites."""
BEHIND = "behind"
"""Name of the devices that sites share, where boxes are counted by site."""
CLASS = "class "
"""Begin of what stands in place of a workload for all requests of a class."""


def class_row(name: str) -> str:
    """Return what stands in place of a workload for all requests of a class."""
    return CLASS + name


def class_of(workload: str) -> str | None:
    """Return the class that stands in place of a workload; None for a workload, and for all."""
    return workload.removeprefix(CLASS) if workload.startswith(CLASS) else None


class CellName(NamedTuple):
    """Whose requests, over which network."""

    site: str
    workload: str
    network: str

    @classmethod
    def of(cls, record: Any) -> CellName:
        """Return the name of the cell that a row belongs to: of a mapping by its keys, else by its attributes."""
        return cls(*((record[key] if isinstance(record, Mapping) else getattr(record, key)) for key in cls._fields))

    def whole(self, cells: Container[CellName]) -> CellName:
        """Return the cell of all requests that met these at the devices; `cells`: of a run.

        A mix has a cell of all its requests beside those of its sites and of its workloads, all on one network.
        """
        wholes = (CellName(ALL, workload, self.network) for workload in (ALL, self.workload))
        return next((cell for cell in wholes if cell in cells), self)

    def matches(self, workload: str | None, network: str | None, site: str | None = None) -> bool:
        """Return whether the cell is what is named; None: any."""
        return workload in (None, self.workload) and network in (None, self.network) and site in (None, self.site)

    def __str__(self) -> str:
        group = ", ".join(name for name in (self.site, self.workload) if name != ALL)
        return f"{group or 'all requests'} on {self.network}"


class Place(NamedTuple):
    """A cell under a policy: what a row of the summary is about."""

    site: str
    workload: str
    network: str
    policy: str

    @classmethod
    def of(cls, record: Mapping[str, Any], policy: str | None = None) -> Place:
        """Return the place of a row; `policy`: another one in the same cell."""
        return cls(*CellName.of(record), record["policy"] if policy is None else policy)

    @property
    def cell(self) -> CellName:
        """The cell, which is the same for all policies."""
        return CellName(*self[:3])


def by_cell(rows: Iterable[Row]) -> dict[CellName, list[Row]]:
    """Return the rows of each cell, in the order of the rows."""
    cells: dict[CellName, list[Row]] = {}
    for row in rows:
        cells.setdefault(CellName.of(row), []).append(row)
    return cells


def by_world(rows: Iterable[Row]) -> dict[CellName, dict[CellName, list[Row]]]:
    """Return the cells of each simulated world: that of all its requests, by which the world is named, and then its parts."""
    cells, worlds = by_cell(rows), dict[CellName, dict[CellName, list[Row]]]()
    for cell, of_cell in cells.items():
        worlds.setdefault(cell.whole(cells), {})[cell] = of_cell
    return worlds


def wholes(rows: Iterable[Row]) -> dict[CellName, list[Row]]:
    """Return the rows of all requests of each simulated world, without those of its sites and workloads."""
    return {world: cells[world] for world, cells in by_world(rows).items()}
