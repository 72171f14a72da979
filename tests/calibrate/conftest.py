"""A box that is left in peace, and journals that are closed when the test ends, as the system does when a process dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate import busy
from simnmt.calibrate.journal import Journal


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else computes while these tests run: they are not watched, nor is the clock."""
    monkeypatch.setattr(busy, "others_cpus", lambda: 0.0)
    monkeypatch.setattr(busy, "own_frequency_mhz", lambda: None)


@pytest.fixture
def open_journal(tmp_path: Path) -> Iterator[Callable[..., Journal]]:
    """Opens a journal, the same file each time unless named otherwise."""
    opened: list[Journal] = []

    def open_one(path: Path | str = "j.jsonl", header: Mapping[str, Any] = {"settings": {"model": "gru"}}) -> Journal:
        opened.append(Journal(tmp_path / path, header))
        return opened[-1]

    yield open_one
    for journal in opened:
        journal.close()
