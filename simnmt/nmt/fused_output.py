"""The fused output layer: bias, softmax and search in one pass over the products, while these are in the cache (FNI-03 to 06).

On the CPU the product itself goes block by block of columns. A block's products are searched before the next are made, so that
they never reach the memory: of 640 rows with 85,000 columns all together are 218 MB.
"""

from __future__ import annotations

import torch
from torch import Tensor

from simnmt.kernels.errors import KernelError
from simnmt.kernels.output_layer import Best, fused_argmax, fused_best
from simnmt.nmt.banned import Banned
from simnmt.nmt.errors import NmtError
from simnmt.nmt.masked_bias import MaskedBias
from simnmt.nmt.step_model import StepModel

_LEAST_COLUMNS, _BLOCK_VALUES = 8_192, 2**20
"""A block has so many columns at least, and of few rows so many products (4 MB). Shorter ones are searched more slowly, since
the search begins anew with each; longer ones of many rows leave the cache."""
_NEVER = float("-inf")


class FusedOutput:
    """See `OutputLayer`: the tokens and, to rounding, the scores of `PlainOutput`.

    `project` does all the work but the choice among a beam's rows, each of which needs no more than its own best (FNI-05).
    Raises `NmtError` where a row's logits are no numbers (FNI-07).
    """

    def __init__(self, model: StepModel, banned: Banned) -> None:
        self._model, self._banned = model, banned
        self._bias = MaskedBias(model, banned)

    def project(self, hidden: Tensor, best: int) -> Best | Tensor:
        """See `OutputLayer`; the tokens themselves where nothing else is asked for."""
        bias, found, ends = self._bias.now(), [], self._banned.ends
        threads = torch.get_num_threads() if hidden.device.type == "cpu" else 1
        try:
            for first, products in self._model.products(hidden, _block(hidden)):
                columns = products.shape[1]
                if ends is not None and 0 <= self._banned.eos - first < columns:
                    products[:, self._banned.eos - first].masked_fill_(ends, _NEVER)
                own_bias = None if bias is None else bias[first : first + columns]
                if best:
                    own = fused_best(products, own_bias, min(best, columns), threads=threads)
                else:
                    own = _largest(products, own_bias, threads)
                found.append(Best(own.columns + first, own.values, own.log_total) if first else own)
        except KernelError as error:
            raise NmtError(f"the model's outputs are no numbers to choose among: {error}") from None
        whole = found[0] if len(found) == 1 else _best_of(found, best)
        return whole if best else whole.columns[:, 0]

    def likeliest(self, projected: Tensor) -> Tensor:
        """See `OutputLayer`."""
        return projected

    def likeliest_scored(self, projected: Best) -> tuple[Tensor, Tensor]:
        """See `OutputLayer`."""
        return projected.columns[:, 0], projected.log_probs[:, 0]

    def largest_sums(self, projected: Best, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """See `OutputLayer`."""
        sentences, own = len(scores), projected.columns.shape[1]
        sums = (projected.log_probs + scores.view(-1, 1)).view(sentences, -1)
        sums, places = sums.topk(min(count, sums.shape[1]), dim=1)
        tokens = projected.columns.view(sentences, -1).gather(1, places)
        return sums, places.div(own, rounding_mode="floor"), tokens


def _block(hidden: Tensor) -> int | None:
    rows = len(hidden)
    # A single row's product is as fast whole.
    return max(_LEAST_COLUMNS, _BLOCK_VALUES // rows) if rows > 1 and hidden.device.type == "cpu" else None


def _largest(products: Tensor, bias: Tensor | None, threads: int) -> Best:
    """The best of each row without its probability: the sum is none."""
    columns = fused_argmax(products, bias, threads=threads)[:, None]
    values = products.gather(1, columns).float()
    return Best(columns, values if bias is None else values + bias[columns], torch.zeros_like(values[:, 0]))


def _best_of(blocks: list[Best], count: int) -> Best:
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
