"""Output layers, from the decoder's hidden state to the best tokens: plain, fused, or over the active columns alone.

The plain one computes logits, then softmax, then searches (FNI-01). The fused one takes bias, softmax and search in one pass
over the products while these are in the cache (FNI-03 to 06). The one over a part of the vocabulary hands the products of the
active columns to the same fused kernel (FVP-07, XP-02).

On the CPU the fused layer makes the product block by block of columns. A block's products are searched before the next are
made, so that they never reach the memory: for 640 rows and 85,000 columns they are 218 MB.

The largest of many logits are found block by block as well. torch's search for the places of maxima looks at one number at a
time, its search for maxima alone at many: so the blocks that can hold the largest are found by their maxima, and only these
are searched. For 160 rows of 32,000, on one thread: 3 ms where a sorted part of each row took 16.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from simnmt.kernels.columns import gathered_products, scatter
from simnmt.kernels.errors import KernelError
from simnmt.kernels.output_layer import Best, fused_argmax, fused_best
from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import BannedTokens, MaskedBias, StepModel
from simnmt.nmt.vocabulary.restricted_vocabulary import ActiveColumns, ProductChoice, RestrictedVocabulary, VocabularySubset

_BLOCK = 64
_FEW, _FEW_COLUMNS = 65_536, 16 * _BLOCK
"""Values in all, or in a row, below which looking at each is as fast."""
_NEVER = float("-inf")


def log_softmax_(logits: Tensor) -> Tensor:
    """Log-probabilities of each row in float32, in place where they lie in float32 already."""
    logits = logits.float()
    return torch.log_softmax(logits, dim=1, out=logits)


def largest(logits: Tensor) -> Tensor:
    """The column of each row's largest value, the first where several are: int64 [rows]."""
    if _is_small(logits):
        return logits.argmax(dim=1)
    columns = _block_columns(_block_maxima(logits).argmax(dim=1, keepdim=True))
    return columns.gather(1, _values_at(logits, columns).argmax(dim=1, keepdim=True))[:, 0]


def largest_sums(log_probs: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each sentence the largest sums of row score and column log-probability, in descending order.

    `log_probs` [sentences x beam, columns], `scores` [sentences, beam]. Returns sums, their rows within the sentence and their
    columns, each [sentences, count].
    """
    sentences, beam = scores.shape
    columns = log_probs.shape[1]
    if _is_small(log_probs):
        sums, places = (log_probs + scores.view(-1, 1)).view(sentences, -1).topk(count, dim=1)
        return sums, places.div(columns, rounding_mode="floor"), places.remainder(columns)
    maxima = _block_maxima(log_probs)
    blocks = maxima.shape[1]
    # Adding the score keeps the order, so that what is largest in its block is so in the sum.
    _, places = maxima.add_(scores.view(-1, 1)).view(sentences, -1).topk(min(count, beam * blocks), dim=1)
    rows = places.div(blocks, rounding_mode="floor")
    within = _block_columns(places.remainder(blocks).view(-1, 1)).view(*places.shape, _BLOCK)
    firsts = torch.arange(0, sentences * beam, beam, device=rows.device)[:, None]
    whole = ((firsts + rows)[:, :, None] * columns + within.clamp(max=columns - 1)).view(-1)
    block_sums = log_probs.view(-1).index_select(0, whole).view(within.shape) + scores.gather(1, rows)[:, :, None]
    if columns % _BLOCK:
        block_sums.masked_fill_(within >= columns, _NEVER)
    sums, best = block_sums.view(sentences, -1).topk(count, dim=1)
    return sums, rows.gather(1, best.div(_BLOCK, rounding_mode="floor")), within.view(sentences, -1).gather(1, best)


def _is_small(values: Tensor) -> bool:
    return values.numel() < _FEW or values.shape[1] < _FEW_COLUMNS


def _block_maxima(values: Tensor) -> Tensor:
    """Of each row, [rows, blocks]; the last block may be short."""
    columns = values.shape[1]
    whole = columns - columns % _BLOCK
    maxima = values[:, :whole].view(len(values), -1, _BLOCK).amax(dim=2)
    return maxima if whole == columns else torch.cat((maxima, values[:, whole:].amax(dim=1, keepdim=True)), dim=1)


def _block_columns(blocks: Tensor) -> Tensor:
    """The columns of one block a row: [rows, 1] to [rows, block size]; in a short block some lie behind the last."""
    return blocks * _BLOCK + torch.arange(_BLOCK, device=blocks.device)


def _values_at(values: Tensor, columns: Tensor) -> Tensor:
    """Return the values of these columns; minus infinity for columns beyond the last."""
    last = values.shape[1] - 1
    selected = values.gather(1, columns.clamp(max=last))
    return selected.masked_fill_(columns > last, _NEVER) if (last + 1) % _BLOCK else selected


Projected = Any
"""What the model's part of the output layer leaves for the search; known to the layer that made it alone, which uses it up."""


class OutputLayer(Protocol):
    """From what the decoder's body leaves to the best tokens; banned ones are never among them."""

    def project(self, hidden: Tensor, best: int) -> Projected:
        """The model's part, of [rows, width].

        `best`: the tokens of each row that will be asked for, their log-probabilities too; 0: the likeliest alone, without.
        """

    def likeliest(self, projected: Projected) -> Tensor:
        """The token of each row with the largest logit, the first where several have it: int64 [rows] (FNI-06)."""

    def likeliest_scored(self, projected: Projected) -> tuple[Tensor, Tensor]:
        """As `likeliest`, with their log-probabilities, float32 [rows]."""

    def largest_sums(self, projected: Projected, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Of each sentence's rows, the best sums of the row's score and a token's log-probability, in descending order.

        `scores`: [sentences, beam]. Returns sums, their rows within the sentence and their tokens, each [sentences, count].
        Where less than `count` tokens of each row were asked for, the sums are the best of these.
        """


class PlainOutput:
    """See `OutputLayer`: torch's own operations over all logits, one after the other; what is fused is measured against it."""

    def __init__(self, model: StepModel, banned: BannedTokens) -> None:
        self._model, self._banned = model, banned

    def project(self, hidden: Tensor, best: int) -> Tensor:
        """See `OutputLayer`."""
        return self._model.project(hidden)

    def likeliest(self, projected: Tensor) -> Tensor:
        """See `OutputLayer`."""
        self._banned.ban(projected)
        return largest(projected)

    def likeliest_scored(self, projected: Tensor) -> tuple[Tensor, Tensor]:
        """See `OutputLayer`."""
        tokens = self.likeliest(projected)
        return tokens, log_softmax_(projected).gather(1, tokens[:, None])[:, 0]

    def largest_sums(self, projected: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """See `OutputLayer`."""
        self._banned.ban(projected)
        return largest_sums(log_softmax_(projected), scores, count)


_LEAST_COLUMNS, _BLOCK_VALUES = 8_192, 2**20
"""A block has so many columns at least, and of few rows so many products (4 MB). Shorter ones are searched more slowly, since
the search begins anew with each; longer ones of many rows leave the cache."""


class FusedOutput:
    """See `OutputLayer`: the tokens and, to rounding, the scores of `PlainOutput`.

    `project` does all the work but the choice among a beam's rows, each of which needs no more than its own best (FNI-05).
    Raises `NmtError` where a row's logits are no numbers (FNI-07).
    """

    def __init__(self, model: StepModel, banned: BannedTokens) -> None:
        self._model, self._banned = model, banned
        self._bias = MaskedBias(model, banned)

    def project(self, hidden: Tensor, best: int) -> Best | Tensor:
        """See `OutputLayer`; the tokens themselves where nothing else is asked for."""
        bias, block_bests, ends = self._bias.now(), [], self._banned.ends
        threads = torch.get_num_threads() if hidden.device.type == "cpu" else 1
        try:
            for first, products in self._model.products(hidden, _block(hidden)):
                columns = products.shape[1]
                if ends is not None and 0 <= self._banned.eos - first < columns:
                    products[:, self._banned.eos - first].masked_fill_(ends, _NEVER)
                own_bias = None if bias is None else bias[first : first + columns]
                if best:
                    block_best = fused_best(products, own_bias, min(best, columns), threads=threads)
                else:
                    block_best = _largest(products, own_bias, threads)
                if first:
                    block_best = Best(block_best.columns + first, block_best.values, block_best.log_total)
                block_bests.append(block_best)
        except KernelError as error:
            raise NmtError(f"the model's outputs are no numbers to choose among: {error}") from None
        whole = block_bests[0] if len(block_bests) == 1 else _merge_blocks(block_bests, best)
        return whole if best else whole.columns[:, 0]

    def likeliest(self, projected: Tensor) -> Tensor:
        """See `OutputLayer`."""
        return projected

    def likeliest_scored(self, projected: Best) -> tuple[Tensor, Tensor]:
        """See `OutputLayer`."""
        return projected.columns[:, 0], projected.log_probs[:, 0]

    def largest_sums(self, projected: Best, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """See `OutputLayer`; where there are fewer than `count`, the rest have a sum of minus infinity."""
        sentences, columns_per_row = len(scores), projected.columns.shape[1]
        sums = (projected.log_probs + scores.view(-1, 1)).view(sentences, -1)
        if (short := count - sums.shape[1]) > 0:
            sums, places = torch.nn.functional.pad(sums, (0, short), value=_NEVER).sort(dim=1, descending=True, stable=True)
            places = places.clamp(max=projected.columns.numel() // sentences - 1)
        else:
            sums, places = sums.topk(count, dim=1)
        tokens = projected.columns.view(sentences, -1).gather(1, places)
        return sums, places.div(columns_per_row, rounding_mode="floor"), tokens


def _block(hidden: Tensor) -> int | None:
    rows = len(hidden)
    # A single row's product is as fast whole.
    return max(_LEAST_COLUMNS, _BLOCK_VALUES // rows) if rows > 1 and hidden.device.type == "cpu" else None


def _largest(products: Tensor, bias: Tensor | None, threads: int) -> Best:
    """The best of each row without its probability: the sum is none."""
    columns = fused_argmax(products, bias, threads=threads)[:, None]
    values = products.gather(1, columns).float()
    return Best(columns, values if bias is None else values + bias[columns], torch.zeros_like(values[:, 0]))


def _merge_blocks(blocks: list[Best], count: int) -> Best:
    """Of blocks of columns in ascending order: each has as many as are wanted, or all that it holds."""
    columns = torch.cat([block.columns for block in blocks], dim=1)
    values = torch.cat([block.values for block in blocks], dim=1)
    if count <= 1:
        # Of equals the first: the lowest column.
        places = values.argmax(dim=1, keepdim=True)
        values = values.gather(1, places)
    else:
        values, places = values.topk(min(count, values.shape[1]), dim=1)
    totals = [block.log_total + (block.values[:, 0] - values[:, 0]) for block in blocks]
    return Best(columns.gather(1, places), values, torch.stack(totals).logsumexp(dim=0).clamp(min=0.0))


_MOST_BANNED = 2
"""Padding and the end."""


class SubsetOutput:
    """See `OutputLayer`: all tokens but the active ones are impossible.

    Where fewer are active than are asked for, the rest are end tokens with a sum of minus infinity. Raises `NmtError` where a
    row has no token left to choose, or logits that are no numbers.
    """

    def __init__(
        self, model: StepModel, banned: BannedTokens, vocabulary: RestrictedVocabulary, subset: VocabularySubset
    ) -> None:
        """`subset`: the decoder's own, of `vocabulary`. Raises `NmtError` for the vocabulary of another model."""
        vocabulary.check(model)
        self._model, self._banned, self._vocabulary, self._subset = model, banned, vocabulary, subset
        self._weight = model.weight.detach()
        self._choice = ProductChoice(vocabulary.cost, *self._weight.shape)
        bias = model.bias
        self._plain_bias = None if bias is None else bias.detach().float().contiguous()
        self._bias = MaskedBias(model, banned)
        self._search: OutputLayer = (PlainOutput if vocabulary.scatter else FusedOutput)(model, banned)
        self.likeliest, self.likeliest_scored = self._search.likeliest, self._search.likeliest_scored

    def project(self, hidden: Tensor, best: int) -> Any:
        """See `OutputLayer`; scattered, the logits [rows, vocab]."""
        account, scattered = self._vocabulary.account, self._vocabulary.scatter
        clock = None if account is None else account.clock
        begin_s = clock() if clock else 0.0
        hidden = hidden.contiguous()
        active = self._subset.columns(hidden)
        assigned_s = clock() if clock else 0.0
        products = self._products(hidden, active)
        multiplied_s = clock() if clock else 0.0
        if scattered:
            self._check_some_left(active.columns, len(hidden))
            projected: Any = scatter(products, active.columns, self._model.vocab, self._plain_bias)
            if not bool(projected.amax(dim=1).isfinite().all()):
                raise NmtError("the model's outputs are no numbers to choose among")
        else:
            projected = self._best(products, active.columns, best)
        if account is not None:
            if clock:
                account.seconds(assigned_s - begin_s, multiplied_s - assigned_s, clock() - multiplied_s)
            missed = self._missed(hidden, active.columns) if self._vocabulary.audit else None
            account.step(self._model.vocab, len(hidden), len(active.columns), missed=missed)
        return projected

    def largest_sums(self, projected: Any, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """See `OutputLayer`."""
        sums, rows, tokens = self._search.largest_sums(projected, scores, count)
        # Which impossible token comes first is nobody's choice, but what it leads to would take part in the next union.
        impossible = sums == _NEVER
        return sums, rows.masked_fill(impossible, 0), tokens.masked_fill(impossible, self._banned.eos)

    def _products(self, hidden: Tensor, active: ActiveColumns) -> Tensor:
        columns, cache = active.columns, self._vocabulary.cache
        if cache is not None and len(columns):
            pays = partial(self._choice.pays, len(columns), len(hidden))
            copy = cache.get(self._weight, columns, active.key, pays)
            if copy is not None:
                return copy.products(hidden)
        method = self._choice.method(len(columns), len(hidden))
        if method == "dense":
            _, products = next(iter(self._model.products(hidden)))
            return products.float().index_select(1, columns)
        return gathered_products(self._weight, hidden, columns, method=method)

    def _best(self, products: Tensor, columns: Tensor, best: int) -> Best | Tensor:
        if not len(products):
            none = columns.new_empty((0, best), dtype=torch.int64)
            return Best(none, none.float(), products.new_empty(0)) if best else none.view(0)
        bias = self._bias.now()
        bias = None if bias is None else bias.index_select(0, columns)
        if (ends := self._banned.ends) is not None and (at := self._place(columns, self._banned.eos)) is not None:
            products[:, at].masked_fill_(ends, _NEVER)
        threads = torch.get_num_threads() if products.is_cpu else 1
        try:
            if not best:
                return columns[fused_argmax(products, bias, threads=threads)].long()
            chosen = fused_best(products, bias, min(best, len(columns)), threads=threads)
        except KernelError as error:
            self._check_some_left(columns, len(products))
            raise NmtError(f"the model's outputs are no numbers to choose among: {error}") from None
        return Best(columns[chosen.columns].long(), chosen.values, chosen.log_total)

    def _check_some_left(self, columns: Tensor, rows: int) -> None:
        """Raises `NmtError` where every active column of a row is banned."""
        if len(columns) > _MOST_BANNED:
            return
        banned = self._banned.columns
        left = columns if banned is None else columns[~torch.isin(columns, banned)]
        ends = self._banned.ends
        only_end = ends is not None and bool(ends.any()) and left.tolist() == [self._banned.eos]
        if rows and (not len(left) or only_end):
            what = f"no target token is left to choose among {len(columns):,} active ones"
            raise NmtError(what, remedy="build the vocabulary's parts from more text, or with more tokens each")

    def _place(self, columns: Tensor, token: int) -> int | None:
        at = int(torch.searchsorted(columns, token))
        return at if at < len(columns) and int(columns[at]) == token else None

    def _missed(self, hidden: Tensor, columns: Tensor) -> list[bool]:
        """Of each row whether the likeliest of all tokens is not active (FVP-08)."""
        if not len(hidden):
            return []
        logits = self._model.project(hidden)
        self._banned.ban(logits)
        missed: list[bool] = torch.isin(largest(logits), columns, invert=True).tolist()
        return missed


def make_output_layer(
    model: StepModel, banned: BannedTokens, fused: bool, vocabulary: RestrictedVocabulary | None
) -> tuple[OutputLayer, VocabularySubset | None]:
    """Its layer, and what must be told who joins and leaves; a part of the vocabulary says itself how it is searched."""
    if vocabulary is None:
        return (FusedOutput if fused else PlainOutput)(model, banned), None
    subset = vocabulary.begin()
    return SubsetOutput(model, banned, vocabulary, subset), subset
