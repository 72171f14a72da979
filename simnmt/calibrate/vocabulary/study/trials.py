"""Decodes the development half with a cell of the sweep, with one search after the other, until one is not good."""

from __future__ import annotations

from collections.abc import Callable

from simnmt.calibrate.vocabulary.study.choice import columns_of
from simnmt.calibrate.vocabulary.study.document import Cell, Tried
from simnmt.calibrate.vocabulary.study.runners import Runner, Sentences, WayOf, alike
from simnmt.calibrate.vocabulary.study.settings import StudySettings
from simnmt.nmt.batched import BatchedRun
from simnmt.nmt.translation import Translator


class Trials:
    """See `Trial`; what dense decoding says is found out once a search."""

    def __init__(
        self,
        translator: Translator,
        sentences: Sentences,
        settings: StudySettings,
        way_of: Callable[[Cell], WayOf],
        say: Callable[[str], None],
    ) -> None:
        """`sentences`: of the development half; `say`: is told of what comes next."""
        self._translator, self._sentences, self._settings = translator, sentences, settings
        self._way_of, self._say = way_of, say
        self._dense: dict[tuple[int, int], tuple[BatchedRun, float | None]] = {}

    def __call__(self, cell: Cell) -> list[Tried]:
        """The last search, which is the widest, goes first."""
        settings, found, way = self._settings, list[Tried](), self._way_of(cell)
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
                Tried(
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
