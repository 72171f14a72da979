"""Which r and K a direction is decoded with: chosen on the development half of its held-out text, with every search.

A sweep tells how many sentences stay the same greedily, one at a time; a beam, whose scores are of active columns alone, keeps
fewer, and what is missed may cost BLEU. So cells are decoded before one of them is chosen, and what is reported of it comes
from the other half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simnmt.calibrate.vocabulary.study.document import Cell, Tried

Trial = Callable[[Cell], Sequence[Tried]]
"""Decodes the development half with a cell: one entry a search, no more after the first that is not good."""


def columns_of(cell: Cell) -> float:
    """r + V': what a row is multiplied with at batch 1 on average, centroids included (FVP-09)."""
    return cell.clusters + cell.share_of_emitted * cell.emitted


def contenders(found: Sequence[Cell], least_identical: float, most_share: float) -> list[Cell]:
    """Cells worth decoding, those that multiply least first; with each more sentences stay the same greedily.

    Left out: cells with more than `most_share` of V active on average, with less than `least_identical` of the sentences, and
    those that multiply more than another without keeping more. Where nothing is left, the one of the first kept that keeps
    most, or of all.
    """
    within = [each for each in found if each.share.mean <= most_share] or list(found)
    front: list[Cell] = []
    for each in sorted(within, key=lambda each: (columns_of(each), -each.identical, each.clusters)):
        if not front or each.identical > front[-1].identical:
            front.append(each)
    return [each for each in front if each.identical >= least_identical] or front[-1:]


def tried_of(cells: Sequence[Cell], trial: Trial) -> list[Tried]:
    """The contenders' trials: after each, the half that multiplies more is dropped where it was good, else the other half."""
    found: list[Tried] = []
    first, behind = 0, len(cells)
    while first < behind:
        middle = (first + behind) // 2
        own = trial(cells[middle])
        found += own
        if all(each.good for each in own):
            behind = middle
        else:
            first = middle + 1
    return found


def choice(tried: Sequence[Tried]) -> tuple[int, int]:
    """r and K: of the cells that were good with every search they were tried with, the one that multiplies least.

    Where none was, the one that keeps most sentences with the search that keeps fewest.
    """
    cells: dict[tuple[int, int], list[Tried]] = {}
    for each in tried:
        cells.setdefault((each.clusters, each.top), []).append(each)
    good = {cell: own for cell, own in cells.items() if all(each.good for each in own)}
    if good:
        return min(good, key=lambda cell: (good[cell][0].columns, cell))
    return max(cells, key=lambda cell: (min(each.identical for each in cells[cell]), -cells[cell][0].columns))
