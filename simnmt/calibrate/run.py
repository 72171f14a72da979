"""A whole calibration: load the model, measure by plan, fit, and write the profile."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simnmt.calibrate import conditions, fitting, overheads, profiling
from simnmt.calibrate.box import BoxDescription, describe
from simnmt.calibrate.disk import DiskError, measure_disk
from simnmt.calibrate.energy import find_energy_meter
from simnmt.calibrate.energy_use import measure_energy
from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.journal import Journal, beside
from simnmt.calibrate.measuring import Measured, measure
from simnmt.calibrate.pinning import pinned
from simnmt.calibrate.plan import BenchPlan, plan_benches
from simnmt.calibrate.progress import Listener, Silent
from simnmt.calibrate.settings import Settings
from simnmt.costs import DeviceProfile, ProfileError, fit_disk, read_profile, write_profile
from simnmt.files import refuse_replacing
from simnmt.nmt.engine import Engine, load_engine

LoadEngine = Callable[..., Engine]
MB = 1_000_000
QUICK_READS = ((MB // 4, MB, 4 * MB, 16 * MB), 5)
"""Sizes in bytes, and repeats."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What came of a calibration."""

    profile: DeviceProfile
    warnings: tuple[str, ...]
    """What may have spoilt the numbers, or was left out; one sentence each."""
    replaced: bool
    """Whether another profile stood at the same place before."""


def calibrate(
    settings: Settings,
    out: str | os.PathLike[str],
    *,
    name: str | None = None,
    device_name: str | None = None,
    listener: Listener = Silent,
    load: LoadEngine = load_engine,
) -> Calibrated:
    """Measure a model on this box and write its device profile to `out`.

    Each measurement is kept at once in `OUT.journal.jsonl`; the same call after an interruption goes on from there, and the
    journal goes when the profile is written. `name` and `device_name`: of the profile and of the box, by default the file's
    and the processor's. Without the part `execution`, the other parts of a profile at `out` are kept. `load`: how the engine
    is had. Raises `CalibrationError`, `NmtError` and `ProfileError`, in each case with what was measured kept.
    """
    path = Path(out)
    before = _profile_there(path, settings)
    drawn = _drawn(settings, path)
    box = describe(libraries=False)
    threads = _threads(settings, box)
    with pinned(threads) as cpus:
        engine = load(
            settings.model,
            backend=settings.backend,
            device=settings.device,
            threads=threads,
            compute_type=settings.compute_type,
            seed=settings.seed,
        )
        try:
            plans = plan_benches(settings, drawn, tells_steps=settings.backend == "torch")
            _within_positions(engine, plans)
            if before is not None and "execution" not in settings.parts:
                _same_engine(before, engine, settings, path)
            journal = Journal(beside(path), _header(settings, engine, box))
            try:
                journal.session(conditions.state(box))
                if len(journal):
                    listener.say(f"going on from {journal.path}: {len(journal):,} measurements are there")
                run = _Run(settings, engine, journal, listener, path.resolve().parent)
                blocks = run.blocks(plans)
                after = conditions.state(describe(libraries=False))
                blocks["conditions"] = conditions.conditions_block(journal.sessions, after, run.measured, cpus)
                account = engine.account
                profile = profiling.put_together(
                    settings,
                    account,
                    box,
                    blocks,
                    name=name or path.stem,
                    device_name=device_name,
                    before=before if "execution" not in settings.parts else None,
                )
                replaced = path.exists()
                write_profile(path, profile)
                journal.remove()
            finally:
                journal.close()
        finally:
            engine.close()
    said = conditions.warnings(blocks["conditions"], run.measured, on_cpu=threads is not None)
    return Calibrated(profile, (*said, *run.remarks), replaced)


class _Run:
    """The parts one after another; what a part could not do is remarked, the others are done all the same."""

    def __init__(self, settings: Settings, engine: Engine, journal: Journal, listener: Listener, folder: Path) -> None:
        self._settings = settings
        self._engine = engine
        self._journal = journal
        self._listener = listener
        self._folder = folder
        self.remarks: list[str] = []
        self.measured: Measured | None = None

    def blocks(self, plans: Sequence[BenchPlan]) -> dict[str, Any]:
        settings = self._settings
        found: dict[str, Any] = {}
        if plans:
            self.measured = measure(self._engine, plans, self._journal, self._listener)
            found |= self._fitted(self.measured)
        if "overheads" in settings.parts:
            found["overheads"] = self._once("overheads", self._overheads)
        if "energy" in settings.parts:
            found["energy"] = self._once("energy", self._energy)
        if "disk" in settings.parts:
            found["disk"] = self._once("disk", self._disk)
        return found

    def _once(self, name: str, do: Callable[[], tuple[Any, list[str]]]) -> Any:
        """A part that is measured in one go, or was in an earlier session: (block, remarks)."""
        if name not in self._journal.findings:
            self._listener.say(f"{name} ...")
            self._journal.finding(name, do())
        block, remarks = self._journal.findings[name]
        self.remarks += remarks
        return block

    def _fitted(self, measured: Measured) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if "execution" in measured.cells:
            cells = measured.cells["execution"]
            if len(cells) < 4:
                raise CalibrationError(
                    f"{len(cells)} cells could be measured, which determine no plane",
                    remedy="free memory, or give smaller --max-src-len and --max-tgt-len",
                )
            found["execution"] = fitting.execution_block(cells, self._settings)
            found["valid_range"] = fitting.valid_range(cells, self._settings)
        if "step" in measured.cells:
            beam = self._settings.beam
            step = fitting.step_block(measured.cells["step"], measured.too_large["step"], beam)
            encoder = fitting.encoder_block(measured.cells["encoder"], measured.too_large["encoder"], beam, step)
            for name, block in (("step", step), ("encoder", encoder)):
                found[name] = None if block is None else block.model_dump(mode="json")
                if block is None:
                    self.remarks.append(f"no cost of the {name} by batch: fewer than two batch sizes could be measured")
        return found

    def _overheads(self) -> tuple[Any, list[str]]:
        decision = overheads.decision_s()
        found = {"decision_s": overheads.overhead(decision, "length regression and two planes, one request at a time")}
        tokeniser = overheads.tokeniser_of(self._settings.model)
        tokenisation = None if tokeniser is None else overheads.tokenisation_s(tokeniser, self._settings.seed)
        note = "no sentencepiece model belongs to this model" if tokeniser is None else "sentencepiece is not installed"
        note = "" if tokenisation else note
        found["tokenisation_s_per_token"] = overheads.overhead(tokenisation[0] if tokenisation else None, note)
        found["tokenisation_s_fixed"] = overheads.overhead(tokenisation[1] if tokenisation else None, note)
        cells = self.measured.cells.get("execution", []) if self.measured else []
        gap = fitting.step_gap_s(cells)
        found["step_gap_s"] = overheads.overhead(gap, "" if gap is not None else "the backend does not tell its steps")
        return found, []

    def _energy(self) -> tuple[Any, list[str]]:
        found = find_energy_meter(self._engine.account.device)
        if found.meter is None:
            return None, [f"no energy: {'; '.join(str(obstacle) for obstacle in found.obstacles)}"]
        try:
            block = measure_energy(self._engine, found.meter, self._settings)
        finally:
            found.meter.close()
        return block, [] if block else [f"no energy: the counter of {found.meter.source} failed while it was read"]

    def _disk(self) -> tuple[Any, list[str]]:
        sizes, repeats = QUICK_READS
        options: dict[str, Any] = {"sizes_bytes": sizes, "repeats": repeats} if self._settings.mode == "quick" else {}
        try:
            seen = measure_disk(self._folder, seed=self._settings.seed, **options)
            rows = [(sample.bytes, read_s) for sample in seen.samples for read_s in sample.read_s]
            fit = fit_disk(*zip(*rows, strict=True))
        except (DiskError, ValueError) as error:
            return None, [f"no disk: {error}"]
        block = {
            "kind": "measured",
            "s_fixed": fit.cost.s_fixed,
            "bytes_per_s": fit.cost.bytes_per_s,
            "r2": fit.r2,
            "heldout_error": fit.heldout_error,
            "samples": [sample.as_json() for sample in seen.samples],
            "cold": seen.cold,
            "paced_bytes_per_s": seen.paced_bytes_per_s,
        }
        return block, [] if seen.cold else [f"disk: the reads may not have been cold: {seen.cold_check}"]


def _profile_there(path: Path, settings: Settings) -> DeviceProfile | None:
    """The profile that will be replaced. Raises before anything is measured where none could be written."""
    if not path.parent.is_dir():
        raise CalibrationError("its folder does not exist", path=path, remedy="make the folder, or choose another --out")
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise CalibrationError("not a file", path=path, remedy="choose another --out")
    if not os.access(path.parent, os.W_OK):
        raise CalibrationError("its folder cannot be written to", path=path, remedy="choose another --out")
    refuse_replacing(path, settings.model, None if settings.lengths.startswith("@") else settings.lengths)
    found = None
    if path.exists():
        try:
            found = read_profile(path)
        except ProfileError as error:
            what = f"stands there and is no device profile: {error.what}"
            raise CalibrationError(what, path=path, remedy="choose another --out, or remove it") from None
    if found is None and "execution" not in settings.parts:
        remedy = "add execution to --only, or give as --out a profile to complete"
        raise CalibrationError("a profile needs the part execution", remedy=remedy)
    return found


def _drawn(settings: Settings, out: Path) -> list[tuple[int, int]] | None:
    """Lengths of paper mode."""
    if settings.mode != "paper" or "execution" not in settings.parts:
        return None
    from simnmt.shipped import find
    from simnmt.workload.length_table import read_table

    table = read_table(find("traces/lengths", settings.lengths) if settings.lengths.startswith("@") else settings.lengths)
    src_len, tgt_len = table.sample(settings.seed, 0, "calibrate_lengths", settings.inferences)
    return list(zip(src_len.tolist(), tgt_len.tolist(), strict=True))


def _threads(settings: Settings, box: BoxDescription) -> int | None:
    if settings.device != "cpu":
        return None
    if settings.threads is not None and settings.threads > box.usable_cpus:
        can = f"{box.usable_cpus} {'CPU' if box.usable_cpus == 1 else 'CPUs'}"
        remedy = f"give --threads {box.usable_cpus} or fewer"
        raise CalibrationError(f"{settings.threads} threads on {can} would wait for each other", remedy=remedy)
    return settings.threads or box.usable_cpus


def _within_positions(engine: Engine, plans: Sequence[BenchPlan]) -> None:
    """Said at once, not when the longest cell's turn comes."""
    most = engine.account.architecture.get("max_positions")
    longest = max((max(work.src_len, work.tgt_len) for plan in plans for work in plan.works), default=0)
    if most is not None and longest > most:
        remedy = "give smaller --max-src-len and --max-tgt-len, or other --lengths"
        raise CalibrationError(f"{longest} tokens where the model takes {most}", remedy=remedy)


def _header(settings: Settings, engine: Engine, box: BoxDescription) -> dict[str, Any]:
    """What must be the same for measurements to belong to one profile."""
    engine_facts = profiling.engine_block(engine.account, settings.beam)
    names = ("machine", "cpu_model", "board", "logical_cores", "usable_cpus", "memory_bytes")
    return {
        "settings": settings.as_json(),
        "engine": engine_facts,
        "box": {name: getattr(box, name) for name in names},
    }


def _same_engine(before: DeviceProfile, engine: Engine, settings: Settings, path: Path) -> None:
    """Parts of two devices make no profile."""
    theirs = None if before.engine is None else before.engine.model_dump(mode="json")
    ours = profiling.engine_block(engine.account, settings.beam)
    for key in ("backend", "compute_type", "device", "device_name", "threads", "beam", "architecture"):
        if theirs is None or theirs[key] != ours[key]:
            what = f"the profile to complete is of {key} {None if theirs is None else theirs[key]!r}, this is {ours[key]!r}"
            raise CalibrationError(what, path=path, remedy="choose another --out and add execution to --only")
