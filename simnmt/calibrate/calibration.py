"""A whole calibration: load the model, measure its parts, fit them, and write the profile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from simnmt.base import VERSION
from simnmt.calibrate import profile_assembly
from simnmt.calibrate.box import BoxDescription, describe, pinned
from simnmt.calibrate.harness import Listener, Silent, rounds
from simnmt.calibrate.journal import Journal, journal_path
from simnmt.calibrate.parts import Bench, Part, groups
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.nmt.engine import Engine, EngineAccount, load_engine
from simnmt.profile.device_profile import DeviceProfile, read_profile, write_profile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.origin import LengthUnit, Provenance

TOOL = f"simnmt calibrate, simnmt {VERSION}"


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Result of a calibration."""

    profile: DeviceProfile
    warnings: tuple[str, ...]
    """The profile's doubts and remarks on left-out parts; one sentence each."""


def calibrate(
    settings: Settings,
    out: str | os.PathLike[str],
    *,
    device_name: str | None = None,
    listener: Listener = Silent,
    load: Callable[..., Engine] = load_engine,
    replaces_journal: bool = False,
) -> Calibrated:
    """Measure a model on this box and write its device profile to `out`.

    Each measurement is kept at once in `OUT.journal.jsonl`; the same call after an interruption resumes from there, and the
    journal is removed once the profile is written. Without the part `execution`, the profile at `out` is completed: other
    blocks and the names stay.

    Args:
        settings: parts to measure, and how.
        out: path of the profile.
        device_name: name of the box; by default that of the processor.
        listener: receives messages and progress.
        load: loads the engine.
        replaces_journal: begin anew where the journal holds measurements of other settings, instead of refusing it.

    Raises:
        CalibrationError, NmtError, ProfileError: with the measurements so far kept in the journal.
    """
    path, box = Path(out), describe()
    refuse_unwritable(path, "--out")
    if not settings.whole and not path.exists():
        remedy = "add execution to --part, or give as --out a profile to complete"
        raise CalibrationError("a profile needs the part execution", remedy=remedy)
    older = None if settings.whole else read_profile(path)
    threads = None
    if settings.device == "cpu":
        threads = settings.threads or box.usable_cores
        check_threads(threads, box)
    options = {key: getattr(settings, key) for key in ("backend", "device", "compute_type", "seed")}
    with pinned(threads) as cpus, closing(load(settings.model, threads=threads, **options)) as engine:
        account, on_cpu = engine.account, engine.account.device == "cpu"
        if on_cpu and (cpu_name := box.board or box.cpu_model):
            account = replace(account, device_name=cpu_name)  # engines do not know the name of an Arm processor
        if older is not None:
            _refuse_other(older, account, settings, path)
        _check_text(account, settings)
        bench = Bench(settings, engine, listener)
        with kept_journal(path, _header(settings, account, box), listener, replaces=replaces_journal) as journal:
            before = profile_assembly.state(box)
            frame = measure(bench, journal)
            conditions = profile_assembly.conditions_block(
                before, profile_assembly.state(describe()), frame, cpus, settings.gap_s
            )
            if older is None:
                src_unit, tgt_unit = settings.units
                header = {
                    "length_unit": LengthUnit(src=src_unit, tgt=tgt_unit, end_of_sentence="both"),
                    "provenance": Provenance(source=_source(settings, account), date=profile_assembly.now(), tool=TOOL),
                    "conditions": conditions,
                }
                profile = profile_assembly.new_profile(
                    path.stem, account, box, header | bench.blocks, device_name=device_name, beam=settings.beam
                )
            else:
                named = {} if device_name is None else {"device": older.device.model_copy(update={"name": device_name})}
                profile = profile_assembly.completed(older, named | bench.blocks, conditions, settings.parts, TOOL)
            if "step" in settings.parts:
                profile = profile_assembly.with_batches_at_pace(profile)
            write_profile(path, profile)
            journal.remove()
    remarks = profile_assembly.remarks(conditions.governor, on_cpu=on_cpu)
    doubts = [doubt.message for doubt in profile_doubts(profile)]
    return Calibrated(profile, (*doubts, *remarks, *bench.remarks))


def measure(bench: Bench, journal: Journal | None) -> pd.DataFrame | None:
    """Measure the parts, group by group, and fit them; return the rows that were measured beside reference work."""
    of_model = groups(bench.settings, bench.decoder_only)
    if not of_model:
        what = f"nothing of a decoder-only model is measured by --part {', '.join(bench.settings.parts)}"
        raise CalibrationError(what, remedy="give the parts execution and step")
    with bench.resources:
        frames = [_measure_group(number, group, bench, journal) for number, group in enumerate(of_model)]
    beside_reference = [frame for frame in frames if frame is not None]
    return pd.concat(beside_reference) if beside_reference else None


def _measure_group(number: int, group: list[Part], bench: Bench, journal: Journal | None) -> pd.DataFrame | None:
    cases = {(part.name, name): case for part in group for name, case in part.cases(bench).items()}
    if not cases:
        return None
    name = " and ".join(part.name for part in group)
    bench.listener.say(f"{name} ...")
    n, within_s = max(part.rounds(bench) for part in group), min(part.within_s for part in group)
    reference = bench.reference if group[0].beside_reference else None
    options: dict[str, Any] = {"shuffle": bench.settings.seed, "listener": bench.listener}
    frame = rounds(cases, n, within_s, reference, journal, name=name, again=not group[0].apart(bench.settings), **options)
    for part in group:
        rows = frame[[part_name == part.name for part_name, _ in frame["case"]]]
        if len(rows):
            bench.add(part.fit(rows, bench))
    # Stretches of another group have other numbers.
    frame["stretch"] = [(number, at) for at in frame["stretch"]]
    return frame if group[0].beside_reference else None


def _source(settings: Settings, account: EngineAccount) -> str:
    grid = "six corner cells" if settings.mode == "quick" else "full grid"
    engine = f"{account.model} on {account.backend} {account.compute_type}, {account.weights} weights"
    return f"measured on the box itself: {engine}; {grid}"


def _header(settings: Settings, account: EngineAccount, box: BoxDescription) -> dict[str, Any]:
    names = ("machine", "cpu_model", "board", "logical_cores", "usable_cpus")
    return {
        "settings": asdict(settings),
        "box": {name: getattr(box, name) for name in names},
        "engine": profile_assembly.engine_block(account, settings.beam).model_dump(mode="json"),
        "simnmt": VERSION,
    }


@contextmanager
def kept_journal(out: Path, header: Mapping[str, Any], listener: Listener, *, replaces: bool) -> Iterator[Journal]:
    """Yield the journal of a profile, which is kept if an exception ends the calibration, with a message to the user."""
    with closing(Journal(journal_path(out), header, replaces=replaces)) as journal:
        try:
            if journal.remark:
                listener.say(journal.remark)
            if journal.findings:
                listener.say(f"going on from {journal.path}")
            yield journal
        except BaseException:
            if journal.findings:
                listener.say(f"kept what was measured in {journal.path}; the same command goes on from there")
            raise


def refuse_unwritable(path: Path, option: str) -> None:
    """Raise `CalibrationError` if the file of `option` could not be written at the end."""
    if (path.exists() and not path.is_file()) or not os.access(path.parent, os.W_OK):
        raise CalibrationError("no file can be written there", path=path, remedy=f"choose another {option}")


def check_threads(threads: int, box: BoxDescription) -> None:
    """Raise `CalibrationError` for more threads than this process has CPUs."""
    if threads > (cpus := box.usable_cpus):
        what = f"{threads} threads on {cpus} CPU{'' if cpus == 1 else 's'} would wait for each other"
        raise CalibrationError(what, remedy=f"give --threads {cpus} or fewer")


def _refuse_other(before: DeviceProfile, account: EngineAccount, settings: Settings, path: Path) -> None:
    """Refuse to complete a profile with measurements of another engine, or with costs per token of other units."""
    theirs = {} if before.engine is None else before.engine.model_dump()
    ours = profile_assembly.engine_block(account, settings.beam).model_dump()
    # Times do not depend on weights.
    pairs = {key: (theirs.get(key), ours[key]) for key in ours if "weights" not in key}
    units = zip((before.length_unit.src, before.length_unit.tgt), (settings.src_unit, settings.tgt_unit), strict=True)
    pairs |= {f"{side} unit": (unit, given or unit) for side, (unit, given) in zip(("source", "target"), units, strict=True)}
    for key, (one, other) in pairs.items():
        if one != other:
            what = f"the profile to complete is of {key} {one!r}, this is {other!r}"
            raise CalibrationError(what, path=path, remedy="choose another --out and add execution to --part")


def _check_text(account: EngineAccount, settings: Settings) -> None:
    """Refuse a text that is useless for this model or cannot be read. A beam's text is read by the first part."""
    if settings.text is None:
        return
    if account.weights != "checkpoint":
        what = f"{settings.model} has random weights, whose translations say nothing of text"
        raise CalibrationError(what, remedy="give the folder of a trained model, or leave --text and --vocabulary out")
    if settings.vocabulary:
        from simnmt.calibrate.vocabulary_variants import TextDecoding

        TextDecoding.load(settings)
    elif settings.backend == "sharp":
        from simnmt.calibrate.sharp_agreement import encoded_text

        encoded_text(settings.model, Path(settings.text))
