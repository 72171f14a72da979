"""Which compiled level of the native kernels a processor may run, and which it does run."""

from __future__ import annotations

from collections.abc import Collection

from simnmt.kernels.compile import LEVEL_FLAGS
from simnmt.kernels.errors import KernelLevelError
from simnmt.names import did_you_mean

LEVELS = tuple(LEVEL_FLAGS)
"""The widest first."""
VARIABLE = "SIMNMT_KERNELS"
"""Environment variable that names the widest level to be used, or `none`."""
NONE = "none"
"""What the variable, a `level` argument and what is printed call the fallbacks."""
AVX2, AVX512 = 1, 2
"""Bits of what `simnmt_features` of the library answers."""


def supported(features: int) -> tuple[str, ...]:
    """Levels whose every instruction the processor has and the operating system saves, the widest first."""
    has = {"avx512": features & AVX2 and features & AVX512, "avx2": features & AVX2, "portable": True}
    return tuple(level for level in LEVELS if has[level])


def choose(features: int, compiled: Collection[str], asked: str | None, *, named: str = "level") -> str | None:
    """The widest level that is supported, compiled and no wider than what is asked for; None for no native kernel at all.

    `asked` is a mask that can only narrow, never raise above the processor; None: no mask. Raises `KernelLevelError` for a name
    that is no level, which says where it was `named`: by an argument, or by SIMNMT_KERNELS.
    """
    if asked == NONE:
        return None
    if asked is not None and asked not in LEVELS:
        remedy = did_you_mean(str(asked).strip(), (*LEVELS, NONE), f"one of {', '.join(LEVELS)} or {NONE}")
        raise KernelLevelError(f"{named}={asked!r}: no such level of kernels", remedy=remedy)
    within = LEVELS if asked is None else LEVELS[LEVELS.index(asked) :]
    return next((level for level in supported(features) if level in within and level in compiled), None)
