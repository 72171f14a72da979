"""A whole calibration: load the model, measure its parts, fit them, and write the profile."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from simnmt.base import VERSION
from simnmt.base.configuration import end_tokens
from simnmt.calibrate import preconditions, profile_assembly
from simnmt.calibrate.box import BoxDescription, describe
from simnmt.calibrate.harness import Listener, Silent, rounds
from simnmt.calibrate.journal import SESSION, Header, Journal, journal_path
from simnmt.calibrate.parts import Bench, groups
from simnmt.calibrate.processor_use import pinned
from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import Engine, EngineAccount, Work, load_engine
from simnmt.profile.blocks import Overheads
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.origin import LengthUnit, MeasuringConditions
from simnmt.profile.profile_file import write_profile

LoadEngine = Callable[..., Engine]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Result of a calibration."""

    profile: DeviceProfile
    warnings: tuple[str, ...]
    """The profile's doubts and remarks on left-out parts; one sentence each."""
    replaced: bool
    """True if the profile replaced another one."""


def calibrate(
    settings: Settings,
    out: str | os.PathLike[str],
    *,
    name: str | None = None,
    device_name: str | None = None,
    listener: Listener = Silent,
    load: LoadEngine = load_engine,
    replaces_journal: bool = False,
) -> Calibrated:
    """Measure a model on this box and write its device profile to `out`.

    Each measurement is kept at once in `OUT.journal.jsonl`; the same call after an interruption resumes from there, and the
    journal is removed once the profile is written. Without the part `execution`, the profile at `out` is completed: blocks
    and names that are not given stay.

    Args:
        settings: parts to measure, and how.
        out: path of the profile.
        name: name of the profile; by default that of the file.
        device_name: name of the box; by default that of the processor.
        listener: receives messages and progress.
        load: loads the engine.
        replaces_journal: begin anew where the journal holds measurements of other settings, instead of refusing it.

    Raises:
        CalibrationError, NmtError, ProfileError: with the measurements so far kept in the journal.
    """
    path = Path(out)
    there = preconditions.profile_there(path, settings)
    before = None if settings.whole else there
    if before is not None:
        preconditions.same_units(before, settings, path)
    drawn, box = _drawn(settings), describe()
    threads = preconditions.threads_of(settings, box)
    with pinned(threads) as cpus, closing(_load(load, settings, threads)) as engine:
        bench = Bench(settings, engine, listener, Path(os.path.realpath(path)).parent, drawn)
        account = _named(engine.account, box)
        preconditions.within_positions(account, works(bench))
        preconditions.check_text(account, settings)
        if before is not None:
            preconditions.same_engine(before, account, settings, path)
        header = _header(settings, account, box, bench)
        with kept_journal(Journal(journal_path(path), header, replaces=replaces_journal), listener) as journal:
            sessions = kept_sessions(journal, profile_assembly.state(box))
            frame = measure(bench, journal)
            after = profile_assembly.state(describe())
            conditions = profile_assembly.conditions_block(sessions, after, frame, cpus, settings.gap_s)
            remarks = profile_assembly.remarks(conditions.governor, frame, on_cpu=threads is not None)
            if before is None:
                src_unit, tgt_unit = settings.units
                profile = profile_assembly.new_profile(
                    name or path.stem,
                    settings.model,
                    account,
                    box,
                    LengthUnit(src=src_unit, tgt=tgt_unit, end_of_sentence="both"),
                    {**bench.blocks, "conditions": conditions},
                    device_name=device_name,
                    source=_source(settings, account),
                    tool=TOOL,
                    beam=settings.beam,
                )
            else:
                profile = profile_assembly.completed(
                    before, bench.blocks, conditions, settings.parts, name=name, device_name=device_name, tool=TOOL
                )
            if "step" in settings.parts:
                profile = profile_assembly.with_batches_at_pace(profile)
            write_profile(path, profile)
            journal.remove()
    doubts = [doubt.message for doubt in profile_doubts(profile)]
    return Calibrated(profile, (*doubts, *remarks, *bench.remarks), there is not None)


def measure(bench: Bench, journal: Journal | None) -> pd.DataFrame | None:
    """Measure the parts, group by group, and fit them; return the rows that were measured beside reference work."""
    beside_reference: list[pd.DataFrame] = []
    for number, group in enumerate(groups(bench.settings)):
        cases = {(part.name, name): case for part in group for name, case in part.cases(bench).items()}
        if not cases:
            continue
        name, apart = " and ".join(part.name for part in group), group[0].apart(bench.settings)
        bench.listener.say(f"{name} ...")
        frame = rounds(
            cases,
            max(part.rounds(bench) for part in group),
            min(part.within_s for part in group),
            bench.reference if group[0].beside_reference else None,
            journal,
            name=name,
            shuffle=bench.settings.seed,
            again=not apart,
            listener=bench.listener,
        )
        for part in group:
            rows = frame[[of == part.name for of, _ in frame["case"]]]
            if len(rows):
                bench.add(part.fit(rows, bench))
        if group[0].beside_reference:
            # Stretches of another group have other numbers.
            beside_reference.append(frame.assign(stretch=frame["stretch"].map(lambda at, group=number: (group, at))))
    if bench.overheads:
        bench.blocks["overheads"] = Overheads(**bench.overheads)
    return pd.concat(beside_reference) if beside_reference else None


def works(bench: Bench) -> list[Work]:
    """Return all works that will be timed beside the reference work, to be checked before hours of measuring."""
    parts = [part for group in groups(bench.settings) for part in group if part.beside_reference]
    abouts = [case.about for part in parts for case in part.cases(bench).values()]
    return [Work(*(about[name] for name in ("src_len", "tgt_len", "batch", "beam"))) for about in abouts]


TOOL = f"simnmt calibrate, simnmt {VERSION}"


def _source(settings: Settings, account: EngineAccount) -> str:
    how = {
        "quick": "six corner cells",
        "full": "full grid",
        "paper": f"{settings.inferences:,} inferences with the lengths of {settings.drawn_lengths}",
    }[settings.mode]
    engine = f"{account.model} on {account.backend} {account.compute_type}"
    return f"{engine}, {profile_assembly.describe_weights(account)}; {how}"


def _load(load: LoadEngine, settings: Settings, threads: int | None) -> Engine:
    return load(
        settings.model,
        backend=settings.backend,
        device=settings.device,
        threads=threads,
        compute_type=settings.compute_type,
        seed=settings.seed,
    )


def kept_sessions(journal: Journal, state: MeasuringConditions) -> list[MeasuringConditions]:
    """Keep the state of the box before this session; return those before all sessions."""
    known = [content for name, content in journal.findings.items() if name.startswith(SESSION)]
    journal.finding(f"{SESSION} {len(known)}", state.model_dump(mode="json", exclude_unset=True))
    return [*map(MeasuringConditions.model_validate, known), state]


@contextmanager
def kept_journal(journal: Journal, listener: Listener) -> Iterator[Journal]:
    """Keep the journal if an exception ends the calibration, with a message to the user."""
    try:
        if journal.remark:
            listener.say(journal.remark)
        if journal.measured:
            listener.say(f"going on from {journal.path}")
        yield journal
    except BaseException:
        if journal.measured:
            listener.say(f"kept what was measured in {journal.path}; the same command goes on from there")
        raise
    finally:
        journal.close()


def _named(account: EngineAccount, box: BoxDescription) -> EngineAccount:
    """Return the engine's account with the CPU's name from the box: engines do not know the name of an Arm processor."""
    name = (box.board or box.cpu_model) if account.device == "cpu" else None
    return replace(account, device_name=name) if name else account


def _drawn(settings: Settings) -> list[tuple[int, int]]:
    """Draw the lengths of paper mode."""
    if settings.mode != "paper" or not settings.whole:
        return []
    from simnmt.base.shipped_files import find
    from simnmt.workload.length_table import read_table

    lengths = settings.drawn_lengths
    table = read_table(find("traces/lengths", lengths) if lengths.startswith("@") else lengths)
    src_len, tgt_len = table.sample(settings.seed, 0, "calibrate_lengths", settings.inferences)
    src_end, tgt_end = (1 - counted for counted in end_tokens(table.end_of_sentence))
    return list(zip((src_len + src_end).tolist(), (tgt_len + tgt_end).tolist(), strict=True))


def _header(settings: Settings, account: EngineAccount, box: BoxDescription, bench: Bench) -> Header:
    names = ("machine", "cpu_model", "board", "logical_cores", "usable_cpus")
    return {
        "settings": settings.as_json(),
        "box": {name: getattr(box, name) for name in names},
        "engine": profile_assembly.engine_block(account, settings.beam).model_dump(mode="json"),
        "simnmt": VERSION,
        # The drawn inferences depend on a file too.
        "works": hashlib.sha256(repr(works(bench)).encode()).hexdigest()[:16],
    }
