"""Output layers, from the decoder's hidden state to the best tokens: plain, fused, or restricted to the active columns.

The plain layer computes logits, then softmax, then searches (FNI-01). The fused layer does bias, softmax and search in one pass
over the products while these are in the cache (FNI-03 to 06). The restricted layer gives the products of the active columns to
the same fused kernel (FVP-07, XP-02).

On the CPU the fused layer multiplies one block of columns after the other. It searches a block before it multiplies the next,
so that products never leave the cache: for 640 rows and 85,000 columns they are 218 MB.

The plain layer also searches many logits by blocks. torch finds the place of a maximum one number at a time, but a maximum
alone many numbers at a time: `amax` first finds the blocks that can hold the largest values, and only these are searched. For
160 rows of 32,000 columns on one thread this takes 3 ms; `topk` of the rows took 16 ms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.kernels.columns import gathered_products
from simnmt.kernels.native_library import KernelError
from simnmt.kernels.output_layer import fused_argmax, fused_best
from simnmt.kernels.output_reference import Best
from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, SubsetAccount, SubsetStep

NEVER = -inf
"""The log-probability of a token that cannot be chosen."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The length limit of a sentence's output, and its source tokens if candidate lists need them."""

    steps: int
    """Most steps, 1 or more."""
    forced: bool = False
    """Whether the sentence takes all of them: its end token is banned."""
    source: Sequence[int] = ()
    """Source tokens, if the active vocabulary depends on them."""


class BannedTokens:
    """Tokens that are never chosen: padding, and the end token of a sentence of forced length."""

    def __init__(self, model: StepModel) -> None:
        self.pad, self.eos, self._device, self._bias = model.pad_token, model.eos_token, model.device, model.bias
        self._masked: Tensor | None = None
        self.all_forced = False
        """Whether every active sentence has a forced length."""
        self._columns: Tensor | None = None
        """Tokens banned in every row."""
        self.ends: Tensor | None = None
        """Mask of the rows whose end token is banned, [rows]; None if that holds for all rows or for none."""

    def update(self, limits: Sequence[Limit], beam: int) -> None:
        """Follow a change of the active sentences."""
        forced = [limit.forced for limit in limits]
        before, self.all_forced = self.all_forced, all(forced)
        if self._columns is None or before != self.all_forced:
            columns = {self.pad} - {self.eos} | ({self.eos} if self.all_forced else set())
            self._columns, self._masked = torch.tensor(sorted(columns), dtype=torch.int64, device=self._device), None
        mixed = any(forced) and not self.all_forced
        self.ends = torch.tensor(forced, device=self._device).repeat_interleave(beam) if mixed else None

    def ban(self, logits: Tensor) -> None:
        """Set the logits of banned tokens to minus infinity, in place."""
        if self._columns is not None:
            logits.index_fill_(1, self._columns, NEVER)
        if self.ends is not None:
            logits[:, self.eos].masked_fill_(self.ends, NEVER)

    @property
    def bias(self) -> Tensor:
        """The bias of the model's output layer, float32 [vocab], minus infinity for tokens that are banned in every row."""
        if self._masked is None:
            bias = self._bias.detach().float().contiguous()
            self._masked = bias if self._columns is None else bias.index_fill(0, self._columns, NEVER)
        return self._masked


_BLOCK = 64
_FEW, _FEW_COLUMNS = 65_536, 16 * _BLOCK
"""Numbers of values, in all and per row, below which a search by blocks is no faster."""


def log_softmax_(logits: Tensor) -> Tensor:
    """Return the log-probabilities of each row in float32, computed in place if the logits are float32."""
    logits = logits.float()
    return torch.log_softmax(logits, dim=1, out=logits)


def largest(logits: Tensor) -> Tensor:
    """Return the column of the largest value of each row, the first of equals, int64 [rows]."""
    if _is_small(logits):
        return logits.argmax(dim=1)
    columns = _block_columns(_block_maxima(logits).argmax(dim=1, keepdim=True))
    last = logits.shape[1] - 1
    values = logits.gather(1, columns.clamp(max=last)).masked_fill_(columns > last, NEVER)
    return columns.gather(1, values.argmax(dim=1, keepdim=True))[:, 0]


def largest_sums(log_probs: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each sentence the largest sums of row score and column log-probability, in descending order.

    `log_probs`: [sentences x beam, columns]; `scores`: [sentences, beam]. Returns the sums, their rows within the sentence and
    their columns, each [sentences, count].
    """
    sentences, beam = scores.shape
    columns = log_probs.shape[1]
    if _is_small(log_probs):
        sums, places = (log_probs + scores.view(-1, 1)).view(sentences, -1).topk(count, dim=1)
        return sums, places.div(columns, rounding_mode="floor"), places.remainder(columns)
    maxima = _block_maxima(log_probs)
    blocks = maxima.shape[1]
    # Adding a row's score keeps the order of its blocks.
    _, places = maxima.add_(scores.view(-1, 1)).view(sentences, -1).topk(min(count, beam * blocks), dim=1)
    rows = places.div(blocks, rounding_mode="floor")
    within = _block_columns(places.remainder(blocks).view(-1, 1)).view(*places.shape, _BLOCK)
    firsts = torch.arange(0, sentences * beam, beam, device=rows.device)[:, None]
    whole = ((firsts + rows)[:, :, None] * columns + within.clamp(max=columns - 1)).view(-1)
    block_sums = log_probs.view(-1).index_select(0, whole).view(within.shape) + scores.gather(1, rows)[:, :, None]
    if columns % _BLOCK:
        block_sums.masked_fill_(within >= columns, NEVER)
    sums, best = block_sums.view(sentences, -1).topk(count, dim=1)
    return sums, rows.gather(1, best.div(_BLOCK, rounding_mode="floor")), within.view(sentences, -1).gather(1, best)


def _is_small(values: Tensor) -> bool:
    return values.numel() < _FEW or values.shape[1] < _FEW_COLUMNS


def _block_maxima(values: Tensor) -> Tensor:
    """Return the maximum of each block of each row, [rows, blocks]; the last block may be short."""
    columns = values.shape[1]
    whole = columns - columns % _BLOCK
    maxima = values[:, :whole].view(len(values), -1, _BLOCK).amax(dim=2)
    return maxima if whole == columns else torch.cat((maxima, values[:, whole:].amax(dim=1, keepdim=True)), dim=1)


def _block_columns(blocks: Tensor) -> Tensor:
    """Return the columns of these blocks, [rows, 1] to [rows, block size]; a short block gives columns beyond the last."""
    return blocks * _BLOCK + torch.arange(_BLOCK, device=blocks.device)


class Laps:
    """Seconds of the parts of decoding: each call ends a part, which began at the call before."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """By part: body, project (the plain product with its bias), softmax, search, fused_product, fused, and others."""
        self._clock, self._before_s = clock, clock()

    def __call__(self, part: str) -> None:
        now_s = self._clock()
        self.seconds[part] += now_s - self._before_s
        self._before_s = now_s


def untimed(part: str) -> None:
    """Take no time of a part, see `Laps`."""


Projected = Any
"""The input of the search; only the output layer that made it knows its type, and uses it up."""


@dataclass(frozen=True, slots=True)
class Output:
    """How the logits of the tokens are computed."""

    fused: bool = False
    """Whether bias, softmax and search are one pass (FNI-03 to 06); of no effect with a `vocabulary`, whose search is fused."""
    vocabulary: RestrictedVocabulary | None = None
    """The only columns that are multiplied; None: all."""
    lap: Callable[[str], None] = untimed
    """Called at the end of each part of a step, such as `Laps`; the parts of a `vocabulary` are in its account."""

    def layer(self, model: StepModel, banned: BannedTokens) -> PlainOutput:
        """Return the output layer of a new decoder."""
        if self.vocabulary is not None:
            return SubsetOutput(model, banned, self.vocabulary, self.lap)
        return (FusedOutput if self.fused else PlainOutput)(model, banned, self.lap)


class PlainOutput:
    """From the output of the decoder's body to the best tokens, none of which is banned.

    Torch's own operations over all logits, one after the other: the baseline of the fused layer.
    """

    def __init__(self, model: StepModel, banned: BannedTokens, lap: Callable[[str], None] = untimed) -> None:
        self._model, self._banned, self._lap = model, banned, lap

    def join(self, keys: Sequence[int], sources: Sequence[Sequence[int]]) -> None:
        """Append sentences with these source tokens; `keys`: the caller's names of them."""

    def leave(self, order: Sequence[int]) -> None:
        """Keep the sentences `order`: new slot i is old slot `order[i]`."""

    def project(self, hidden: Tensor, best: int) -> Projected:
        """Compute the model's part, from [rows, width].

        `best`: the number of tokens of each row that will be asked for with their log-probabilities; 0: only the likeliest
        token, without its log-probability.
        """
        logits = self._model.project(hidden)
        self._lap("project")
        return logits

    def likeliest(self, projected: Projected, scored: bool) -> tuple[Tensor, Tensor | None]:
        """Return the token with the largest logit of each row, the first of equals, int64 [rows] (FNI-06).

        Beside it its log-probability, float32 [rows], if `scored`.
        """
        self._banned.ban(projected)
        tokens = largest(projected)
        self._lap("search")
        if not scored:
            return tokens, None
        log_probs = log_softmax_(projected).gather(1, tokens[:, None])[:, 0]
        self._lap("softmax")
        return tokens, log_probs

    def largest_sums(self, projected: Projected, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return for each sentence the largest sums of row score and token log-probability, in descending order.

        `scores`: [sentences, beam]. Returns the sums, their rows within the sentence and their tokens, each [sentences, count].
        If `project` was asked for fewer tokens of each row, these are the best sums of those tokens.
        """
        self._banned.ban(projected)
        self._lap("search")
        log_probs = log_softmax_(projected)
        self._lap("softmax")
        sums = largest_sums(log_probs, scores, count)
        self._lap("search")
        return sums


_LEAST_COLUMNS, _BLOCK_VALUES = 8_192, 2**20
"""Least columns of a block, and products of a block of few rows (4 MB). Shorter blocks are searched more slowly, since each
search has a fixed cost; longer blocks of many rows leave the cache."""


class FusedOutput(PlainOutput):
    """Bias, softmax and search in one pass; the tokens and, to rounding, the scores of `PlainOutput`.

    `project` does all the work but the choice among the rows of a beam, which takes only the best of each row (FNI-05).
    Raises `NmtError` if the logits of a row are not numbers (FNI-07).
    """

    def project(self, hidden: Tensor, best: int) -> Best:
        bias, ends, eos, blocks = self._banned.bias, self._banned.ends, self._banned.eos, list[Best]()
        for first, products in self._model.products(hidden, _block(hidden)):
            self._lap("fused_product")
            columns = products.shape[1]
            if ends is not None and 0 <= eos - first < columns:
                products[:, eos - first].masked_fill_(ends, NEVER)
            block = _best_of(products, bias[first : first + columns], best, valued=columns < len(bias))
            blocks.append(Best(block.columns + first, block.values, block.log_total) if first else block)
            self._lap("fused")
        return blocks[0] if len(blocks) == 1 else _merge_blocks(blocks, best)

    def likeliest(self, projected: Best, scored: bool) -> tuple[Tensor, Tensor | None]:
        self._lap("fused")
        return projected.columns[:, 0], projected.log_probs[:, 0] if scored else None

    def largest_sums(self, projected: Best, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the largest sums as `PlainOutput` does; if there are fewer than `count`, the rest are minus infinity."""
        sentences, columns_per_row = len(scores), projected.columns.shape[1]
        sums = (projected.log_probs + scores.view(-1, 1)).view(sentences, -1)
        if (short := count - sums.shape[1]) > 0:
            sums, places = torch.nn.functional.pad(sums, (0, short), value=NEVER).sort(dim=1, descending=True, stable=True)
            places = places.clamp(max=projected.columns.numel() // sentences - 1)
        else:
            sums, places = sums.topk(count, dim=1)
        tokens = projected.columns.view(sentences, -1).gather(1, places)
        self._lap("fused")
        return sums, places.div(columns_per_row, rounding_mode="floor"), tokens


def _block(hidden: Tensor) -> int | None:
    rows = len(hidden)
    # A single row's product is as fast whole.
    return max(_LEAST_COLUMNS, _BLOCK_VALUES // rows) if rows > 1 and hidden.device.type == "cpu" else None


def _best_of(products: Tensor, bias: Tensor, count: int, *, valued: bool = False) -> Best:
    """Return the `count` best of each row, or all that it holds; of `count` 0 the best column, its value only if `valued`."""
    threads = torch.get_num_threads() if products.is_cpu else 1
    try:
        if count:
            return fused_best(products, bias, min(count, products.shape[1]), threads=threads)
        columns = fused_argmax(products, bias, threads=threads)[:, None]
    except KernelError as error:
        raise NmtError(f"the model's outputs are no numbers to choose among: {error}") from None
    values = products.gather(1, columns).float() + bias[columns] if valued else products.new_empty(0)
    return Best(columns, values, torch.zeros_like(values[:, 0]) if valued else values)


def _merge_blocks(blocks: list[Best], count: int) -> Best:
    """Return the `count` best of blocks of columns in ascending order, each with its `count` best or all that it holds."""
    columns = torch.cat([block.columns for block in blocks], dim=1)
    values = torch.cat([block.values for block in blocks], dim=1)
    if count <= 1:
        # Unlike `topk`, `argmax` takes the first of equals: the lowest column.
        places = values.argmax(dim=1, keepdim=True)
        values = values.gather(1, places)
    else:
        values, places = values.topk(min(count, values.shape[1]), dim=1)
    totals = [block.log_total + (block.values[:, 0] - values[:, 0]) for block in blocks]
    return Best(columns.gather(1, places), values, torch.stack(totals).logsumexp(dim=0).clamp(min=0.0))


class SubsetOutput(FusedOutput):
    """A fused output layer over the active columns; all other tokens are impossible.

    If fewer tokens are active than are asked for, the rest are end tokens with a sum of minus infinity. Raises `NmtError` for
    a row without a token to choose, and for logits that are not numbers.
    """

    def __init__(
        self, model: StepModel, banned: BannedTokens, vocabulary: RestrictedVocabulary, lap: Callable[[str], None] = untimed
    ) -> None:
        super().__init__(model, banned, lap)
        self._vocabulary, self._weight = vocabulary, model.weight.detach()
        self._keys: tuple[int, ...] = ()
        self._listed: list[NDArray[np.int32]] = []
        """Columns of each sentence, if they depend on its source."""
        self._joined: Tensor | None = None
        """Those of the present sentences together, once they were asked for."""
        if vocabulary.account is not None:
            vocabulary.account.vocab = model.vocab

    def join(self, keys: Sequence[int], sources: Sequence[Sequence[int]]) -> None:
        self._keys, self._joined = (*self._keys, *keys), None
        if self._vocabulary.by_source is not None:
            self._listed += map(self._vocabulary.by_source, sources)

    def leave(self, order: Sequence[int]) -> None:
        self._keys, self._joined = tuple(self._keys[slot] for slot in order), None
        if self._vocabulary.by_source is not None:
            self._listed = [self._listed[slot] for slot in order]

    def project(self, hidden: Tensor, best: int) -> Best:
        account, hidden = self._vocabulary.account, hidden.contiguous()
        clock = (account or SubsetAccount()).clock
        begin_s = clock()
        columns = self.columns(hidden)
        chosen_s = clock()
        products = gathered_products(self._weight, hidden, columns)
        multiplied_s = clock()
        bias = self._banned.bias.index_select(0, columns)
        if (ends := self._banned.ends) is not None:
            products.masked_fill_(ends[:, None] & (columns == self._banned.eos), NEVER)
        chosen = _best_of(products, bias, best)
        projected = Best(columns[chosen.columns].long(), chosen.values, chosen.log_total)
        if account is not None:
            seconds = chosen_s - begin_s, multiplied_s - chosen_s, clock() - multiplied_s
            missed = self._missed(hidden, columns) if self._vocabulary.audit else 0
            account.steps.append(SubsetStep(self._keys, len(hidden), len(columns), missed, *seconds))
        return projected

    def columns(self, hidden: Tensor) -> Tensor:
        """Return the active columns of a step, int32, ascending, on the model's device."""
        if self._vocabulary.by_context is not None:
            return self._vocabulary.by_context(hidden)
        if self._joined is None:
            self._joined = torch.from_numpy(np.unique(np.concatenate(self._listed))).to(hidden.device)
        return self._joined

    def largest_sums(self, projected: Best, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        sums, rows, tokens = super().largest_sums(projected, scores, count)
        # The order of impossible tokens is arbitrary, but the contexts after them would add columns to the next union.
        impossible = sums == NEVER
        return sums, rows.masked_fill(impossible, 0), tokens.masked_fill(impossible, self._banned.eos)

    def _missed(self, hidden: Tensor, columns: Tensor) -> int:
        """Return the number of rows whose likeliest of all tokens is not active (FVP-08)."""
        logits = self._model.project(hidden)
        self._banned.ban(logits)
        return int(torch.isin(largest(logits), columns, invert=True).sum())
