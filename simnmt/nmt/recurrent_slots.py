"""Slots of the recurrent models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from simnmt.nmt.growing import move_rows, with_room
from simnmt.nmt.recurrent_state import RecurrentState
from simnmt.nmt.slots import blocks, vacate

Step = Callable[[RecurrentState, Tensor], tuple[Tensor, RecurrentState]]


class RecurrentSlots:
    """See `Slots`. The source lies in a tensor with room to grow; the hidden state, which every step makes anew, does not."""

    def __init__(self, step: Step, capacity_rows: int) -> None:
        """`step` is the model's own; it is given views of the active rows."""
        self._step, self._capacity = step, capacity_rows
        self._lengths: list[int] = []
        self._source: Tensor | None = None
        """Keys and values: [2, rows, src_len, hidden]; zero behind each source's end."""
        self._state: RecurrentState | None = None

    @property
    def rows(self) -> int:
        """See `Slots`."""
        return len(self._lengths)

    @torch.inference_mode()
    def join(self, memory: RecurrentState, sentences: Sequence[int], beam: int) -> None:
        """See `Slots`."""
        if not sentences:
            return
        repeated = [sentence for sentence in sentences for _ in range(beam)]
        chosen = torch.tensor(repeated, device=memory.hidden[0].device)
        joining = tuple(part.index_select(1, chosen) for part in memory.hidden)
        lengths = _lengths(memory)
        own = [lengths[sentence] for sentence in repeated]
        before, after = self.rows, self.rows + len(own)
        if memory.keys is not None and memory.values is not None:
            longest = max(own)
            new = self._room(memory.values, after, longest)[:, before:]
            new[0, :, :longest] = memory.keys.transpose(1, 2)[:, :longest].index_select(0, chosen)
            new[1, :, :longest] = memory.values[:, :longest].index_select(0, chosen)
            new[:, :, longest:] = 0
        self._lengths += own
        if self._state is not None:
            joining = tuple(torch.cat(parts, dim=1) for parts in zip(self._state.hidden, joining, strict=True))
        self._see(joining)

    @torch.inference_mode()
    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        """See `Slots`."""
        order, holes = vacate(self.rows // beam, slots)
        if slots and self._state is not None:
            rows = blocks(order, beam)
            device = self._state.hidden[0].device
            if self._source is not None and holes:
                moved = torch.tensor(blocks([order[hole] for hole in holes], beam), device=device)
                move_rows(self._source, 1, moved, torch.tensor(blocks(holes, beam), device=device))
            self._lengths = [self._lengths[row] for row in rows]
            chosen = torch.tensor(rows, dtype=torch.int64, device=device)
            self._see(tuple(part.index_select(1, chosen) for part in self._state.hidden))
        return order

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> Tensor:
        """See `Slots`."""
        assert self._state is not None
        logits, self._state = self._step(self._state, tokens)
        return logits

    @torch.inference_mode()
    def reorder(self, rows: Tensor) -> None:
        """See `Slots`."""
        assert self._state is not None
        self._state.hidden = tuple(part.index_select(1, rows) for part in self._state.hidden)

    def _room(self, values: Tensor, rows: int, longest: int) -> Tensor:
        """The source's tensor, as large as needed, and of it so many rows."""
        if self._source is None:
            self._source = values.new_zeros((2, max(rows, self._capacity), longest, values.shape[2]))
        used = (slice(None), slice(len(self._lengths)), slice(max(self._lengths, default=0)))
        self._source = with_room(self._source, {1: rows, 2: longest}, used)
        return self._source[:, :rows]

    def _see(self, hidden: tuple[Tensor, ...]) -> None:
        """Show the step the active rows, no further than to the end of their longest source."""
        if not self._lengths:
            self._state = None
        elif self._source is None:
            self._state = RecurrentState(hidden, None, None, None)
        else:
            longest = max(self._lengths)
            keys, values = self._source[:, : self.rows, :longest]
            mask = None
            if min(self._lengths) < longest:
                places = torch.arange(longest, device=keys.device)
                mask = places[None, None, :] >= torch.tensor(self._lengths, device=keys.device)[:, None, None]
            self._state = RecurrentState(hidden, keys.transpose(1, 2), values, mask)


def _lengths(memory: RecurrentState) -> list[int]:
    """Of each source."""
    batch = memory.hidden[0].shape[1]
    if memory.values is None:
        return [0] * batch
    if memory.mask is None:
        return [memory.values.shape[1]] * batch
    lengths: list[int] = (~memory.mask[:, 0]).sum(dim=1).tolist()
    return lengths
