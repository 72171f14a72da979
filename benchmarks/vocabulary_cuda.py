"""The output layer's active columns on a GPU beside all columns: `python -m benchmarks.vocabulary_cuda --json`.

What `simnmt vocab bench --device cuda --dtype float16` measures at the sizes of the paper (FVP-15): V = 250,000 and 128,000,
width 1,024, 20 sentences of beam 2 (40 rows) and a single row, 2,000 clusters. Whole steps by torch's operations, from the
nearest centroid to the search; the clock is read when the GPU has done all, since a step waits for its own union anyway. Asked
is `LEAST_RATIO` over dense up to `MOST_SHARE` active at 40 rows, wherever assignment, union and scatter take less than half the
dense time, and a ratio that falls with the share; else the break-even is told. Unmeasured so far: no GPU was at hand when this
was written. `--device cpu` runs the same code: take a small `--vocab`, and believe no time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from simnmt.calibrate.projection_bench import ProjectionBench, Setting
from simnmt.calibrate.vocabulary_bench import TYPES, vocabulary_bench

VOCABS, WIDTH, ROWS = (128_000, 250_000), 1_024, (1, 40)
LEAST_RATIO, MOST_SHARE = 1.5, 0.15
JUDGED_ROWS = 40
NOISE = 0.05
"""By which a ratio may rise with the share and still be said to fall."""


def missed(done: ProjectionBench) -> list[str]:
    """What was asked and is not so."""
    found = []
    for vocab in done.setting.vocabs:
        steps = sorted(
            (step for step in done.steps if step.vocab == vocab and step.rows == JUDGED_ROWS), key=lambda step: step.share
        )
        found += [
            f"V {vocab:,}, {100 * step.share:.1f} % active: {step.ratios['columns']:.2f} times as fast as dense"
            for step in steps
            if step.share <= MOST_SHARE and step.overhead_share < 0.5 and step.ratios["columns"] <= LEAST_RATIO
        ]
        for less, more in pairwise(steps):
            if more.ratios["columns"] > (1.0 + NOISE) * less.ratios["columns"]:
                found.append(f"V {vocab:,}: faster with {100 * more.share:.1f} % active than with {100 * less.share:.1f} %")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, action="append", help="default: 128,000 and 250,000")
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--dtype", choices=list(TYPES), default="float16")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    given = parser.parse_args(arguments)
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU here")
    setting = Setting(
        vocabs=tuple(given.vocab or VOCABS),
        widths=(given.width,),
        rows=ROWS,
        heldout_rows=(20,),
        rounds=given.rounds,
        device=given.device,
        dtype=given.dtype,
    )
    done = vocabulary_bench(setting)
    wrong = missed(done)
    if given.json:
        print(json.dumps(done.model_dump(mode="json") | {"missed": wrong}, indent=1, allow_nan=False))
        return
    print(done.box)
    for step in done.steps:
        size = f"V {step.vocab:,}, {step.rows} rows, {100 * step.share:.1f} % active"
        print(
            f"{size:<38} dense {1e6 * step.dense_s:9.1f} us  columns {1e6 * step.columns_s:9.1f} us  "
            f"{step.ratios['columns']:6.2f} times as fast, scattered {step.ratios['scattered']:6.2f}; assignment, union and "
            f"scatter {100 * step.overhead_share:.0f} % of dense"
        )
    for each in done.break_even:
        print(", ".join(f"{name} {value}" for name, value in each))
    error: Any = done.heldout_error
    print(f"the fitted cost is off by {100 * error:.1f} % on steps that were not fitted")
    print("\n".join(["not as asked:", *wrong] if wrong else ["all is as asked"]))


if __name__ == "__main__":
    main()
