"""The output layer with all columns and with the active ones: stages apart, whole steps, break-even (FVP-09, FVP-15)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial

import torch

from simnmt.calibrate import busy
from simnmt.calibrate.box.describe import describe
from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.vocabulary.layer_steps import measured_steps
from simnmt.costs.projection_bench import BreakEven, ProjectionBench, Setting, StepTime
from simnmt.costs.projection_cost import ProjectionCost
from simnmt.costs.projection_fit import StagePoint
from simnmt.kernels.library_threads import library_threads
from simnmt.kernels.projection_setting import drawn_layer
from simnmt.kernels.projection_timing import clock_of, projection_cost

Progress = Callable[[int, int, str], None]
"""Called with what is done, what there is in all, and what comes next."""
DEVICES = ("cpu", "cuda")
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def check(setting: Setting) -> None:
    """Raises `CalibrationError` for what cannot be measured."""
    for name in ("vocabs", "widths", "rows", "shares"):
        if not getattr(setting, name):
            raise CalibrationError(f"no {name} to measure", remedy="name one at least")
    for name in ("vocabs", "widths", "rows", "heldout_rows", "clusters", "rounds", "threads"):
        given = getattr(setting, name)
        least = min(given, default=1) if isinstance(given, tuple) else given
        if least < 1:
            raise CalibrationError(f"{name.removesuffix('s')} {least}", remedy="give 1 or more")
    for share in (*setting.shares, *setting.heldout_shares):
        if not 0.0 < share <= 1.0:
            raise CalibrationError(f"{100 * share:g} % of the columns active", remedy="give more than 0 and up to 100")
    if setting.dtype not in TYPES:
        raise CalibrationError(f"no weights of type {setting.dtype}", remedy=f"take one of {', '.join(TYPES)}")
    if setting.device not in DEVICES:
        raise CalibrationError(f"no device {setting.device}", remedy=f"take {' or '.join(DEVICES)}")
    if setting.device == "cpu":
        _check_memory(setting)
    elif not torch.cuda.is_available():
        raise CalibrationError("torch sees no GPU here", remedy="leave --device out, or run it where a GPU is")


def _check_memory(setting: Setting) -> None:
    shares = sum(setting.shares) + sum(setting.heldout_shares)
    numbers = max(setting.vocabs) * max(setting.widths) * (1.0 + shares) + 2 * max(setting.rows) * max(setting.vocabs)
    free_bytes = describe(libraries=False).memory_available_bytes
    if free_bytes is not None and 4 * numbers > free_bytes:
        size = f"V {max(setting.vocabs):,} x width {max(setting.widths):,} takes {4e-9 * numbers:.1f} GB"
        what = f"{size}, and {1e-9 * free_bytes:.1f} GB are free"
        raise CalibrationError(what, remedy="measure a smaller size, or smaller shares of it")


def vocabulary_bench(
    setting: Setting | None = None,
    progress: Progress = lambda done, whole, what: None,
    clock: Callable[[], float] = time.perf_counter,
) -> ProjectionBench:
    """Measure; some three minutes as it stands, below 4 GB.

    `clock`: seconds; on CUDA it is read when all that was launched is done. Raises `CalibrationError` for a setting that
    cannot be measured.
    """
    setting = setting or Setting()
    check(setting)
    begin_s, others, box = time.perf_counter(), [busy.others_cpus()], _box(setting)
    sizes = list(itertools.product(setting.vocabs, setting.widths))
    costs, steps = {}, list[StepTime]()
    with library_threads(setting.threads), torch.inference_mode():
        for done, (vocab, width) in enumerate(sizes):
            progress(done, len(sizes), f"V {vocab:,}, width {width:,}")
            cost, own = _size(setting, vocab, width, clock_of(torch.device(setting.device), clock), box)
            costs[vocab, width] = cost
            steps += own
    others.append(busy.others_cpus())
    return ProjectionBench(
        kind="measured",
        setting=setting,
        costs=tuple(costs.values()),
        steps=tuple(steps),
        break_even=tuple(_break_even(setting, costs)),
        box=box,
        date=datetime.now(timezone.utc).date().isoformat(),
        seconds=time.perf_counter() - begin_s,
        others_cpus=max((each for each in others if each is not None), default=None),
    )


def _size(
    setting: Setting, vocab: int, width: int, clock: Callable[[], float], box: str
) -> tuple[ProjectionCost, list[StepTime]]:
    dtype = TYPES[setting.dtype]
    layer = drawn_layer(vocab, width, setting.clusters, seed=setting.seed, device=setting.device, dtype=dtype)
    fitted, heldout = dict[str, list[StagePoint]](), dict[str, list[StagePoint]]()
    steps: list[StepTime] = []
    between = {rows for rows in setting.heldout_rows if min(setting.rows) < rows < max(setting.rows)}
    for rows in sorted({*setting.rows, *between}):
        shares = dict.fromkeys(setting.heldout_shares, False)
        if rows in setting.rows:
            shares |= dict.fromkeys(setting.shares, True)
        found = measured_steps(
            layer, rows, shares, rounds=setting.rounds, seed=setting.seed, clock=clock, copying=rows == min(setting.rows)
        )
        steps += found.steps
        for points, own in ((fitted, found.fitted), (heldout, found.heldout)):
            for stage, point in own:
                points.setdefault(stage, []).append(point)
    how = {"box": box, "how": f"in turn, medians of {setting.rounds} rounds, numbers in memory"}
    cost = projection_cost(fitted, heldout, layers=[layer], provenance=how)
    return cost, [step.predicted(cost, setting.clusters) for step in steps]


def _break_even(setting: Setting, costs: dict[tuple[int, int], ProjectionCost]) -> Iterator[BreakEven]:
    for (vocab, width), cost in costs.items():
        for rows in setting.rows:
            share = partial(cost.break_even_share, vocab, width, setting.clusters, rows)
            yield BreakEven(
                vocab=vocab,
                width=width,
                rows=rows,
                columns=share(),
                scattered=share(scatter=True),
                own=share(own=True),
            )


def _box(setting: Setting) -> str:
    if setting.device == "cuda":
        return torch.cuda.get_device_name()
    box = describe(libraries=False)
    return f"{box.cpu_model or box.machine}, {setting.threads} thread{'s' if setting.threads > 1 else ''}"
