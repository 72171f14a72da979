"""Which measurements of the output layer stand beside the paper: files of `simnmt vocab bench --out`, shipped or named."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from simnmt import shipped
from simnmt.costs.projection_bench import ProjectionBench, read_bench
from simnmt.errors import InputError

PATTERN = "bench-*.json"
"""Of shipped ones, which lie beside the studies."""


def shipped_benches() -> list[Path]:
    """Their files, by name; none where none comes with simnmt."""
    return sorted((shipped.folder("calibration") / "vocabulary").glob(PATTERN))


def read_benches(paths: Iterable[Path]) -> list[ProjectionBench]:
    """Raises `BenchError` for a file that is none, and `InputError` for two of one box and type of weights."""
    found: dict[str, tuple[Path, ProjectionBench]] = {}
    for path in paths:
        bench = read_bench(path)
        before, _ = found.setdefault(name_of(bench), (path, bench))
        if before is not path:
            raise InputError(f"{before} and {path}: two measurements of {name_of(bench)}", remedy="name one of them")
    return [bench for _, bench in found.values()]


def name_of(bench: ProjectionBench) -> str:
    """Where and with what weights."""
    return bench.box if bench.setting.dtype == "float32" else f"{bench.box}, {bench.setting.dtype}"
