"""The progress bar on a terminal's standard error; elsewhere nothing is drawn, and rich is not even imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from simnmt.base.errors import printable
from simnmt.cli.terminal import cleaned_streams, is_quiet, progress_console, without_controls

if TYPE_CHECKING:
    from rich.progress import Progress


class Bar:
    """A title, a bar and a status; its methods are the callbacks that the library's long functions take.

    Titles and statuses may hold a file's name or text, so control characters are drawn as escapes.
    """

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._title = progress, ""
        self._task = None if progress is None else progress.add_task("", total=None, status="")

    @property
    def is_drawn(self) -> bool:
        """Return whether standard error is a terminal."""
        return self._progress is not None

    def runs(self, done: float, total: int, title: str = "runs") -> None:
        """Show that `done` of `total` are done, a part of one included, and that `title` is at work."""
        self._show(title, done, total, f"{int(done)}/{total}")

    def stage(self, title: str, share: float | None = None) -> None:
        """Show a stage of the work and its finished share, None if that is not known."""
        if self._progress is not None and self._task is not None and title != self._title:  # it has a pace of its own
            self._progress.reset(self._task, total=None)
        self._title = title
        self._show(title, share, None if share is None else 1.0)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self._progress is not None:
            self._progress.console.print(without_controls(text), markup=False, highlight=False, soft_wrap=True)

    def measured(self, part: str, done_s: float, left_s: float) -> None:
        """Show the seconds measured as a share of the seconds that the measurement will take."""
        self._show(part, done_s, done_s + left_s, f"{left_s / 60:.0f} min left" if left_s > 90.0 else f"{left_s:.0f} s left")

    def _show(self, title: str, done: float | None, total: float | None, status: str = "") -> None:
        if self._progress is not None and self._task is not None:
            shown = printable(title)
            self._progress.update(self._task, description=shown, completed=done, total=total, status=printable(status))


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """Draw a bar while the block runs; output meanwhile is cleaned as elsewhere, although rich takes over the streams."""
    if is_quiet() or not sys.stderr.isatty():
        yield Bar(None)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = progress_console()
    columns = [TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[status]")]
    off = not console.is_interactive  # where it cannot draw, rich would print an empty line at the end
    drawn = Progress(columns[0], BarColumn(), columns[1], TimeRemainingColumn(), console=console, transient=True, disable=off)
    with drawn as progress, cleaned_streams():
        yield Bar(progress)
