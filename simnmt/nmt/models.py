"""From a name, an architecture file or a folder to a model that can be decoded and trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from simnmt.names import did_you_mean
from simnmt.nmt.architecture import ARCHITECTURES, Architecture, RecurrentArchitecture, read_architecture
from simnmt.nmt.checkpoint import ARCHITECTURE_FILE, load_weights
from simnmt.nmt.errors import NmtError
from simnmt.nmt.hugging_face import load_hf
from simnmt.nmt.marian import MarianModel
from simnmt.nmt.recurrent import RecurrentModel
from simnmt.nmt.sharp_architecture import AttentionalArchitecture
from simnmt.nmt.sharp_model import AttentionalModel

TranslationModel = RecurrentModel | MarianModel | AttentionalModel
"""All are torch modules, step models, and take `forward(src, src_lengths, tgt_in) -> logits [batch, tgt_len, vocab]`."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, ready to decode, and where it came from."""

    name: str
    """The name or path it was loaded by."""
    model: TranslationModel
    architecture: Architecture
    weights: Literal["random", "checkpoint"]


def build_model(architecture: Architecture, *, seed: int = 0, dropout: float = 0.0) -> TranslationModel:
    """A model in training mode with random float32 weights drawn from `seed`, on the CPU.

    The global generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(architecture, RecurrentArchitecture):
            return RecurrentModel(architecture, dropout)
        if isinstance(architecture, AttentionalArchitecture):
            return AttentionalModel(architecture, dropout)
        return MarianModel(architecture, dropout=dropout)


def load_model(model: str, *, seed: int = 0) -> LoadedModel:
    """Load by name, architecture file, own checkpoint folder or Hugging Face Marian folder; raises `NmtError`.

    Names and architecture files get random weights drawn from `seed`.
    """
    path = Path(model)
    if model not in ARCHITECTURES and path.is_dir():
        if (path / ARCHITECTURE_FILE).is_file():
            architecture = read_architecture(path / ARCHITECTURE_FILE)
            trained = build_model(architecture)
            load_weights(path, trained)
            return LoadedModel(model, trained.eval(), architecture, "checkpoint")
        if (path / "config.json").is_file():
            marian = load_hf(path)
            return LoadedModel(model, marian, marian.architecture, "checkpoint")
        raise NmtError(f"holds neither {ARCHITECTURE_FILE} nor config.json", path=path, remedy="name a model's folder")
    if model not in ARCHITECTURES and not path.exists():
        known = f"known: {', '.join(ARCHITECTURES)}, or a file or folder that exists"
        raise NmtError(f"no model called {model}", remedy=did_you_mean(model, ARCHITECTURES, known))
    architecture = ARCHITECTURES[model] if model in ARCHITECTURES else read_architecture(path)
    return LoadedModel(model, build_model(architecture, seed=seed).eval(), architecture, "random")
