"""Heavy libraries are imported only where they are used; import-linter holds the floors of the rooms (pyproject.toml)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaigns.harness import deep

CHECKOUT = Path(__file__).parents[1]
HEAVY = {"numpy", "pandas", "simpy", "plotly", "scipy", "pyarrow", "pydantic", "torch"}


@pytest.mark.parametrize(("module", "unwanted"), [("simnmt", HEAVY), deep("simnmt.nmt.models", {"transformers"})])
def test_a_module_loads_no_heavy_library(module: str, unwanted: set[str]) -> None:
    """transformers takes 3 s, and engines of recurrent models do without it."""
    code = f"import sys, {module}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert not set(run.stdout.split()) & unwanted
