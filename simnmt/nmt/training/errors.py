"""What can be wrong with a training, and packages that it needs."""

from __future__ import annotations

import importlib
from typing import Any

from simnmt.nmt.errors import NmtError


class TrainingError(NmtError):
    """A corpus, a recipe or a folder that nothing can be trained with: says which, and the remedy."""


def need(package: str) -> Any:
    """Import an optional package; raises `TrainingError` with the remedy where it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise TrainingError(f"this needs the package {package}", remedy="pip install 'simnmt[models]'") from None


def need_all() -> None:
    """See that all is installed that training takes, before anything long begins; raises `TrainingError`."""
    for package in ("torch", "transformers", "sentencepiece", "sacrebleu"):
        need(package)
