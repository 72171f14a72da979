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
    """Return r + V', the mean columns that a row is multiplied with at batch 1, centroids included (FVP-09)."""
    return cell.clusters + cell.share_of_emitted * cell.emitted


def contenders(swept: Sequence[Cell], least_identical: float, most_share: float) -> list[Cell]:
    """Return the cells worth decoding: products grow along the list, and so do the sentences that stay the same greedily.

    Leaves out cells with more than `most_share` of V active on average, with less than `least_identical` of the sentences,
    and cells that multiply more than another without keeping more. If none is left, returns the cell that keeps most among
    those within `most_share`, or among all.
    """
    within = [cell for cell in swept if cell.share.mean <= most_share] or list(swept)
    front: list[Cell] = []
    for cell in sorted(within, key=lambda cell: (columns_of(cell), -cell.identical, cell.clusters)):
        if not front or cell.identical > front[-1].identical:
            front.append(cell)
    return [cell for cell in front if cell.identical >= least_identical] or front[-1:]


def try_contenders(cells: Sequence[Cell], trial: Trial) -> list[TriedCell]:
    """Return the contenders' trials: a good trial drops the half that multiplies more, any other trial the other half."""
    trials: list[TriedCell] = []
    first, behind = 0, len(cells)
    while first < behind:
        middle = (first + behind) // 2
        cell_trials = trial(cells[middle])
        trials += cell_trials
        if all(entry.good for entry in cell_trials):
            behind = middle
        else:
            first = middle + 1
    return trials


def choice(tried: Sequence[TriedCell]) -> tuple[int, int]:
    """Return r and K of the cell that multiplies least among those that were good with every search tried.

    If none was good, return the cell that keeps most sentences with the search that keeps fewest.
    """
    cells: dict[tuple[int, int], list[TriedCell]] = {}
    for trial in tried:
        cells.setdefault((trial.clusters, trial.top), []).append(trial)
    good = {cell: cell_trials for cell, cell_trials in cells.items() if all(trial.good for trial in cell_trials)}
    if good:
        return min(good, key=lambda cell: (good[cell][0].columns, cell))
    return max(cells, key=lambda cell: (min(trial.identical for trial in cells[cell]), -cells[cell][0].columns))


class Trials:
    """Run trials, see `Trial`; dense decoding runs once a search."""

    def __init__(
        self,
        translator: Translator,
        sentences: Sentences,
        settings: StudySettings,
        make_vocabulary_of: Callable[[Cell], MakeVocabulary],
        say: Callable[[str], None],
    ) -> None:
        """`sentences`: of the development half; `say`: reports progress."""
        self._translator, self._sentences, self._settings = translator, sentences, settings
        self._make_vocabulary_of, self._say = make_vocabulary_of, say
        self._dense: dict[tuple[int, int], tuple[BatchedRun, float | None]] = {}

    def __call__(self, cell: Cell) -> list[TriedCell]:
        """Try a cell with every search, beginning with the last one, which is the widest."""
        settings, trials, make_vocabulary = self._settings, list[TriedCell](), self._make_vocabulary_of(cell)
        for beam, batch in reversed(settings.searches):
            self._say(f"{cell.label}: trying {cell.clusters:,} clusters, K {cell.top}, beam {beam}, batch {batch}")
            runner = Runner(self._translator, self._sentences, beam, batch, make_vocabulary)
            if (beam, batch) not in self._dense:
                dense = runner.run("dense")
                self._dense[beam, batch] = dense, runner.bleu(dense)
            (before, bleu_dense), after = self._dense[beam, batch], runner.run("part")
            same, bleu = alike(before, after), runner.bleu(after)
            near = bleu is None or bleu_dense is None or abs(bleu - bleu_dense) <= settings.most_bleu_change
            trials.append(
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
            if not trials[-1].good:
                break
        return trials
