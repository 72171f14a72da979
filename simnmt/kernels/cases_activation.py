"""The cases of tanh and sigmoid: table and polynomial, against the library's and against torch's (SHARP-08)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from simnmt.kernels.activations import ERROR_BOUNDS, Activation, Function, activate
from simnmt.kernels.contract import Case, Comparison, Contest, Work
from simnmt.kernels.interleaved import Run
from simnmt.kernels.native_at import level_name

COUNT = 6 * 3072
"""The gates of a beam of 6, width 1024."""
LIBRARY, TORCH = "the C library", "torch"


def activation_cases(function: Function, threads: int, count: int = COUNT) -> Iterator[Case]:
    """Table and polynomial take turns with both baselines in one contest."""
    yield Case(f"{count:,} values", "hot", level_name(), lambda: _contest(function, count))


def _contest(function: Function, count: int) -> Contest:
    x = np.random.default_rng(1).normal(0.0, 3.0, count).astype(np.float32)
    out, tensor, result = np.empty_like(x), torch.from_numpy(x), torch.empty(count)
    by_torch = torch.tanh if function == "tanh" else torch.sigmoid
    exact = by_torch(tensor.double()).numpy()

    def of(way: Activation) -> Run:
        return lambda: activate(function, x, way, out)

    ways: dict[str, Activation] = {"table": "table", "linear table": "linear_table", "polynomial": "polynomial"}
    runs: dict[str, Run] = {name: of(way) for name, way in ways.items()}
    runs |= {LIBRARY: of("library"), TORCH: lambda: by_torch(tensor, out=result)}
    comparisons = []
    for name, way in ways.items():
        error = float(np.abs(activate(function, x, way) - exact).max())
        for baseline in (LIBRARY, TORCH, *(["polynomial"] if name == "table" else [])):
            bound = ERROR_BOUNDS[function, way]
            comparisons.append(
                Comparison(name, baseline, (baseline,), Work(8 * count), what=name, error=error, error_bound=bound)
            )
    return Contest(runs, tuple(comparisons))
