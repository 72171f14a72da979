"""What is wrong with a scenario: one line each, the first in the document's order before the others."""

from __future__ import annotations

import os
from collections.abc import Iterable

from simnmt.errors import InputError, printable


class ScenarioError(InputError):
    """A scenario that cannot be run: a fault of its file, of an option that overrides a key, or of data
    handed in."""

    def __init__(
        self,
        what: str,
        *,
        path: str | os.PathLike[str] | None = None,
        line: int | None = None,
        column: int | None = None,
        remedy: str | None = None,
        override: str | None = None,
        others: Iterable[ScenarioError] = (),
        left_out: int = 0,
    ) -> None:
        self.override = override
        """The option that brought the fault in, as the user wrote it; None where the file did."""
        self.others = tuple(others)
        """Further complaints about the same scenario, each of one line."""
        self.left_out = left_out
        """How many complaints more there were."""
        remedy = None if remedy is None else printable(remedy)
        super().__init__(printable(what), path=path, line=line, column=column, remedy=remedy)

    def __str__(self) -> str:
        first = f"{self.override}: " if self.override else ""
        lines = [first + super().__str__(), *map(str, self.others)]
        return "\n".join(lines + ([f"... and {self.left_out} more"] if self.left_out else []))
