"""Choose r and K of a direction on the development half of its held-out text, with every search.

A sweep shows how many sentences stay the same with greedy decoding, one at a time; a beam, whose scores are of active columns
alone, keeps fewer, and a missed token may cost BLEU. So cells are decoded before one of them is chosen, and what is reported of
the chosen cell comes from the other half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simnmt.nmt.batch_decoder import BatchedRun
from simnmt.nmt.translation import Translator
from simnmt.papers.fvp.study import Cell, TriedCell
from simnmt.papers.fvp.study_runners import MakeVocabulary, Runner, Sentences, alike
from simnmt.papers.fvp.study_settings import StudySettings

Trial = Callable[[Cell], Sequence[TriedCell]]
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


def try_contenders(cells: Sequence[Cell], trial: Trial) -> list[TriedCell]:
    """The contenders' trials: after each, the half that multiplies more is dropped where it was good, else the other half."""
    found: list[TriedCell] = []
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


def choice(tried: Sequence[TriedCell]) -> tuple[int, int]:
    """r and K: of the cells that were good with every search they were tried with, the one that multiplies least.

    Where none was, the one that keeps most sentences with the search that keeps fewest.
    """
    cells: dict[tuple[int, int], list[TriedCell]] = {}
    for each in tried:
        cells.setdefault((each.clusters, each.top), []).append(each)
    good = {cell: own for cell, own in cells.items() if all(each.good for each in own)}
    if good:
        return min(good, key=lambda cell: (good[cell][0].columns, cell))
    return max(cells, key=lambda cell: (min(each.identical for each in cells[cell]), -cells[cell][0].columns))


class Trials:
    """See `Trial`; what dense decoding says is found out once a search."""

    def __init__(
        self,
        translator: Translator,
        sentences: Sentences,
        settings: StudySettings,
        way_of: Callable[[Cell], MakeVocabulary],
        say: Callable[[str], None],
    ) -> None:
        """`sentences`: of the development half; `say`: is told of what comes next."""
        self._translator, self._sentences, self._settings = translator, sentences, settings
        self._way_of, self._say = way_of, say
        self._dense: dict[tuple[int, int], tuple[BatchedRun, float | None]] = {}

    def __call__(self, cell: Cell) -> list[TriedCell]:
        """The last search, which is the widest, goes first."""
        settings, found, way = self._settings, list[TriedCell](), self._way_of(cell)
        for beam, batch in reversed(settings.searches):
            self._say(f"{cell.label}: trying {cell.clusters:,} clusters, K {cell.top}, beam {beam}, batch {batch}")
            runner = Runner(self._translator, self._sentences, beam, batch, way)
            if (beam, batch) not in self._dense:
                dense = runner.run("dense")
                self._dense[beam, batch] = dense, runner.bleu(dense)
            (before, bleu_dense), after = self._dense[beam, batch], runner.run("part")
            same, bleu = alike(before, after), runner.bleu(after)
            near = bleu is None or bleu_dense is None or abs(bleu - bleu_dense) <= settings.most_bleu_change
            found.append(
                TriedCell(
                    label=cell.label,
                    clusters=cell.clusters,
                    top=cell.top,
                    columns=columns_of(cell),
                    beam=beam,
                    batch=batch,
                    sentences=len(self._sentences.sources),
                    bleu_dense=bleu_dense,
                    bleu=bleu,
                    identical=same.identical,
                    token_agreement=same.token_agreement,
                    good=near and same.identical >= settings.least_identical,
                )
            )
            if not found[-1].good:
                break
        return found
