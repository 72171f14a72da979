"""Errors of models and trainings: unusable input, a missing package, too little memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from simnmt.base.errors import InputError, SimnmtError


class NmtError(InputError):
    """A model, a checkpoint or a request to an engine that cannot be used: says which, and the remedy."""


class OutOfMemory(SimnmtError):
    """The device has no memory left for this work; the engine that raised it stays usable for smaller work."""


def need(package: str) -> Any:
    """Import an optional package; raises `NmtError` with the remedy where it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise NmtError(f"this needs the package {package}", remedy="pip install 'simnmt[models]'") from None


ResultT = TypeVar("ResultT")

_MESSAGES = ("out of memory", "can't allocate memory", "bad_alloc", "ALLOC_FAILED", "Storage size calculation overflowed")
"""torch on CUDA and CTranslate2; torch's DefaultCPUAllocator; the C++ library; cuBLAS and cuDNN; torch on more than 2**63
bytes."""


def within_memory(device: str, do: Callable[[], ResultT]) -> ResultT:
    """What `do` returns; where memory is short `OutOfMemory`, raised once everything that `do` held is let go."""
    try:
        return do()
    except MemoryError:
        pass
    except RuntimeError as error:
        if not any(message in str(error) for message in _MESSAGES):
            raise
    # Not in the handler, whose exception keeps the frames, and they the tensors.
    raise OutOfMemory(f"{device} has too little memory for this work (try a smaller batch, beam or length)")


class TrainingError(NmtError):
    """A corpus, a recipe or a folder that nothing can be trained with: says which, and the remedy."""


def need_packages() -> None:
    """See that all is installed that training takes, before anything long begins; raises `NmtError`."""
    for package in ("torch", "transformers", "sentencepiece", "sacrebleu"):
        need(package)
