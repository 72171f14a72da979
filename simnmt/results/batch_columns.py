"""What the summary says of a batched device: its batches, its pace, and how long requests wait there."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.results.batches import BatchAccount

FEW = 8
"""Active sentences below which the paper calls a batch small (FNI-12, figure 8)."""
SHARES = ("full", f"below_{FEW}", "padding", "busy")
"""What is said as `DEVICE_..._share`."""


def batch_columns(
    device: str,
    servers: int,
    account: BatchAccount | None,
    makespan_s: float,
    queue_s: NDArray[np.floating[Any]],
    first_token_s: NDArray[np.floating[Any]],
) -> dict[str, float | None]:
    """The numbers of one batched device in one run; all None without an account, and each that nothing tells.

    `makespan_s`: how long the run lasted; `queue_s`, `first_token_s`: of the requests that were executed there.
    """
    said: Mapping[str, float] = {} if account is None else _numbers(account, servers, makespan_s, queue_s, first_token_s)
    return {f"{device}_{name}": _known(said.get(name, float("nan"))) for name in COLUMNS}


COLUMNS = (
    "mean_batch",
    *(f"{kind}_share" for kind in SHARES),
    "mean_queue_s",
    "first_token_mean_s",
    "first_token_p95_s",
    "sentences_per_s",
    "tokens_per_s",
    "busy_sentences_per_s",
    "busy_tokens_per_s",
)
"""Names behind that of the device."""


def _numbers(
    account: BatchAccount,
    servers: int,
    makespan_s: float,
    queue_s: NDArray[np.floating[Any]],
    first_token_s: NDArray[np.floating[Any]],
) -> dict[str, float]:
    begun = first_token_s[~np.isnan(first_token_s)]
    return {
        "mean_batch": account.mean_active,
        "full_share": account.share_full,
        f"below_{FEW}_share": account.share_below(FEW),
        "padding_share": account.padding_share,
        "busy_share": account.busy_s / (servers * makespan_s),
        "sentences_per_s": account.sentences / makespan_s,
        "tokens_per_s": account.tokens / makespan_s,
        "busy_sentences_per_s": account.sentences / account.busy_s if account.busy_s else float("nan"),
        "busy_tokens_per_s": account.tokens / account.busy_s if account.busy_s else float("nan"),
        **({"mean_queue_s": float(queue_s.mean())} if queue_s.size else {}),
        **(
            {"first_token_mean_s": float(begun.mean()), "first_token_p95_s": float(np.quantile(begun, 0.95))}
            if begun.size
            else {}
        ),
    }


def _known(value: float) -> float | None:
    return None if isnan(value) else value
