"""Errors of models and trainings: unusable input, a missing package, too little memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from simnmt.base.errors import InputError, SimnmtError
from simnmt.base.packages import install_command


class NmtError(InputError):
    """A model, a checkpoint or a request to an engine that cannot be used."""


class TrainingError(NmtError):
    """A corpus, a recipe or a folder that cannot be used for training."""


class OutOfMemory(SimnmtError):
    """The device has too little memory for this work; the engine stays usable for smaller work."""


def need(package: str) -> Any:
    """Import an optional package; raises `NmtError` with the remedy if it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise NmtError(f"this needs the package {package}", remedy=install_command("models")) from None


def need_packages() -> None:
    """Raise `NmtError` unless all packages of training are installed; called before anything long begins."""
    for package in ("torch", "transformers", "sentencepiece", "sacrebleu"):
        need(package)


ResultT = TypeVar("ResultT")

_MESSAGES = ("out of memory", "can't allocate memory", "bad_alloc", "ALLOC_FAILED", "Storage size calculation overflowed")
"""Parts of messages of torch on CUDA and CTranslate2; torch on the CPU; the C++ library; cuBLAS; torch on over 2**63 bytes."""


def within_memory(device: str, do: Callable[[], ResultT]) -> ResultT:
    """Return the result of `do`; raises `OutOfMemory` if memory is short, after everything that `do` held is freed."""
    try:
        return do()
    except MemoryError:
        pass
    except RuntimeError as error:
        if not any(message in str(error) for message in _MESSAGES):
            raise
    # Not in the handler: its exception keeps the frames, and these the tensors.
    raise OutOfMemory(f"{device} has too little memory for this work (try a smaller batch, beam or length)")
