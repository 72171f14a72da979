"""Slots of MarianMT."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from simnmt.nmt.errors import NmtError
from simnmt.nmt.leaving import Leaving
from simnmt.nmt.marian_state import MarianMemory, MarianState
from simnmt.nmt.source_rows import SourceRows, with_room

Body = Callable[[MarianState, Tensor], tuple[Tensor, MarianState]]
_ROWS, _COLUMNS = 2, 4


class MarianSlots:
    """See `Slots`. Every step writes one column of keys and values, the same for all rows, whenever they began.

    A row's first column is when it joined; what lies before it is hidden from the row. Columns before the first of the row
    that joined earliest are looked at by nobody, and are given back when there is no room for another.
    """

    def __init__(
        self, body: Body, past: Tensor, cross: Tensor, max_positions: int | None, most_rows: int | None = None
    ) -> None:
        """`body` is the model's own; it is given views of the active rows. `past`, `cross`: room to begin with.

        `most_rows`: as in `StepModel.slots`.
        """
        self._body, self._max_positions, self._most = body, max_positions, {_ROWS: most_rows}
        self._past, self._source = past, SourceRows(cross, _ROWS, most_rows)
        self._spare: Tensor | None = None
        """What reordering writes to, as large as `_past`, whose place it then takes; made when first needed."""
        self._begun: list[int] = []
        """First column of each row."""
        self._clock = 0
        """The column that the next step writes."""
        self._state: MarianState | None = None

    @torch.inference_mode()
    def join(self, memory: MarianMemory, sentences: Sequence[int], src_lens: Sequence[int], beam: int) -> None:
        """See `Slots`."""
        if not sentences:
            return
        rows = [sentence for sentence in sentences for _ in range(beam)]
        lengths = [src_len for src_len in src_lens for _ in range(beam)]
        chosen = torch.tensor(rows, device=memory.cross.device)
        self._source.append(memory.cross[..., : max(lengths), :].index_select(_ROWS, chosen), lengths)
        self._make_room(self._rows + len(rows), self._past.shape[_COLUMNS])
        # What is hidden must be a number all the same: not-a-number times a weight of 0 is none.
        self._past[:, :, self._rows : self._rows + len(rows), :, self._oldest : self._clock] = 0
        self._begun += [self._clock] * len(rows)
        self._see()

    @torch.inference_mode()
    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        """See `Slots`."""
        leaving = Leaving(self._rows, slots, beam, self._past.device)
        self._source.drop(leaving)
        leaving.move(self._past[self._used()], _ROWS)
        self._begun = [self._begun[row] for row in leaving.rows]
        self._see()
        return leaving.order

    @torch.inference_mode()
    def body(self, tokens: Tensor) -> Tensor:
        """See `Slots`."""
        assert self._state is not None, "no row is active"
        if self._state.position == self._max_positions:
            raise NmtError(f"a target of more than {self._max_positions} tokens, the model's positions", remedy="shorten it")
        if self._clock == self._past.shape[_COLUMNS]:
            self._give_back()
        hidden, self._state = self._body(self._state, tokens)
        self._clock += 1
        return hidden

    @torch.inference_mode()
    def reorder(self, rows: Tensor) -> None:
        """See `Slots`."""
        assert self._state is not None, "no row is active"
        if self._spare is None or self._spare.shape != self._past.shape:
            self._spare = torch.empty_like(self._past)
        used = self._used()
        torch.index_select(self._past[used], _ROWS, rows, out=self._spare[used])
        self._past, self._spare = self._spare, self._past
        self._state.past = self._past[:, :, : self._rows, :, self._oldest :]

    @property
    def _rows(self) -> int:
        """Active ones."""
        return len(self._begun)

    @property
    def _oldest(self) -> int:
        """First column that any row looks at."""
        return min(self._begun, default=self._clock)

    def _used(self) -> tuple[slice, ...]:
        """What the active rows look at."""
        every = slice(None)
        return every, every, slice(self._rows), every, slice(self._oldest, self._clock)

    def _make_room(self, rows: int, columns: int) -> None:
        grown = with_room(self._past, {_ROWS: rows, _COLUMNS: columns}, self._used(), self._most)
        if grown is not self._past:
            self._past = grown
            self._shift()

    def _give_back(self) -> None:
        """Make room for columns: of those given back where they are half of all, so that moving is rare; else of new ones."""
        looked_at = self._clock - self._oldest
        if 2 * looked_at <= self._past.shape[_COLUMNS]:
            kept = self._past[self._used()].clone()
            self._past[:, :, : self._rows, :, :looked_at] = kept
            self._shift()
        else:
            self._make_room(self._rows, self._clock + 1)
        self._see()

    def _shift(self) -> None:
        """The oldest row's first column has become column 0."""
        oldest = self._oldest
        self._begun = [begun - oldest for begun in self._begun]
        self._clock -= oldest

    def _see(self) -> None:
        """Show the step the active rows, from the oldest's first column on, and no further than their longest source goes."""
        if not self._rows:
            self._clock, self._state = 0, None
            return
        oldest, within = self._oldest, self._source.within()
        after = None
        if max(self._begun) > oldest:
            after = torch.tensor([begun - oldest for begun in self._begun], device=self._past.device)
        self._state = MarianState(
            self._past[:, :, : self._rows, :, oldest:],
            self._source.seen(),
            None if within is None else within[:, None, None, :],
            self._clock - oldest,
            after,
        )
