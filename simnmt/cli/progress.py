"""Progress bars on a terminal's standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from simnmt.base.errors import printable
from simnmt.cli.terminal import cleaned_streams, progress_console, without_controls

if TYPE_CHECKING:
    from simnmt.calibrate.measurement import Listener


class Move(Protocol):
    """The callback that moves a bar."""

    def __call__(self, done: int, total: int, what: str = "runs") -> None:
        """To what is done of what there is in all; `what` is at work."""


class DescriptionColumn(TextColumn):
    """Shows the present work on one line, with control characters as escapes: a description may hold a file's name or text."""

    def __init__(self) -> None:
        super().__init__("{task.description}", markup=False)

    def render(self, task: Task) -> Text:
        """Return the description as rich draws it."""
        return Text(printable(task.description), style=self.style, justify=self.justify)


@contextmanager
def live_progress(*columns: ProgressColumn) -> Iterator[Progress]:
    """Draw bars of these columns, on a terminal; they go when the block ends.

    What is printed meanwhile is cleaned as elsewhere, although rich puts streams of its own in their place.
    """
    console = progress_console()
    off = not console.is_interactive  # where it cannot draw, rich would print an empty line at the end
    with Progress(*columns, console=console, transient=True, disable=off) as progress, cleaned_streams():
        yield progress


@contextmanager
def bar() -> Iterator[Move]:
    """Gives the callback that moves the bar, which goes when the block ends."""
    with live_progress(DescriptionColumn(), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as progress:
        task = progress.add_task("runs", total=None)

        def move(done: int, total: int, what: str = "runs") -> None:
            progress.update(task, completed=done, total=total, description=what)

        yield move


@contextmanager
def stages() -> Iterator[Callable[[str, float | None], None] | None]:
    """Yield a callback that shows the stage and its finished share (None if unknown); yield None if not on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with live_progress(DescriptionColumn(), BarColumn(), TimeRemainingColumn()) as progress:
        task, at = progress.add_task("", total=None), ""

        def show_stage(stage: str, share: float | None) -> None:
            nonlocal task, at
            if stage != at:  # what comes next has a pace of its own
                progress.remove_task(task)
                task, at = progress.add_task(stage, total=None), stage
            if share is not None:
                progress.update(task, total=1.0, completed=share)

        yield show_stage


class _TimeBar:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("loading the model", total=None, left="")

    def say(self, text: str) -> None:
        self._progress.console.print(without_controls(text), markup=False, highlight=False, soft_wrap=True)

    def measured(self, part: str, done_s: float, left_s: float) -> None:
        left = f"{left_s / 60:.0f} min left" if left_s > 90.0 else f"{left_s:.0f} s left"
        self._progress.update(self._task, description=part, completed=done_s, total=done_s + left_s, left=left)


@contextmanager
def time_bar() -> Iterator[Listener]:
    """Moves with the seconds measured, as a share of what all will take; goes when the block ends."""
    with live_progress(DescriptionColumn(), BarColumn(), TextColumn("{task.fields[left]}")) as progress:
        yield _TimeBar(progress)
