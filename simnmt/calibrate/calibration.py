"""A whole calibration: load the model, measure by plan, fit, and write the profile."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simnmt.base import VERSION
from simnmt.base.configuration import end_tokens
from simnmt.calibrate import preconditions, profile_assembly
from simnmt.calibrate.box import BoxDescription, describe
from simnmt.calibrate.journal import Journal, journal_path
from simnmt.calibrate.measurement import Listener, Silent
from simnmt.calibrate.parts import Parts
from simnmt.calibrate.plan import BenchPlan, plan_benches
from simnmt.calibrate.processor_use import pinned
from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import Engine, EngineAccount
from simnmt.nmt.engines import load_engine
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.profile_file import write_profile

LoadEngine = Callable[..., Engine]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What came of a calibration."""

    profile: DeviceProfile
    warnings: tuple[str, ...]
    """The profile's doubts, and what was left out; one sentence each."""
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
    and the processor's. Without the part `execution`, the profile at `out` is completed: what is neither measured nor named
    anew stays. `load`: how the engine is had. Raises `CalibrationError`, `NmtError` and `ProfileError`, in each case with
    what was measured kept.
    """
    path = Path(out)
    there = preconditions.profile_there(path, settings)
    before = None if settings.whole else there
    if before is not None:
        preconditions.same_units(before, settings, path)
    drawn = _drawn(settings)
    box = describe(libraries=False)
    threads = preconditions.threads_of(settings, box)
    with pinned(threads) as cpus, _loaded(settings, threads, load) as engine:
        account = _named(engine.account, box)
        plans = plan_benches(settings, drawn, tells_steps=settings.backend == "torch")
        preconditions.within_positions(account, plans)
        preconditions.agreement_can_be_told(account, settings)
        if before is not None:
            preconditions.same_engine(before, account, settings, path)
        elif there is not None:
            preconditions.nothing_lost(there, account, settings, path)
        with _kept(Journal(journal_path(path), _header(settings, account, box, plans)), listener) as journal:
            journal.session(profile_assembly.state(box))
            folder = Path(os.path.realpath(path)).parent
            loses_overrun = before is None and there is not None and there.beam_overrun is not None
            parts = Parts(settings, engine, journal, listener, folder, replaced=path if loses_overrun else None)
            blocks = parts.blocks(plans)
            after = profile_assembly.state(describe(libraries=False))
            blocks["conditions"] = profile_assembly.conditions_block(journal.sessions, after, parts.measured, cpus)
            remarks = profile_assembly.remarks(blocks["conditions"], parts.measured, on_cpu=threads is not None)
            if before is None:
                profile = profile_assembly.put_together(
                    settings, account, box, blocks, name=name or path.stem, device_name=device_name
                )
            else:
                profile = profile_assembly.completed(before, settings, account, blocks, name=name, device_name=device_name)
            write_profile(path, profile)
            journal.remove()
    doubts = [doubt.message for doubt in profile_doubts(profile)]
    return Calibrated(profile, (*doubts, *remarks, *parts.remarks), there is not None)


@contextmanager
def _loaded(settings: Settings, threads: int | None, load: LoadEngine) -> Iterator[Engine]:
    engine = load(
        settings.model,
        backend=settings.backend,
        device=settings.device,
        threads=threads,
        compute_type=settings.compute_type,
        seed=settings.seed,
    )
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def _kept(journal: Journal, listener: Listener) -> Iterator[Journal]:
    """Whatever ends it early, what was measured stays in the journal, and that is said."""
    try:
        if len(journal):
            listener.say(f"going on from {journal.path}: {len(journal):,} measurements are there")
        yield journal
    except BaseException:
        if len(journal):
            listener.say(f"kept {len(journal):,} measurements in {journal.path}; the same command goes on from there")
        raise
    finally:
        journal.close()


def _named(account: EngineAccount, box: BoxDescription) -> EngineAccount:
    """The engine's account with the CPU's name as the box knows it: an engine has none for an Arm processor."""
    name = (box.board or box.cpu_model) if account.device == "cpu" else None
    return replace(account, device_name=name) if name else account


def _drawn(settings: Settings) -> list[tuple[int, int]] | None:
    """Lengths of paper mode."""
    if settings.mode != "paper" or not settings.whole:
        return None
    from simnmt.base.shipped_files import find
    from simnmt.workload.length_table import read_table

    table = read_table(find("traces/lengths", settings.lengths) if settings.lengths.startswith("@") else settings.lengths)
    src_len, tgt_len = table.sample(settings.seed, 0, "calibrate_lengths", settings.inferences)
    src_end, tgt_end = (1 - counted for counted in end_tokens(table.end_of_sentence))
    return list(zip((src_len + src_end).tolist(), (tgt_len + tgt_end).tolist(), strict=True))


def _header(settings: Settings, account: EngineAccount, box: BoxDescription, plans: Sequence[BenchPlan]) -> dict[str, Any]:
    """What must be the same for measurements to belong to one profile."""
    names = ("machine", "cpu_model", "board", "logical_cores", "usable_cpus", "memory_bytes")
    return {
        "settings": settings.as_json(),
        "box": {name: getattr(box, name) for name in names},
        "engine": profile_assembly.engine_block(account, settings.beam),
        "simnmt": VERSION,
        # Samples stand by their place in the plan: in another one, the places mean other works.
        "plan": hashlib.sha256(repr(plans).encode()).hexdigest()[:16],
    }
