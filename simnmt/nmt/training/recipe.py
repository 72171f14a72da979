"""The settings that determine the trained weights, and the budget that ends a training."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from simnmt.nmt.architecture import ARCHITECTURES, Architecture, TransformerArchitecture, architecture_of, read_architecture
from simnmt.nmt.errors import TrainingError

DEFAULT_VOCAB = 8_000
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that the weights depend on beside the text; the same recipe gives the same weights on the same machine."""

    architecture: Architecture
    seed: int = 1
    heldout: int = 1_000
    """Pairs set aside to choose the weights by, and as many to judge them."""
    batch_tokens: int = 1_024
    """Most tokens of a batch's longer side, padding included."""
    max_tokens: int = 100
    """Longer sentences are not trained on."""
    peak_rate: float = 2e-3
    """Adam's learning rate at the end of the warm-up; from there it falls with the square root of the steps."""
    warmup_steps: int = 500
    label_smoothing: float = 0.1
    """Probability that is spread over the whole vocabulary."""
    dropout: float = 0.1
    """Of the token vectors, and of what the vocabulary is multiplied with."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of matrix products; the weights and the loss are float32 all the same."""
    clip_norm: float = 1.0
    """Longer gradients are shortened to this norm."""
    validate_every: int = 500
    """Steps between two looks at the development part; the best weights seen there are kept."""

    def rate(self, step: int) -> float:
        """The learning rate of a step, from 1: linear warm-up, then the inverse square root."""
        return self.peak_rate * min(step / self.warmup_steps, math.sqrt(self.warmup_steps / step))

    def as_json(self) -> dict[str, Any]:
        """Every field; the architecture as its file would say it."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "architecture"}
        return {"architecture": self.architecture.model_dump(mode="json"), **fields}


@dataclass(frozen=True, slots=True)
class Budget:
    """When a training ends, all its sittings together: by whichever comes first; None bounds nothing."""

    epochs: float | None = None
    steps: int | None = None
    minutes: float | None = None
    """Of training and of looks at the development part."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise TrainingError(f"--{name} {value}: not a length of time", remedy="give a number above 0")

    def used(self, *, epochs: float, steps: int, seconds: float) -> float:
        """The share that is used up, 1 and above when all is; 0 for a budget without bounds."""
        spent = ((epochs, self.epochs), (steps, self.steps), (seconds / 60.0, self.minutes))
        shares = [done / bound if bound else 1.0 for done, bound in spent if bound is not None]
        return max(shares, default=0.0)


DEFAULT_BUDGET = Budget(epochs=10.0)


def recipe_for(model: str, *, vocab: int | None = None, **given: Any) -> Recipe:
    """The recipe of a named model, `gru`, `bilstm`, `sharp` or `transformer`, or of an architecture file, with fields replaced.

    `vocab`: subwords a side, both together for a transformer; a file states its own. What is None in `given` keeps its default.

    Raises `TrainingError`, and `NmtError` for a file that is no architecture.
    """
    size = DEFAULT_VOCAB if vocab is None else vocab
    small = SMALL.get(model)
    if small is not None:
        architecture = architecture_of(small.model_dump() | _sizes(small, size))
    else:
        architecture = _from_file(model, vocab)
    kept = {name: value for name, value in given.items() if value is not None}
    by_kind: dict[str, Any] = {"peak_rate": 1e-3, "warmup_steps": 1_000} if architecture.kind == "transformer" else {}
    recipe = Recipe(architecture, **(by_kind | kept))
    for name, least in _LEAST.items():
        if getattr(recipe, name) < least:
            raise TrainingError(f"{name} is {getattr(recipe, name)}", remedy=f"give {least} or more")
    if recipe.precision not in PRECISIONS:
        raise TrainingError(f"no precision {recipe.precision!r}", remedy=f"known: {', '.join(PRECISIONS)}")
    if not 0.0 <= recipe.dropout < 1.0:
        raise TrainingError(f"a dropout of {recipe.dropout}", remedy="give a share of 0 or more, below 1")
    if not 0.0 < recipe.peak_rate < math.inf:
        raise TrainingError(f"a learning rate of {recipe.peak_rate}", remedy="give one above 0, such as 0.002")
    longest = architecture.max_positions
    return recipe if longest is None else replace(recipe, max_tokens=min(recipe.max_tokens, longest))


_LEAST = {"seed": 0, "heldout": 1, "batch_tokens": 1, "max_tokens": 2, "warmup_steps": 1, "validate_every": 1}

SMALL: dict[str, Architecture] = {
    "gru": ARCHITECTURES["gru"],
    "bilstm": ARCHITECTURES["bilstm"],
    "sharp": ARCHITECTURES["sharp"],
    "transformer": TransformerArchitecture(
        kind="transformer", encoder_layers=3, decoder_layers=3, d_model=256, heads=4, ffn=1_024, vocab=DEFAULT_VOCAB
    ),
}
"""What a name stands for, the vocabulary aside."""


def _from_file(model: str, vocab: int | None) -> Architecture:
    if not any(sign in model for sign in "./\\"):
        raise TrainingError(f"no model {model!r}", remedy=f"known: {', '.join(SMALL)}, or name an architecture file")
    architecture = read_architecture(model)
    if vocab is not None and {vocab} != {architecture.src_vocab, architecture.tgt_vocab}:
        raise TrainingError(f"--vocab {vocab} is not what the architecture says", path=model, remedy="leave --vocab out")
    tokens = (architecture.pad_token, architecture.unk_token, architecture.eos_token)
    if len(set(tokens)) < 3 or architecture.start_token in tokens[1:]:
        what = "two of pad_token, unk_token, eos_token and start_token are the same"
        raise TrainingError(what, path=model, remedy="only pad_token and start_token may be")
    return architecture


def _sizes(architecture: Architecture, vocab: int) -> dict[str, int]:
    if isinstance(architecture, TransformerArchitecture):
        return {"vocab": vocab}
    return {"src_vocab": vocab, "tgt_vocab": vocab}
