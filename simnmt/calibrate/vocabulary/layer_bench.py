"""The output layer with all columns and with the active ones: stages apart, whole steps, break-even (FVP-09, FVP-15)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any

import torch

from simnmt.calibrate import busy
from simnmt.calibrate.box.describe import describe
from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.vocabulary.layer_steps import StepTime, measured_steps
from simnmt.costs.projection_cost import ProjectionCost
from simnmt.costs.projection_fit import StagePoint
from simnmt.kernels.library_threads import library_threads
from simnmt.kernels.projection_setting import drawn_layer
from simnmt.kernels.projection_timing import clock_of, projection_cost

Progress = Callable[[int, int, str], None]
"""Called with what is done, what there is in all, and what comes next."""
DEVICES = ("cpu", "cuda")
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured."""

    vocabs: tuple[int, ...] = (32_000, 128_000, 250_000)
    widths: tuple[int, ...] = (512, 1024)
    rows: tuple[int, ...] = (1, 8, 40)
    """Sentences x beam that costs are fitted at."""
    shares: tuple[float, ...] = (0.02, 0.06, 0.12, 0.20)
    """Of V that are active in a step, which costs are fitted at."""
    heldout_rows: tuple[int, ...] = (4, 20)
    """Between those fitted; others are left out."""
    heldout_shares: tuple[float, ...] = (0.04, 0.15)
    """Steps of these rows or of these shares judge the fit."""
    clusters: int = 2_000
    rounds: int = 5
    threads: int = 1
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0

    def check(self) -> None:
        """Raises `CalibrationError` for what cannot be measured."""
        for name in ("vocabs", "widths", "rows", "shares"):
            if not getattr(self, name):
                raise CalibrationError(f"no {name} to measure", remedy="name one at least")
        for name in ("vocabs", "widths", "rows", "heldout_rows", "clusters", "rounds", "threads"):
            given = getattr(self, name)
            least = min(given, default=1) if isinstance(given, tuple) else given
            if least < 1:
                raise CalibrationError(f"{name.removesuffix('s')} {least}", remedy="give 1 or more")
        for share in (*self.shares, *self.heldout_shares):
            if not 0.0 < share <= 1.0:
                raise CalibrationError(f"{100 * share:g} % of the columns active", remedy="give more than 0 and up to 100")
        if self.dtype not in TYPES:
            raise CalibrationError(f"no weights of type {self.dtype}", remedy=f"take one of {', '.join(TYPES)}")
        if self.device not in DEVICES:
            raise CalibrationError(f"no device {self.device}", remedy=f"take {' or '.join(DEVICES)}")
        if self.device == "cpu":
            self._check_memory()
        elif not torch.cuda.is_available():
            raise CalibrationError("torch sees no GPU here", remedy="leave --device out, or run it where a GPU is")

    def _check_memory(self) -> None:
        shares = sum(self.shares) + sum(self.heldout_shares)
        numbers = max(self.vocabs) * max(self.widths) * (1.0 + shares) + 2 * max(self.rows) * max(self.vocabs)
        free_bytes = describe(libraries=False).memory_available_bytes
        if free_bytes is not None and 4 * numbers > free_bytes:
            size = f"V {max(self.vocabs):,} x width {max(self.widths):,} takes {4e-9 * numbers:.1f} GB"
            what = f"{size}, and {1e-9 * free_bytes:.1f} GB are free"
            raise CalibrationError(what, remedy="measure a smaller size, or smaller shares of it")


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Share of V above which dense wins; None: it never does."""

    vocab: int
    width: int
    rows: int
    columns: float | None
    """Straight into the search, against torch's dense product."""
    scattered: float | None
    """As published, against the same."""
    own: float | None
    """As `columns`, against all columns by the faster one of torch and of the product for some columns."""


@dataclass(frozen=True, slots=True)
class VocabularyBench:
    """All that was measured."""

    setting: Setting
    costs: dict[tuple[int, int], ProjectionCost]
    """By V and d, each fitted to its own steps."""
    steps: tuple[StepTime, ...]
    break_even: tuple[BreakEven, ...]
    box: str
    date: str
    seconds: float
    others_cpus: float | None
    """That others used before or after, the most of both."""

    @property
    def heldout(self) -> tuple[StepTime, ...]:
        """Steps that judge the fit."""
        return tuple(step for step in self.steps if not step.fitted)

    @property
    def heldout_error(self) -> float | None:
        """Mean absolute relative error of a whole step's prediction on held-out rows and shares (FVP-09)."""
        return mean_error(self.heldout)

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return {
            "kind": "measured",
            "setting": asdict(self.setting),
            "box": self.box,
            "date": self.date,
            "seconds": self.seconds,
            "others_cpus": self.others_cpus,
            "heldout_error": self.heldout_error,
            "steps": [asdict(step) | {"share": step.share, "error": step.error} for step in self.steps],
            "break_even": [asdict(each) for each in self.break_even],
            "costs": [cost.model_dump(mode="json") for cost in self.costs.values()],
        }


def mean_error(steps: Sequence[StepTime]) -> float | None:
    """Mean absolute relative error; None where nothing was predicted."""
    errors = [abs(step.error) for step in steps if step.error is not None]
    return sum(errors) / len(errors) if errors else None


def vocabulary_bench(
    setting: Setting | None = None,
    progress: Progress = lambda done, whole, what: None,
    clock: Callable[[], float] = time.perf_counter,
) -> VocabularyBench:
    """Measure; four minutes at most as it stands, below 4 GB.

    `clock`: seconds; on CUDA it is read when all that was launched is done. Raises `CalibrationError` for a setting that
    cannot be measured.
    """
    setting = setting or Setting()
    setting.check()
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
    return VocabularyBench(
        setting=setting,
        costs=costs,
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
            yield BreakEven(vocab, width, rows, share(), share(scatter=True), share(own=True))


def _box(setting: Setting) -> str:
    if setting.device == "cuda":
        return torch.cuda.get_device_name()
    box = describe(libraries=False)
    return f"{box.cpu_model or box.machine}, {setting.threads} thread{'s' if setting.threads > 1 else ''}"
