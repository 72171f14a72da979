"""Skips files of tests whose optional packages are not installed, and imports none of them.

`pytest.importorskip` would import them in each worker while tests are collected: scikit-learn alone takes more than a second.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def skip_file_without(package: str, extra: str) -> None:
    """Skip the file of tests that calls this unless the package, which simnmt[extra] installs, can be found."""
    if find_spec(package) is None:
        pytest.skip(f"the extra packages of simnmt[{extra}] are not installed", allow_module_level=True)
