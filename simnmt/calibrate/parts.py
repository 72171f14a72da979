"""The parts of a profile, measured one after another; what one could not do is remarked, the others are done all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from simnmt.calibrate import fitting, overheads, step_gaps
from simnmt.calibrate.beam_overrun import measure_overrun, measures_overrun
from simnmt.calibrate.decoder_variants import decoder_block
from simnmt.calibrate.disk import DiskError, measure_disk
from simnmt.calibrate.energy import find_energy_meter
from simnmt.calibrate.energy_use import measure_energy
from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.long_sources import per_row_src_token_s, source_pairs
from simnmt.calibrate.measuring import Measured, measure
from simnmt.calibrate.padding import mixed_encodings, padding_share
from simnmt.calibrate.plan import BenchPlan, batches
from simnmt.calibrate.progress import Listener
from simnmt.calibrate.refilling import refill_overheads
from simnmt.calibrate.settings import Settings
from simnmt.costs import fit_disk
from simnmt.costs.profile_blocks import StepBlock
from simnmt.nmt.engine import Engine
from simnmt.nmt.errors import OutOfMemory
from simnmt.workload.sentencepiece_unit import tokeniser_in

MB = 1_000_000
QUICK_READS = ((MB // 4, MB, 4 * MB, 16 * MB), 5)
"""Sizes in bytes, and repeats."""


class Parts:
    """One calibration's measuring, with what fell short."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        journal: Journal,
        listener: Listener,
        folder: Path,
        replaced: Path | None = None,
    ) -> None:
        """`folder`: whose disk is read; `replaced`: a profile with `beam_overrun`, which the new one must have too."""
        self._settings = settings
        self._engine = engine
        self._journal = journal
        self._listener = listener
        self._folder = folder
        self._replaced = replaced
        self.remarks: list[str] = []
        """What could not be measured, one sentence each."""
        self.measured: Measured | None = None
        """What was timed, after `blocks`."""

    def blocks(self, plans: Sequence[BenchPlan]) -> dict[str, Any]:
        """The blocks of a profile, by name, of the parts that were asked for.

        Raises `CalibrationError` before anything is timed where `replaced` would lose its `beam_overrun`.
        """
        settings = self._settings
        found: dict[str, Any] = {}
        if measures_overrun(settings) and {"execution", "step"} & set(settings.parts):
            overrun = self._once("beam_overrun", self._beam_overrun)
            # Where it could not be measured, a profile that is completed keeps what it has.
            found |= {} if overrun is None else {"beam_overrun": overrun}
        if plans:
            self.measured = measure(self._engine, plans, self._journal, self._listener)
            found |= self._fitted(self.measured)
        beside = self._of_batches() if "step" in settings.parts else {}
        if "overheads" in settings.parts:
            beside = self._of_singles() | self._once("overheads", self._overheads) | beside
        if beside:
            found["overheads"] = beside
        if "decoder" in settings.parts:
            found["decoder"] = self._once("decoder", self._decoder)
        if "energy" in settings.parts:
            found["energy"] = self._once("energy", self._energy)
        if "disk" in settings.parts:
            found["disk"] = self._once("disk", self._disk)
        return found

    def _once(self, name: str, do: Callable[[], tuple[Any, list[str]]]) -> Any:
        """A part that is measured in one go, or was in an earlier session and nothing fell short: (block, remarks)."""
        if name not in self._journal.findings or self._journal.findings[name][1]:
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
            if step is not None and encoder is not None:
                most = min(step.batch[-1], encoder.batch[-1])
                mixed = self._once("padding", lambda: (mixed_encodings(self._engine, self._settings, most), []))
                encoder = encoder.model_copy(update={"padding_share": padding_share(mixed, step, encoder)})
            if step is not None:
                step = self._under_long_sources(step)
            for name, block in (("step", step), ("encoder", encoder)):
                found[name] = None if block is None else block.model_dump(mode="json")
                if block is None:
                    self.remarks.append(f"no cost of the {name} by batch: fewer than two batch sizes could be measured")
        return found

    def _under_long_sources(self, step: StepBlock) -> StepBlock:
        pairs = self._once("sources", lambda: (source_pairs(self._engine, self._settings, step.batch[-1]), []))
        seconds, note = per_row_src_token_s(pairs)
        notes = (*step.notes, *([note] if note else []))
        return step.model_copy(update={"s_per_row_src_token": seconds, "notes": notes})

    def _overheads(self) -> tuple[Any, list[str]]:
        decision = overheads.decision_s()
        found = {"decision_s": overheads.overhead(decision, "length regression and two planes, one request at a time")}
        remarks = []
        tokenisation, note = None, "no sentencepiece model belongs to this model"
        tokeniser = tokeniser_in(self._settings.model, "src")
        if tokeniser is not None:
            note = "sentencepiece is not installed, or cuts all sentences alike"
            try:
                tokenisation = overheads.tokenisation_s(tokeniser, self._settings.seed)
            except CalibrationError as error:
                note = error.what
                remarks.append(f"no times of the tokeniser: {error}")
        for at, name in enumerate(("tokenisation_s_per_token", "tokenisation_s_fixed")):
            found[name] = overheads.overhead(tokenisation[at]) if tokenisation else overheads.overhead(None, note)
        return found, remarks

    def _of_batches(self) -> dict[str, Any]:
        """Overheads that belong to the decode steps: between them, and of refilling."""
        assert self.measured is not None
        cells, settings = self.measured.cells, self._settings
        told = step_gaps.gap_overheads(cells["step"], cells["encoder"])
        refilling: dict[str, Any] = self._once("joining", lambda: (refill_overheads(self._engine, settings, self._most()), []))
        return told | refilling

    def _of_singles(self) -> dict[str, Any]:
        """What whole translations of single sentences tell of the gap, where those are measured."""
        if self.measured is None or "execution" not in self.measured.cells:
            return {}
        return step_gaps.lone_gap_overheads(self.measured.cells["execution"])

    def _decoder(self) -> tuple[Any, list[str]]:
        return decoder_block(self._engine, self._settings, self._most(), self._listener)

    def _beam_overrun(self) -> tuple[Any, list[str]]:
        block = measure_overrun(self._settings)
        if block is None:
            if self._replaced is not None:
                what = "the profile there would lose its beam_overrun: the model ended too few of the text's sentences itself"
                remedy = "give another --text, choose another --out, or remove it"
                raise CalibrationError(what, path=self._replaced, remedy=remedy)
            return None, ["no steps of the beam beyond its best output: the model ended too few of the text's sentences itself"]
        return block.model_dump(mode="json"), []

    def _most(self) -> int:
        """Sentences of the largest batch whose steps there was room for."""
        cells = [] if self.measured is None else self.measured.cells.get("step", [])
        return max((cell.work.batch for cell in cells), default=batches(self._settings)[-1])

    def _energy(self) -> tuple[Any, list[str]]:
        found = find_energy_meter(self._engine.account.device)
        if found.meter is None:
            return None, [f"no energy: {'; '.join(str(obstacle) for obstacle in found.obstacles)}"]
        try:
            block = measure_energy(self._engine, found.meter, self._settings, listener=self._listener)
        except OutOfMemory:
            return None, ["no energy: out of memory at a corner cell"]
        finally:
            found.meter.close()
        return block, [] if block else [f"no energy: the counter of {found.meter.source} failed while it was read"]

    def _disk(self) -> tuple[Any, list[str]]:
        sizes, repeats = QUICK_READS
        options: dict[str, Any] = {"sizes_bytes": sizes, "repeats": repeats} if self._settings.mode == "quick" else {}
        options |= {"seed": self._settings.seed, "pace": self._settings.disk_bytes_per_s}
        begin_s = monotonic()

        def progress(done: int, total: int) -> None:
            spent_s = monotonic() - begin_s
            self._listener.measured("disk", spent_s, spent_s * (total - done) / done)

        try:
            seen = measure_disk(self._folder, progress=progress, **options)
            fit = fit_disk(*seen.reads())
        except (DiskError, ValueError) as error:
            return None, [f"no disk: {error}"]
        remarks = [] if seen.cold else [f"disk: the reads may not have been cold: {seen.cold_check}"]
        return {"kind": "measured"} | fit.block() | seen.as_json(), remarks
