"""The bar of a calibration, on a terminal's standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn

from simnmt.cli.progress import DescriptionColumn, live_progress
from simnmt.cli.terminal import without_controls

if TYPE_CHECKING:
    from simnmt.calibrate.progress import Listener


class _Bar:
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
        yield _Bar(progress)
