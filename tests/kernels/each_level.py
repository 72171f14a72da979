"""A test at every level that this box runs, and at none: the fallbacks."""

from __future__ import annotations

import pytest

from simnmt.kernels.native_library import LEVELS, NONE, level_name

ALL = (*LEVELS, NONE)

each_level = pytest.mark.parametrize(
    "level",
    [
        pytest.param(level, marks=pytest.mark.skipif(level_name(level) != level, reason=f"no kernels of level {level} here"))
        for level in ALL
    ],
)
