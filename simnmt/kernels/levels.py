"""Which compiled level of the native kernels a processor may run, and which it does run."""

from __future__ import annotations

from collections.abc import Collection

from simnmt.kernels.errors import KernelLevelError

LEVELS = ("avx512", "avx2", "portable")
"""The widest first."""
VARIABLE = "SIMNMT_KERNELS"
"""Environment variable that names the widest level to be used, or `none`."""
NONE = "none"
AVX2, AVX512 = 1, 2
"""Bits of what `simnmt_features` of the library answers."""


def supported(features: int) -> tuple[str, ...]:
    """Levels whose every instruction the processor has and the operating system saves, the widest first."""
    has = {"avx512": features & AVX2 and features & AVX512, "avx2": features & AVX2, "portable": True}
    return tuple(level for level in LEVELS if has[level])


def choose(features: int, compiled: Collection[str], asked: str | None) -> str | None:
    """The widest level that is supported, compiled and no wider than what is asked for; None for no native kernel at all.

    `asked` is what SIMNMT_KERNELS says: a mask that can only narrow, never raise above the processor. Raises
    `KernelLevelError` for a name that is no level.
    """
    if asked == NONE:
        return None
    if asked and asked not in LEVELS:
        raise KernelLevelError(f"{VARIABLE}={asked}: no such level of kernels", remedy=f"one of {', '.join(LEVELS)} or {NONE}")
    within = LEVELS[LEVELS.index(asked) :] if asked else LEVELS
    return next((level for level in supported(features) if level in within and level in compiled), None)
