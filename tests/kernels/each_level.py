"""Tests at every level that this box runs, and at none: the fallbacks."""

from __future__ import annotations

import pytest

from simnmt.kernels import native_library
from simnmt.kernels.native_library import LEVELS, NONE, level_name, native_at

ALL = (*LEVELS, NONE)

each_level = pytest.mark.parametrize(
    "level",
    [
        pytest.param(
            level,
            marks=pytest.mark.skipif(
                level_name(level) != level, reason=f"this processor or build has no kernels of level {level}"
            ),
        )
        for level in ALL
    ],
)


def forbid_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if it requests compiled kernels: C must not be compared with itself."""

    def load(asked: str | None = None, **others: object) -> None:
        assert asked == NONE, "compiled kernels were requested"

    native_at.cache_clear()
    monkeypatch.setattr(native_library, "load", load)
