"""The output layer over the active columns alone: their products go to the fused kernel as they are (FVP-07, XP-02)."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from simnmt.kernels.errors import KernelError
from simnmt.kernels.gathered import gathered_products
from simnmt.kernels.output_layer import Best, fused_argmax, fused_best
from simnmt.kernels.scatter import scatter
from simnmt.nmt.banned import Banned
from simnmt.nmt.errors import NmtError
from simnmt.nmt.masked_bias import MaskedBias
from simnmt.nmt.output_layer import PlainOutput
from simnmt.nmt.selection import largest
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.product_choice import ProductChoice
from simnmt.nmt.vocabulary.subset import Active, RestrictedVocabulary, VocabularySubset

_NEVER = float("-inf")
_MOST_BANNED = 2
"""Padding and the end."""


class SubsetOutput:
    """See `OutputLayer`: all tokens but the active ones are impossible.

    Where fewer are active than are asked for, the rest are end tokens with a sum of minus infinity. Raises `NmtError` where a
    row has no token left to choose, or logits that are no numbers.
    """

    def __init__(self, model: StepModel, banned: Banned, vocabulary: RestrictedVocabulary, subset: VocabularySubset) -> None:
        """`subset`: the decoder's own, of `vocabulary`. Raises `NmtError` for the vocabulary of another model."""
        vocabulary.check(model)
        self._model, self._banned, self._vocabulary, self._subset = model, banned, vocabulary, subset
        self._weight = model.weight.detach()
        self._choice = ProductChoice(vocabulary.cost, *self._weight.shape)
        bias = model.bias
        self._plain_bias = None if bias is None else bias.detach().float().contiguous()
        self._bias = MaskedBias(model, banned)
        self._plain = PlainOutput(model, banned)

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

    def likeliest(self, projected: Any) -> Tensor:
        """See `OutputLayer`."""
        if self._vocabulary.scatter:
            return self._plain.likeliest(projected)
        tokens: Tensor = projected
        return tokens

    def likeliest_scored(self, projected: Any) -> tuple[Tensor, Tensor]:
        """See `OutputLayer`."""
        if self._vocabulary.scatter:
            return self._plain.likeliest_scored(projected)
        return projected.columns[:, 0], projected.log_probs[:, 0]

    def largest_sums(self, projected: Any, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """See `OutputLayer`."""
        if self._vocabulary.scatter:
            sums, rows, tokens = self._plain.largest_sums(projected, scores, count)
        else:
            sums, rows, tokens = self._largest_of_best(projected, scores, count)
        # Which impossible token comes first is nobody's choice, but what it leads to would take part in the next union.
        impossible = sums == _NEVER
        return sums, rows.masked_fill(impossible, 0), tokens.masked_fill(impossible, self._banned.eos)

    def _largest_of_best(self, best: Best, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        sentences, own = len(scores), best.columns.shape[1]
        sums = (best.log_probs + scores.view(-1, 1)).view(sentences, -1)
        if sums.shape[1] < count:
            short = count - sums.shape[1]
            sums, places = torch.nn.functional.pad(sums, (0, short), value=_NEVER).sort(dim=1, descending=True, stable=True)
            places = places.clamp(max=best.columns.numel() // sentences - 1)
        else:
            sums, places = sums.topk(count, dim=1)
        tokens = best.columns.view(sentences, -1).gather(1, places)
        return sums, places.div(own, rounding_mode="floor"), tokens

    def _products(self, hidden: Tensor, active: Active) -> Tensor:
        columns, cache = active.columns, self._vocabulary.cache
        if cache is not None and len(columns):
            pays = partial(self._choice.pays, len(columns), len(hidden))
            copy = cache.get(self._weight, columns, active.key, pays)
            if copy is not None:
                return copy.products(hidden)
        way = self._choice.way(len(columns), len(hidden))
        if way == "dense":
            _, products = next(iter(self._model.products(hidden)))
            return products.float().index_select(1, columns)
        return gathered_products(self._weight, hidden, columns, way=way)

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
            found = fused_best(products, bias, min(best, len(columns)), threads=threads)
        except KernelError as error:
            self._check_some_left(columns, len(products))
            raise NmtError(f"the model's outputs are no numbers to choose among: {error}") from None
        return Best(columns[found.columns].long(), found.values, found.log_total)

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
