"""The parts of a profile, measured one after another; a part that cannot be measured gives a remark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TypeVar

from pydantic import TypeAdapter

from simnmt.base.configuration import Configuration
from simnmt.calibrate import cost_blocks, overheads
from simnmt.calibrate.batch_corrections import (
    Mixed,
    Pairs,
    measure_overrun,
    measures_overrun,
    mixed_encodings,
    padding_share,
    per_row_src_token_s,
    source_pairs,
)
from simnmt.calibrate.decoder_variants import decoder_block
from simnmt.calibrate.disk import REPEATS, SIZES_BYTES, DiskError, measure_disk
from simnmt.calibrate.energy import EnergyMeter, find_energy_meter
from simnmt.calibrate.fits import fit_disk, fit_energy
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.measurement import Listener, Measured, Silent, measure
from simnmt.calibrate.overheads import refill_overheads
from simnmt.calibrate.plan import BenchPlan, batches, corner_cells
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.nmt.engine import Engine, Work
from simnmt.nmt.errors import OutOfMemory
from simnmt.nmt.hub import model_path
from simnmt.profile.blocks import BeamOverrun, DiskBlock, EnergyBlock, Overhead, Overheads
from simnmt.profile.decoder_block import DecoderBlock
from simnmt.workload.length_units import tokeniser_in

Result = TypeVar("Result")
RESOLUTIONS = 100
"""Least ratio of a span to the counter's resolution."""
QUICK_SPAN_S = 2.5
"""Longest span of a quick calibration, however coarse the counter."""


def measure_energy(
    engine: Engine,
    meter: EnergyMeter,
    settings: Settings,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.perf_counter,
    listener: Listener = Silent,
) -> EnergyBlock | None:
    """Return the `energy` block of a profile, or None if the counter fails during the measurement.

    The device rests for a while, then repeats each corner cell for long enough that the counter's resolution does not
    matter; in quick mode for a few seconds at most. The joules include the power of the box at rest.
    """
    span_s = max(1.0 if settings.mode == "quick" else 3.0, RESOLUTIONS * meter.resolution_s)
    if settings.mode == "quick":
        span_s = min(span_s, QUICK_SPAN_S)
    works = corner_cells(settings)
    listener.measured("energy", 0.0, (2 + len(works)) * span_s)
    idle_s, idle_j = _span(meter, lambda: sleep(2 * span_s), clock)
    rows: list[tuple[Work, float, float]] = []
    for done, work in enumerate(works, start=1):
        times = 0

        def repeat(work: Work = work) -> None:
            nonlocal times
            times, begin_s = 0, clock()
            while times == 0 or clock() - begin_s < span_s:
                engine.run(work)
                times += 1

        active_s, active_j = _span(meter, repeat, clock)
        if active_j is None:
            return None
        rows.append((work, active_s / times, active_j / times))
        listener.measured("energy", (2 + done) * span_s, (len(works) - done) * span_s)
    if idle_j is None or min(joules for _, _, joules in rows) <= 0.0 or idle_j <= 0.0:
        return None
    src_len, tgt_len = [work.src_len for work, _, _ in rows], [work.tgt_len for work, _, _ in rows]
    joules = [run_joules for _, _, run_joules in rows]
    return fit_energy(
        src_len,
        tgt_len,
        joules,
        source=meter.source,
        idle_w=idle_j / idle_s,
        active_w=sum(joules) / sum(seconds for _, seconds, _ in rows),
    )


def _span(meter: EnergyMeter, doing: Callable[[], None], clock: Callable[[], float]) -> tuple[float, float | None]:
    """Measure the seconds and the joules of an activity; no joules if the counter fails."""
    before_j, begin_s = meter.read_j(), clock()
    doing()
    seconds, after_j = clock() - begin_s, meter.read_j()
    return seconds, None if before_j is None or after_j is None else after_j - before_j


MB = 1_000_000
QUICK_READS: tuple[tuple[int, ...], int] = ((MB // 4, MB, 4 * MB, 16 * MB), 5)
"""Sizes in bytes, and repeats."""


@dataclass
class Parts:
    """The measurements of one calibration, with remarks on those that failed."""

    _settings: Settings
    _engine: Engine
    _journal: Journal
    _listener: Listener
    _folder: Path
    """Folder on the disk that is read."""
    _replaced: Path | None = None
    """A profile with `beam_overrun`, which the new profile must have too."""
    remarks: list[str] = field(default_factory=list)
    """Sentences on parts that could not be measured."""
    measured: Measured | None = None
    """Timings, once `blocks` returned."""

    def blocks(self, plans: Sequence[BenchPlan]) -> dict[str, Configuration | None]:
        """Measure the parts of the settings and return the blocks of a profile by name.

        Raises `CalibrationError` before any timing if the replaced profile would lose its `beam_overrun`.
        """
        settings = self._settings
        blocks: dict[str, Configuration | None] = {}
        if measures_overrun(settings) and {"execution", "step"} & set(settings.parts):
            overrun = self._once("beam_overrun", BeamOverrun, self._beam_overrun)
            # If it could not be measured, a completed profile keeps its own.
            blocks |= {} if overrun is None else {"beam_overrun": overrun}
        if plans:
            self.measured = measure(self._engine, plans, self._journal, self._listener, gap_s=settings.gap_s)
            blocks |= self._fitted(self.measured)
        beside = self._of_batches() if "step" in settings.parts else {}
        if "overheads" in settings.parts:
            singles = self._once("overheads", dict[str, Overhead], self._overheads) or {}
            beside = self._of_singles() | singles | beside
        if beside:
            blocks["overheads"] = Overheads(**beside)
        if "decoder" in settings.parts:
            blocks["decoder"] = self._once("decoder", DecoderBlock, self._decoder)
        if "energy" in settings.parts:
            blocks["energy"] = self._once("energy", EnergyBlock, self._energy)
        if "disk" in settings.parts:
            blocks["disk"] = self._once("disk", DiskBlock, self._disk)
        return blocks

    def _once(self, name: str, kind: type[Result], do: Callable[[], tuple[Result | None, list[str]]]) -> Result | None:
        """Return the result of a part, from the journal if an earlier session kept one without remarks.

        `do`: measures the part; returns the result and remarks on failures.
        """
        adapter: TypeAdapter[Result | None] = TypeAdapter(kind | None)  # type: ignore[arg-type]
        if name not in self._journal.findings or self._journal.findings[name][1]:
            self._listener.say(f"{name} ...")
            result, remarks = do()
            self._journal.finding(name, [adapter.dump_python(result, mode="json"), remarks])
        content, remarks = self._journal.findings[name]
        self.remarks += remarks
        return adapter.validate_json(json.dumps(content))

    def _fitted(self, measured: Measured) -> dict[str, Configuration | None]:
        blocks: dict[str, Configuration | None] = {}
        if "execution" in measured.cells:
            cells = measured.cells["execution"]
            if len(cells) < 4:
                raise CalibrationError(
                    f"only {len(cells)} cells could be measured, too few for a plane",
                    remedy="free memory, or give smaller --max-src-len and --max-tgt-len",
                )
            blocks["execution"] = cost_blocks.execution_block(cells, self._settings)
            blocks["valid_range"] = cost_blocks.valid_range(cells, self._settings)
        if "step" in measured.cells:
            beam = self._settings.beam
            step = cost_blocks.step_block(measured.cells["step"], measured.too_large["step"], beam)
            encoder = cost_blocks.encoder_block(measured.cells["encoder"], measured.too_large["encoder"], beam, step)
            if step is not None and encoder is not None:
                most = min(step.batch[-1], encoder.batch[-1])
                mixed = self._once("padding", Mixed, lambda: (mixed_encodings(self._engine, self._settings, most), [])) or []
                encoder = encoder.model_copy(update={"padding_share": padding_share(mixed, step, encoder)})
            if step is not None:
                largest = step.batch[-1]
                pairs = self._once("sources", Pairs, lambda: (source_pairs(self._engine, self._settings, largest), [])) or []
                seconds, note = per_row_src_token_s(pairs)
                notes = (*step.notes, *([note] if note else []))
                step = step.model_copy(update={"s_per_row_src_token": seconds, "notes": notes})
            blocks |= {"step": step, "encoder": encoder}
            self.remarks += [
                f"no cost of the {name} by batch: fewer than two batch sizes could be measured"
                for name in ("step", "encoder")
                if blocks[name] is None
            ]
        return blocks

    def _overheads(self) -> tuple[dict[str, Overhead], list[str]]:
        by_name = {
            "decision_s": overheads.overhead(overheads.decision_s(), "length regression and two planes, one request at a time")
        }
        remarks = []
        tokenisation, note = None, "no tokeniser belongs to this model"
        tokeniser = tokeniser_in(model_path(self._settings.model), "src")
        if tokeniser is not None:
            note = "the tokeniser's library is not installed, or cuts all sentences alike"
            try:
                tokenisation = overheads.tokenisation_s(tokeniser, self._settings.seed)
            except CalibrationError as error:
                note = error.what
                remarks.append(f"no times of the tokeniser: {error}")
        for at, name in enumerate(("tokenisation_s_per_token", "tokenisation_s_fixed")):
            by_name[name] = overheads.overhead(tokenisation[at]) if tokenisation else overheads.overhead(None, note)
        return by_name, remarks

    def _of_batches(self) -> dict[str, Overhead]:
        """Return the overheads of decode steps: the gaps between them, and refilling."""
        assert self.measured is not None
        cells = self.measured.cells
        refilling = self._once(
            "joining", dict[str, Overhead], lambda: (refill_overheads(self._engine, self._settings, self._most()), [])
        )
        return cost_blocks.gap_overheads(cells["step"], cells["encoder"]) | (refilling or {})

    def _of_singles(self) -> dict[str, Overhead]:
        """Return the gap from whole translations of single sentences, if those were measured."""
        if self.measured is None or "execution" not in self.measured.cells:
            return {}
        return cost_blocks.lone_gap_overheads(self.measured.cells["execution"])

    def _decoder(self) -> tuple[DecoderBlock | None, list[str]]:
        return decoder_block(self._engine, self._settings, self._most(), self._listener)

    def _beam_overrun(self) -> tuple[BeamOverrun | None, list[str]]:
        block = measure_overrun(self._settings)
        if block is None and self._replaced is not None:
            what = "the existing profile would lose its beam_overrun: the model ended too few of the text's sentences"
            remedy = "give another --text, choose another --out, or remove it"
            raise CalibrationError(what, path=self._replaced, remedy=remedy)
        short = "no steps of the beam beyond its best output: the model ended too few of the text's sentences"
        return block, [] if block else [short]

    def _most(self) -> int:
        """Return the largest batch whose steps fitted into memory."""
        cells = [] if self.measured is None else self.measured.cells.get("step", [])
        return max((cell.work.batch for cell in cells), default=batches(self._settings)[-1])

    def _energy(self) -> tuple[EnergyBlock | None, list[str]]:
        meter_search = find_energy_meter(self._engine.account.device)
        if meter_search.meter is None:
            return None, [f"no energy: {'; '.join(meter_search.obstacles)}"]
        try:
            block = measure_energy(self._engine, meter_search.meter, self._settings, listener=self._listener)
        except OutOfMemory:
            return None, ["no energy: out of memory at a corner cell"]
        finally:
            meter_search.meter.close()
        return block, [] if block else [f"no energy: the counter of {meter_search.meter.source} failed while it was read"]

    def _disk(self) -> tuple[DiskBlock | None, list[str]]:
        settings, begin_s = self._settings, monotonic()

        def progress(done: int, total: int) -> None:
            spent_s = monotonic() - begin_s
            self._listener.measured("disk", spent_s, spent_s * (total - done) / done)

        sizes, repeats = QUICK_READS if settings.mode == "quick" else (SIZES_BYTES, REPEATS)
        pace = settings.disk_bytes_per_s
        try:
            reads = measure_disk(self._folder, sizes, repeats, pace=pace, progress=progress, seed=settings.seed)
            block = fit_disk(reads.read_s, cold=reads.cold, paced_bytes_per_s=pace)
        except (DiskError, ValueError) as error:
            return None, [f"no disk: {error}"]
        return block, [] if reads.cold else [f"disk: the reads may not have been cold: {reads.cold_check}"]
