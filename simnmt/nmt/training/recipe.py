"""The inputs of a training: parallel text, cleaned and split, and the recipe of the weights."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from simnmt.base.configuration import checked_dataclass
from simnmt.base.random_streams import stream
from simnmt.nmt.architecture import (
    ARCHITECTURES,
    Architecture,
    LlamaArchitecture,
    TransformerArchitecture,
    architecture_of,
    read_architecture,
)
from simnmt.nmt.errors import TrainingError
from simnmt.workload.corpus import text_pairs

Pair = tuple[str, str]

LEAST_PAIRS = 32
"""Least number of pairs; a corpus of three lines is a mistake."""


@dataclass(frozen=True, slots=True)
class CorpusFiles:
    """The files of a parallel text, in any form of docs/reference/corpora.md."""

    src: Path
    """The sources; without `tgt` a file of two columns or, with `keys`, of JSON Lines."""
    tgt: Path | None = None
    """The targets; line i translates line i."""
    keys: tuple[str, str] | None = None
    """The keys of the two texts in JSON Lines."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """The three parts of a corpus; no source or target of the small parts occurs in the large one."""

    train: list[Pair]
    dev: list[Pair]
    """The development part, which chooses the weights that are kept."""
    heldout: list[Pair]
    """The part that judges these weights, once, at the end."""
    counts: dict[str, int]
    """Pairs of the files (`read`), of each part, and those dropped: `blank` on a side, `repeated`, `shared_with_heldout`."""
    sha256: str
    """Digest of the pairs as read, whatever their files."""


def read_training_corpus(text: CorpusFiles, *, heldout: int, seed: int) -> Corpus:
    """Read parallel text and split it; the same pairs and seed give the same parts.

    `heldout`: pairs in each of the small parts. White space is collapsed.

    Raises `CorpusError` for files that cannot be read, and `TrainingError` for too little text.
    """
    digest = hashlib.sha256()
    seen: dict[Pair, None] = {}
    read = blank = 0
    files = [text.src] if text.tgt is None else [text.src, text.tgt]
    for one, other in text_pairs(files, text.keys, kept=True):
        pair = " ".join(one.split()), " ".join(other.split())
        digest.update(f"{pair[0]}\t{pair[1]}\n".encode())
        read += 1
        if all(pair):
            seen[pair] = None
        else:
            blank += 1
    pairs = list(seen)
    wanted = 2 * heldout + max(LEAST_PAIRS, 2 * heldout)
    if len(pairs) < wanted:
        what = f"{len(pairs):,} different pairs, too few to set twice {heldout:,} aside and train on as many"
        raise TrainingError(what, path=text.src, remedy=f"give {wanted:,} pairs or more, or a smaller --heldout")
    order = stream(seed, 0, "held-out pairs").permutation(len(pairs)).tolist()
    small, apart = [pairs[index] for index in order[: 2 * heldout]], set(order[: 2 * heldout])
    # Neither side of a held-out pair may occur in the training part, in upper or lower case.
    sources, targets = ({text.casefold() for text in side} for side in zip(*small, strict=True))
    rest = [pair for index, pair in enumerate(pairs) if index not in apart]
    train = [pair for pair in rest if pair[0].casefold() not in sources and pair[1].casefold() not in targets]
    if len(train) < LEAST_PAIRS:
        what = f"{len(train):,} pairs are left to train on, the others share a side with the held-out ones"
        raise TrainingError(what, path=text.src, remedy="give more text, or a smaller --heldout")
    dropped = {"blank": blank, "repeated": read - blank - len(pairs), "shared_with_heldout": len(rest) - len(train)}
    counts = {"read": read, "train": len(train), "dev": heldout, "heldout": heldout, **dropped}
    return Corpus(train, small[:heldout], small[heldout:], counts, digest.hexdigest())


DEFAULT_VOCAB = 8_000
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
AboveZero = Annotated[float, Field(gt=0.0)]


@dataclass(frozen=True, slots=True)
class Recipe:
    """All settings on which the weights depend; the same recipe and text give the same weights on the same machine."""

    architecture: Architecture
    seed: Annotated[int, Field(ge=0)] = 1
    heldout: Positive = 1_000
    """Pairs set aside to choose the weights, and as many to judge them."""
    batch_tokens: Positive = 1_024
    """Most tokens of a batch's longer side, padding included."""
    max_tokens: Annotated[int, Field(ge=2)] = 100
    """Most tokens of a sentence; longer ones are left out."""
    peak_rate: AboveZero = 2e-3
    """Adam's learning rate at the end of the warm-up; from there it falls with the square root of the steps."""
    warmup_steps: Positive = 500
    label_smoothing: Share = 0.1
    """Probability that is distributed over the whole vocabulary."""
    dropout: Share = 0.1
    """Dropout of the token vectors, and of the input of the output layer."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Type of matrix products; the weights and the loss are float32."""
    clip_norm: AboveZero = 1.0
    """Largest norm of the gradient, to which longer ones are scaled."""
    validate_every: Positive = 500
    """Steps between two measurements of the development part; the best weights are kept."""

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, from 1: linear warm-up, then the inverse square root."""
        return self.peak_rate * min(step / self.warmup_steps, math.sqrt(self.warmup_steps / step))

    def as_json(self) -> dict[str, Any]:
        """Return every field; the architecture as in its file."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "architecture": self.architecture.model_dump(mode="json")
        }


SMALL: dict[str, Architecture] = {
    **{name: ARCHITECTURES[name] for name in ("gru", "bilstm", "sharp")},
    "transformer": TransformerArchitecture(
        kind="transformer", encoder_layers=3, decoder_layers=3, d_model=256, heads=4, ffn=1_024, vocab=DEFAULT_VOCAB
    ),
}
"""Architectures by name; the vocabulary is replaced."""


def recipe_for(model: str, *, vocab: int | None = None, **given: Any) -> Recipe:
    """Return the recipe of a named model (`gru`, `bilstm`, `sharp` or `transformer`) or of an architecture file.

    `vocab`: subwords per side, for a transformer of both together; a file states its own. `given`: further fields of the
    recipe; those that are None keep their default.

    Raises `TrainingError`, and `NmtError` for a file that is not an architecture.
    """
    if model in SMALL:
        size = DEFAULT_VOCAB if vocab is None else vocab
        sizes = {"vocab": size} if model == "transformer" else {"src_vocab": size, "tgt_vocab": size}
        architecture = architecture_of(SMALL[model].model_dump() | sizes)
    else:
        architecture = _from_file(model, vocab)
    fields: dict[str, Any] = {"architecture": architecture.model_dump(mode="json")}
    if isinstance(architecture, TransformerArchitecture):
        fields |= {"peak_rate": 1e-3, "warmup_steps": 1_000}
    try:
        recipe = checked_dataclass(Recipe, fields | {name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        raise TrainingError(f"the recipe: {error}") from None
    most = min(recipe.max_tokens, architecture.max_positions or recipe.max_tokens)
    return replace(recipe, architecture=architecture, max_tokens=most)


def _from_file(model: str, vocab: int | None) -> Architecture:
    if not any(sign in model for sign in "./\\"):
        raise TrainingError(f"no model {model!r}", remedy=f"known: {', '.join(SMALL)}, or name an architecture file")
    architecture = read_architecture(model)
    if architecture.multilingual or isinstance(architecture, LlamaArchitecture):
        what = f"no training of kind {architecture.kind}, whose published tokenisers are not learnt here"
        raise TrainingError(what, path=model, remedy="give another kind, such as transformer")
    if vocab is not None and {vocab} != {architecture.src_vocab, architecture.tgt_vocab}:
        raise TrainingError(f"--vocab {vocab} is not what the architecture says", path=model, remedy="leave --vocab out")
    return architecture
