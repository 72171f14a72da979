"""Tests of kernels as compiled, and by the references in numpy and torch."""

from __future__ import annotations

import pytest

from simnmt.kernels.native_library import native

each_implementation = pytest.mark.usefixtures("implementation")
needs_compiled = pytest.mark.skipif(native() is None, reason="nothing was compiled: there was no C compiler")
