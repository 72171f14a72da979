"""From a name, an architecture file or a folder to a model that can be decoded and trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simnmt.nmt.architecture import Architecture
from simnmt.nmt.marian import MarianModel
from simnmt.nmt.recurrent import RecurrentModel

TranslationModel = RecurrentModel | MarianModel
"""Both are torch modules, step models, and take `forward(src, src_lengths, tgt_in) -> logits [batch, tgt_len, vocab]`."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, and where it came from."""

    name: str
    """The name or path it was loaded by."""
    model: TranslationModel
    architecture: Architecture
    weights: Literal["random", "checkpoint"]


def build_model(architecture: Architecture, *, seed: int = 0) -> TranslationModel:
    """A model with random float32 weights drawn from `seed`, on the CPU; the global generator is left as it was."""
    raise NotImplementedError


def load_model(model: str, *, seed: int = 0) -> LoadedModel:
    """Load by name, architecture file, own checkpoint folder or Hugging Face Marian folder; raises `NmtError`."""
    raise NotImplementedError
