"""The hooks of docs/hooks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def module_of(name: str, path: Path) -> ModuleType:
    """Import a file that belongs to no package."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def pages() -> ModuleType:
    return module_of("simnmt_docs_pages", ROOT / "docs" / "hooks" / "pages.py")


@pytest.fixture(scope="session")
def navigation() -> ModuleType:
    return module_of("simnmt_docs_navigation", ROOT / "docs" / "hooks" / "navigation.py")


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    return module_of("simnmt_docs_reference", ROOT / "docs" / "hooks" / "reference.py")
