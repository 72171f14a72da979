"""Our own trained models on disk: a folder of architecture.json and model.safetensors, tokenizers and account beside them."""

from __future__ import annotations

import os

from torch import nn

from simnmt.nmt.architecture import Architecture

ARCHITECTURE_FILE, WEIGHTS_FILE = "architecture.json", "model.safetensors"
SOURCE_TOKENIZER, TARGET_TOKENIZER, TRAINING_FILE = "source.model", "target.model", "training.json"


def save_checkpoint(folder: str | os.PathLike[str], model: nn.Module, architecture: Architecture) -> None:
    """Write architecture and weights into a folder, made where missing; raises `NmtError` where it cannot be written."""
    raise NotImplementedError


def load_weights(folder: str | os.PathLike[str], model: nn.Module) -> None:
    """Fill a model with a folder's weights; raises `NmtError` where they are damaged or do not fit it."""
    raise NotImplementedError
