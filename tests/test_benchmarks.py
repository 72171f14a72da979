"""Nothing but this runs every benchmark's imports: three programs had lost a function that they used."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OF_OTHER_ENVIRONMENTS = {"copying_packages", "random_gguf"}
PROGRAMS = [path for path in sorted((ROOT / "benchmarks").rglob("*.py")) if path.stem not in OF_OTHER_ENVIRONMENTS]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_benchmark_can_be_imported(path: Path) -> None:
    import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
