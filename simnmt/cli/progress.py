"""A progress bar on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from simnmt.cli.terminal import progress_console


class Move(Protocol):
    """The callback that moves a bar."""

    def __call__(self, done: int, total: int, what: str = "runs") -> None:
        """To what is done of what there is in all; `what` is at work."""


@contextmanager
def bar() -> Iterator[Move]:
    """Gives the callback that moves the bar, which goes when the block ends."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress_console(), transient=True) as progress:
        task = progress.add_task("runs", total=None)

        def move(done: int, total: int, what: str = "runs") -> None:
            progress.update(task, completed=done, total=total, description=what)

        yield move


@contextmanager
def stages() -> Iterator[Callable[[str, float | None], None] | None]:
    """Gives, on a terminal alone, the callback that tells what is at work and which share of it is done, None where unknown."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress_console(), transient=True) as progress:
        task, at = progress.add_task("", total=None), ""

        def tell(stage: str, share: float | None) -> None:
            nonlocal task, at
            if stage != at:  # what comes next has a pace of its own
                progress.remove_task(task)
                task, at = progress.add_task(stage, total=None), stage
            if share is not None:
                progress.update(task, total=1.0, completed=share)

        yield tell
