"""What shapes the weights of an elastic classifier."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from simnmt.elastic.errors import ElasticError


@dataclass(frozen=True, slots=True)
class ElasticRecipe:
    """All that the weights depend on beside the task; raises `ElasticError` for what cannot be trained.

    The same recipe and task give the same weights on the same machine and number of threads, in however many sittings; with
    `minutes`, which the pace of the machine turns into steps, they differ.
    """

    layers: int = 12
    slices: int = 12
    width: int = 96
    ffn: int = 192
    vocab: int = 4000
    """Most subwords."""
    positions: int = 64
    """Most tokens of a text; longer ones are cut."""
    pooling: str = "mean"
    """`mean` over all tokens, or the `first` one's vector."""
    epochs: float | None = 7.0
    """Of SST-2's training part: where its dev part rose no more. On its test part eighteen do as well, in thrice the time."""
    minutes: float | None = None
    """Of training, all sittings together; takes the place of `epochs`."""
    batch_tokens: int = 700
    """Most of a batch, padding included."""
    rate: float = 7e-4
    """Greatest learning rate; reached after `warmup`, and from there falling to 0 as half a cosine."""
    embedding_rate: float = 5.0
    """By how much more the word vectors and the classifier learn."""
    warmup: float = 0.08
    """Share of the training."""
    dropout: float = 0.1
    embedding_dropout: float = 0.3
    """Of the word vectors, and of what the classifier reads."""
    word_dropout: float = 0.1
    """Share of tokens that are hidden behind the unknown one."""
    smoothing: float = 0.1
    """Probability that is spread over all classes."""
    decay: float = 0.01
    averaging: float = 0.998
    """Of the running mean of the weights, which is what is kept."""
    least_slices: float = 0.25
    """Share of the slices that a submodel drawn while training has at least."""
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("layers", "slices", "width", "ffn", "positions", "batch_tokens"):
            if getattr(self, name) < 1:
                raise _bad(name, getattr(self, name), "give 1 or more")
        if self.width % self.slices or self.ffn % self.slices or self.width % 2:
            raise ElasticError(
                f"a width of {self.width} and {self.ffn} neurons do not divide into {self.slices} slices",
                remedy=f"give an even --width and a --ffn that {self.slices} divides",
            )
        if self.positions < 2 or self.vocab < 8:
            raise _bad(
                "positions" if self.positions < 2 else "vocab",
                self.positions if self.positions < 2 else self.vocab,
                "give more",
            )
        if self.pooling not in ("mean", "first"):
            raise _bad("pooling", self.pooling, "known: mean, first")
        for name in ("dropout", "embedding_dropout", "word_dropout", "smoothing", "warmup", "averaging", "least_slices"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise _bad(name, getattr(self, name), "give a share of 0 or more, below 1")
        for name in ("rate", "embedding_rate", "epochs", "minutes"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < math.inf:
                raise _bad(name, value, "give a number above 0")
        if self.epochs is None and self.minutes is None:
            raise ElasticError("nothing ends the training", remedy="give --epochs or --minutes")

    def rate_at(self, share: float) -> float:
        """The learning rate when `share` of the training is done."""
        if share < self.warmup:
            return self.rate * share / self.warmup
        fallen = min((share - self.warmup) / (1.0 - self.warmup), 1.0)
        return self.rate * 0.5 * (1.0 + math.cos(math.pi * fallen))

    def as_json(self) -> dict[str, Any]:
        """Every field."""
        return asdict(self)


def _bad(name: str, value: object, remedy: str) -> ElasticError:
    return ElasticError(f"--{name.replace('_', '-')} {value} cannot be", remedy=remedy)


def recipe_with(**given: Any) -> ElasticRecipe:
    """The usual recipe with fields replaced; what is None keeps its default. `minutes` alone takes the place of `epochs`."""
    kept = {name: value for name, value in given.items() if value is not None}
    if "minutes" in kept and "epochs" in kept:
        raise ElasticError("--epochs beside --minutes", remedy="give one of them")
    until: dict[str, Any] = {"epochs": None} if "minutes" in kept else {}
    return ElasticRecipe(**until, **kept)
