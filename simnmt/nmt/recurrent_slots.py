"""Slots of the recurrent models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from simnmt.nmt.leaving import Leaving
from simnmt.nmt.recurrent_state import RecurrentState
from simnmt.nmt.source_rows import SourceRows

Body = Callable[[RecurrentState, Tensor], tuple[Tensor, RecurrentState]]


class RecurrentSlots:
    """See `Slots`. The source lies in a tensor with room to grow; the hidden state, which every step makes anew, does not."""

    def __init__(self, body: Body, hidden: tuple[Tensor, ...], source: Tensor | None, most_rows: int | None = None) -> None:
        """`body` is the model's own; it is given views of the active rows.

        `hidden`: as in `RecurrentState`, of no row. `source`: room for keys and values, [2, rows, 0, hidden]; None
        without attention. `most_rows`: as in `StepModel.slots`.
        """
        self._body, self._state = body, RecurrentState(hidden, None, None, None)
        self._source = None if source is None else SourceRows(source, 1, most_rows)

    @torch.inference_mode()
    def join(self, memory: RecurrentState, sentences: Sequence[int], src_lens: Sequence[int], beam: int) -> None:
        """See `Slots`."""
        if not sentences:
            return
        rows = [sentence for sentence in sentences for _ in range(beam)]
        chosen = torch.tensor(rows, device=memory.hidden[0].device)
        if self._source is not None and memory.keys is not None and memory.values is not None:
            lengths = [src_len for src_len in src_lens for _ in range(beam)]
            keys, values = memory.keys.transpose(1, 2)[:, : max(lengths)], memory.values[:, : max(lengths)]
            self._source.append(torch.stack((keys.index_select(0, chosen), values.index_select(0, chosen))), lengths)
        before = self._state.hidden
        self._see(
            tuple(torch.cat((old, new.index_select(1, chosen)), 1) for old, new in zip(before, memory.hidden, strict=True))
        )

    @torch.inference_mode()
    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        """See `Slots`."""
        leaving = Leaving(self._rows, slots, beam, self._state.hidden[0].device)
        if self._source is not None:
            self._source.drop(leaving)
        for part in self._state.hidden:
            leaving.move(part, 1)
        self._see(tuple(part[:, : len(leaving.rows)] for part in self._state.hidden))
        return leaving.order

    @torch.inference_mode()
    def body(self, tokens: Tensor) -> Tensor:
        """See `Slots`."""
        hidden, self._state = self._body(self._state, tokens)
        return hidden

    @torch.inference_mode()
    def reorder(self, rows: Tensor) -> None:
        """See `Slots`."""
        self._state.hidden = tuple(part.index_select(1, rows) for part in self._state.hidden)

    @property
    def _rows(self) -> int:
        """Active ones."""
        return self._state.hidden[0].shape[1]

    def _see(self, hidden: tuple[Tensor, ...]) -> None:
        """Show the step the active rows, no further than to the end of their longest source."""
        self._state = RecurrentState(hidden, None, None, None)
        if self._source is not None and self._rows:
            keys, values = self._source.seen()
            within = self._source.within()
            mask = None if within is None else ~within[:, None, :]
            self._state = RecurrentState(hidden, keys.transpose(1, 2), values, mask)
