"""How much of the vocabulary a bundle's clusters activate: of all columns, and of those that decoding ever writes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet

QUANTILES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True)
class ActiveShares:
    """Of one direction's clusters; a cluster counts as often as training contexts fell into it, unless told otherwise."""

    label: str
    vocab: int
    clusters: int
    top: int
    contexts: int
    sentences: int
    emitted: int
    """Different tokens that dense decoding wrote of the training text."""
    mean: float
    """Active share of the vocabulary at batch 1: of a step's one context."""
    quantiles: dict[str, float]
    """Of the same: min, p50, p90, p99, max."""
    mean_of_clusters: float
    """Each cluster counted once."""
    batch_20: float
    """Expected share of the union for 20 rows, were their contexts drawn apart from each other."""

    @classmethod
    def of(cls, clusters: ClusterSet) -> ActiveShares:
        """Exact counts; nothing is decoded."""
        shares, members = clusters.shares, clusters.members.double()
        return cls(
            clusters.label,
            clusters.sets.vocab,
            len(clusters.sets),
            clusters.top,
            clusters.contexts,
            clusters.sentences,
            len(clusters.emitted),
            float((shares * members).sum() / members.sum()),
            _quantiles(shares, members),
            float(shares.mean()),
            expected_union(clusters, 20) / clusters.sets.vocab,
        )

    def of_emitted(self, share: float) -> float:
        """A share of the vocabulary as one of the tokens that dense decoding ever wrote; above 1 where more are active."""
        return share * self.vocab / self.emitted

    def as_json(self) -> dict[str, Any]:
        """Every field, and the mean as a share of the emitted tokens."""
        return asdict(self) | {
            "mean_of_emitted": self.of_emitted(self.mean),
            "batch_20_of_emitted": self.of_emitted(self.batch_20),
        }


def expected_union(clusters: ClusterSet, rows: int) -> float:
    """Columns expected in the union of so many rows, whose clusters are drawn apart from each other as training met them."""
    weights = clusters.members.double() / clusters.members.sum()
    each = weights.repeat_interleave(clusters.sets.sizes())
    active = torch.zeros(clusters.sets.vocab, dtype=torch.float64).index_add_(0, clusters.sets.columns.long(), each)
    return float((1.0 - (1.0 - active.clamp(max=1.0)) ** rows).sum())


def _quantiles(shares: Tensor, members: Tensor) -> dict[str, float]:
    """The least share that so much of the contexts does not exceed."""
    shares, order = shares.sort()
    reached = members[order].cumsum(0) / members.sum()
    places = torch.searchsorted(reached, torch.tensor(list(QUANTILES.values()), dtype=torch.float64) - 1e-12)
    return dict(zip(QUANTILES, shares[places.clamp(max=len(shares) - 1)].tolist(), strict=True))
