"""Slots of the attentional models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from simnmt.nmt.leaving import Leaving
from simnmt.nmt.sharp_state import AttentionalState
from simnmt.nmt.source_rows import SourceRows

Body = Callable[[AttentionalState, Tensor], tuple[Tensor, AttentionalState]]


class AttentionalSlots:
    """See `Slots`. The source lies in a tensor with room to grow; what is kept, which every step makes anew, does not."""

    def __init__(self, body: Body, kept: tuple[Tensor, ...], source: Tensor, most_rows: int | None = None) -> None:
        """`body` is the model's own; it is given views of the active rows.

        `kept`: as in `AttentionalState`, of no row; `source`: room for it, [rows, 0, width]; `most_rows`: as in
        `StepModel.slots`.
        """
        self._body, self._source = body, SourceRows(source, 0, most_rows)
        self._state = AttentionalState(kept, source[:0], None)

    @torch.inference_mode()
    def join(self, memory: AttentionalState, sentences: Sequence[int], src_lens: Sequence[int], beam: int) -> None:
        """See `Slots`."""
        if not sentences:
            return
        rows = [sentence for sentence in sentences for _ in range(beam)]
        lengths = [src_len for src_len in src_lens for _ in range(beam)]
        chosen = torch.tensor(rows, device=memory.source.device)
        self._source.append(memory.source[:, : max(lengths)].index_select(0, chosen), lengths)
        both = zip(self._state.kept, memory.kept, strict=True)
        self._see(tuple(torch.cat((old, new.index_select(0, chosen))) for old, new in both))

    @torch.inference_mode()
    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        """See `Slots`."""
        leaving = Leaving(len(self._source), slots, beam, self._state.kept[0].device)
        self._source.drop(leaving)
        for part in self._state.kept:
            leaving.move(part, 0)
        self._see(tuple(part[: len(leaving.rows)] for part in self._state.kept))
        return leaving.order

    @torch.inference_mode()
    def body(self, tokens: Tensor) -> Tensor:
        """See `Slots`."""
        hidden, self._state = self._body(self._state, tokens)
        return hidden

    @torch.inference_mode()
    def reorder(self, rows: Tensor) -> None:
        """See `Slots`."""
        self._state.kept = tuple(part.index_select(0, rows) for part in self._state.kept)

    def _see(self, kept: tuple[Tensor, ...]) -> None:
        """Show the step the active rows, no further than to the end of their longest source."""
        within = self._source.within() if len(self._source) else None
        self._state = AttentionalState(kept, self._source.seen(), None if within is None else ~within)
