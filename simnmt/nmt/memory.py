"""Tell a lack of memory from other faults, in whichever way a library says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from simnmt.nmt.errors import OutOfMemory

ResultT = TypeVar("ResultT")

_SAID = ("out of memory", "can't allocate memory", "bad_alloc", "ALLOC_FAILED", "Storage size calculation overflowed")
"""torch on CUDA and CTranslate2; torch's DefaultCPUAllocator; the C++ library; cuBLAS and cuDNN; torch on more than 2**63
bytes."""


def within_memory(device: str, do: Callable[[], ResultT]) -> ResultT:
    """What `do` returns; where memory is short `OutOfMemory`, raised once everything that `do` held is let go."""
    try:
        return do()
    except MemoryError:
        pass
    except RuntimeError as error:
        if not any(said in str(error) for said in _SAID):
            raise
    # Not in the handler, whose exception keeps the frames, and they the tensors.
    raise OutOfMemory(f"{device} has too little memory for this work (try a smaller batch, beam or length)")
