"""A progress bar on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Move(Protocol):
    """The callback that moves a bar."""

    def __call__(self, done: int, total: int, what: str = "runs") -> None:
        """To what is done of what there is in all; `what` is at work."""


@contextmanager
def bar() -> Iterator[Move]:
    """Gives the callback that moves the bar, which goes when the block ends."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("runs", total=None)

        def move(done: int, total: int, what: str = "runs") -> None:
            progress.update(task, completed=done, total=total, description=what)

        yield move
