"""Texts of `simnmt validate`: a table per group, where errors arise, verdicts, and the bars."""

from __future__ import annotations

from collections.abc import Sequence

from simnmt.base.text_tables import format_table
from simnmt.live.bars import BarResult
from simnmt.live.cell_comparison import CellResult, GroupVerdict, Interval
from simnmt.live.validation import Validation

HEADER = (
    "policy", "live ms", "90 % interval", "simulated ms", "error %", "p95 %", "structural %", "p95 %", "raw %", "spread %",
    "offloaded % live", "simulated", "equivalent", "predicted ms", "covers",
)  # fmt: skip
PARTS = {"queue_s": "queue", "transfer_s": "transfer", "execution_s": "execution", "overhead_s": "overhead"}


def format_validation(validation: Validation) -> str:
    """Return the text of a validation."""
    groups: dict[tuple[str, float, str], list[CellResult]] = {}
    for cell in validation.cells:
        groups.setdefault(cell.cell.group, []).append(cell)
    verdicts = {(group.batching, group.load, group.link): group for group in validation.groups}
    lines = []
    for key, cells in groups.items():
        batching, load, link = key
        lines += [f"batching {batching}, load {load:g}, link {link}", format_table(HEADER, map(_row, cells))]
        lines += ["where the error of the mean arises, simulated less live, ms:", _attribution(cells)]
        lines += [f"{cell.cell.policy}: {_voids(cell)}" for cell in cells if cell.void_repeats]
        lines += [_verdict(verdicts[key]) if key in verdicts else "no verdict: every cell is void", ""]
    lines += _notes(validation)
    lines += [format_bars(validation.bars)]
    return "\n".join(lines)


def _row(cell: CellResult) -> list[str]:
    return [
        cell.cell.policy + "*" * cell.void,
        f"{1e3 * cell.live.mean_s:.1f}",
        _interval(cell.live_interval_s),
        f"{1e3 * cell.simulated.mean_s:.1f}",
        _percent(cell.error_mean),
        _percent(cell.error_p95),
        _percent(cell.structural_error_mean),
        _percent(cell.structural_error_p95),
        _percent(cell.raw_error_mean),
        "-" if cell.spread_mean is None else f"{100 * cell.spread_mean:.1f}",
        f"{100 * cell.live.offloaded_share:.1f}",
        f"{100 * cell.simulated.offloaded_share:.1f}",
        {None: "-", True: "yes", False: "no"}[cell.equivalent],
        _interval(cell.interval_s),
        "yes" if cell.covered else "no",
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:+.1f}"


def _interval(seconds: Interval | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds[0]:.1f} to {1e3 * seconds[1]:.1f}"


def _attribution(cells: Sequence[CellResult]) -> str:
    rows = []
    for cell in cells:
        parts = cell.attribution_s
        rows.append([cell.cell.policy, *(f"{1e3 * parts[part]:+.2f}" for part in PARTS), f"{1e3 * sum(parts.values()):+.2f}"])
    return format_table(["policy", *PARTS.values(), "together"], rows)


def _voids(cell: CellResult) -> str:
    reasons = "; ".join(dict.fromkeys(cell.void_repeats))
    if cell.void:
        return f"void, every repeat was disturbed, and all are shown ({reasons})"
    return f"{len(cell.void_repeats)} repeats left out ({reasons})"


def _verdict(group: GroupVerdict) -> str:
    agree = {None: "one repeat cannot tell them apart", True: "the same or indistinguishable", False: "another"}
    text = f"best live {group.best_live}, simulated {group.best_simulated}: {agree[group.best_same_or_indistinguishable]}"
    if group.inverted:
        text += f"; inverted: {'; '.join(group.inverted)}"
    if group.gain_simulated is not None and group.gain_live is not None:
        text += (
            f"; {group.best_simulated} against the better single device: {100 * group.gain_simulated:.1f} % saved simulated, "
            f"{100 * group.gain_live:.1f} % live"
        )
    return text


def _notes(validation: Validation) -> list[str]:
    cells = validation.cells
    lines = ["* void: disturbed by the rules of the protocol"] * any(cell.void for cell in cells)
    judged = [cell.equivalent for cell in cells if cell.equivalent is not None and not cell.void]
    if judged:
        lines.append(f"equivalent within 5 % by two one-sided tests: {sum(judged)} of {len(judged)} cells")
    return [*lines, ""] if lines else []


def format_bars(bars: Sequence[BarResult]) -> str:
    """Return the table of the bars."""
    met = {None: "not judged", True: "met", False: "MISSED"}
    rows = [[result.bar.name, result.bound_text, result.figure_text, str(result.judged), met[result.met]] for result in bars]
    return format_table(["bar", "bound", "figure", "cells or groups", ""], rows, 2)
