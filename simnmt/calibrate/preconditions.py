"""Checks before any measurement that refuse calibrations that would fail at the end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from simnmt.base.files import is_standard, refuse_replacing
from simnmt.calibrate import profile_assembly
from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.parts.corrections import check_overrun, measures_overrun
from simnmt.calibrate.settings import PARTS, CalibrationError, Settings
from simnmt.nmt.engine import EngineAccount, Work
from simnmt.profile.blocks import ProfileError
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_file import read_profile

_OF_THE_ENGINE = ("backend", "compute_type", "device", "device_name", "threads", "beam", "fused", "architecture", "versions")

_TOLD_APART = ("architecture", "backend", "compute_type", "device", "threads", "beam", "fused")


def profile_there(path: Path, settings: Settings) -> DeviceProfile | None:
    """Return the profile that will be replaced, if any. Raise if `path` is unwritable or the profile to complete is missing."""
    refuse_unwritable(path, "--out")
    refuse_replacing(path, *_read(settings))
    profile = None
    if path.exists():
        try:
            profile = read_profile(path)
        except ProfileError as error:
            what = f"the existing file is not a device profile: {error.what}"
            raise CalibrationError(what, path=path, remedy="choose another --out, or remove it") from None
    if profile is None and not settings.whole:
        remedy = "add execution to --part, or give as --out a profile to complete"
        raise CalibrationError("a profile needs the part execution", remedy=remedy)
    return profile


def within_positions(account: EngineAccount, works: Sequence[Work]) -> None:
    """Raise `CalibrationError` for lengths beyond the model's positions, before the longest cell is reached."""
    most = account.architecture.get("max_positions")
    longest = max((max(work.src_len, work.tgt_len) for work in works), default=0)
    if most is not None and longest > most:
        remedy = "give smaller --max-src-len and --max-tgt-len, or other --lengths"
        raise CalibrationError(f"{longest} tokens where the model takes {most}", remedy=remedy)


def same_engine(before: DeviceProfile, account: EngineAccount, settings: Settings, path: Path) -> None:
    """Refuse to combine measurements from different engines."""
    theirs, ours = _facts(before, account, settings, _OF_THE_ENGINE)
    for key, value in ours.items():
        if theirs.get(key) != value:
            what = f"the profile to complete is of {key} {theirs.get(key)!r}, this is {value!r}"
            raise CalibrationError(what, path=path, remedy="choose another --out and add execution to --part")


def same_units(before: DeviceProfile, settings: Settings, path: Path) -> None:
    """Raise `CalibrationError` if the profile to complete has other length units: its costs per token are not converted."""
    unit = before.length_unit
    for side, given, kept in (("source", settings.src_unit, unit.src), ("target", settings.tgt_unit, unit.tgt)):
        if given is not None and given != kept:
            what = f"the profile to complete has costs per {side} token of unit {kept}, --unit is {given}"
            remedy = "leave --unit out, or choose another --out and add execution to --part"
            raise CalibrationError(what, path=path, remedy=remedy)


def nothing_lost(there: DeviceProfile, account: EngineAccount, settings: Settings, path: Path) -> None:
    """Refuse to replace a profile of another model or engine, or one whose parts would be lost."""
    remedy = "choose another --out, or remove it"
    theirs, ours = _facts(there, account, settings, _TOLD_APART)
    for key, value in ours.items():
        if theirs.get(key) != value:
            of = "another model" if key == "architecture" else f"{key} {theirs.get(key)!r}"
            raise CalibrationError(f"the existing profile is of {of} ({there.model.name})", path=path, remedy=remedy)
    lost = [part for part in PARTS[1:] if part not in settings.parts and getattr(there, part) is not None]
    if lost:
        what = f"the existing profile would lose its {', '.join(lost)}"
        raise CalibrationError(what, path=path, remedy=f"add {'them' if len(lost) > 1 else 'it'} to --part, or {remedy}")
    if there.beam_overrun is not None and not measures_overrun(settings):
        what = "the existing profile would lose its beam_overrun, the steps of a beam per token"
        raise CalibrationError(what, path=path, remedy=f"give --text and no --vocabulary, or {remedy}")


def agreement_can_be_told(account: EngineAccount, settings: Settings) -> None:
    """Raise for a text that is useless for this model or cannot be read, before hours of measuring."""
    if settings.text is None:
        return
    if Path(settings.text).is_fifo():
        what = "a pipe can be read only once, but the text is read before and after the timing"
        raise CalibrationError(what, path=settings.text, remedy="give a file")
    if settings.vocabulary:
        from simnmt.calibrate.vocabulary_variants import check_vocabularies

        check_vocabularies(settings, account.weights)
        return
    if account.weights != "checkpoint":
        what = f"{settings.model} has random weights, whose translations cannot be compared"
        raise CalibrationError(what, remedy="give the folder of a trained model, or leave --text out")
    if settings.backend == "torch":
        check_overrun(settings)
        return
    from simnmt.calibrate.sharp_agreement import encoded_text

    encoded_text(settings.model, Path(settings.text))


def _facts(
    profile: DeviceProfile, account: EngineAccount, settings: Settings, keys: Sequence[str]
) -> tuple[dict[str, object], dict[str, object]]:
    """Return the values of `keys` of the profile's engine and of ours, with each decoder option if both have a decoder."""
    engines = (profile.engine, profile_assembly.engine_block(account, settings.beam))
    both = all(engine is not None and engine.decoder is not None for engine in engines)
    theirs, ours = (
        {}
        if engine is None
        else {key: getattr(engine, key) for key in keys}
        | {f"decoder.{option}": value for option, value in (engine.decoder or {}) if both}
        for engine in engines
    )
    return theirs, ours


def threads_of(settings: Settings, box: BoxDescription) -> int | None:
    """Return the threads to measure with; by default one for each core that this process may use."""
    if settings.device != "cpu":
        return None
    if settings.threads is not None and settings.threads > box.usable_cpus:
        can = f"{box.usable_cpus} {'CPU' if box.usable_cpus == 1 else 'CPUs'}"
        remedy = f"give --threads {box.usable_cpus} or fewer"
        raise CalibrationError(f"{settings.threads} threads on {can} would wait for each other", remedy=remedy)
    return settings.threads or box.usable_cores


def refuse_unwritable(path: Path, option: str) -> None:
    """Raise `CalibrationError` if the file of `option` could not be written at the end."""
    if is_standard(path):
        return
    if not path.parent.is_dir():
        what = "its folder does not exist"
        raise CalibrationError(what, path=path, remedy=f"make the folder, or choose another {option}")
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise CalibrationError("not a file", path=path, remedy=f"choose another {option}")
    if not os.access(path.parent, os.W_OK):
        raise CalibrationError("its folder cannot be written to", path=path, remedy=f"choose another {option}")


def _read(settings: Settings) -> tuple[str | None, ...]:
    """Return the input files."""
    lengths = None if settings.lengths is None or settings.lengths.startswith("@") else settings.lengths
    return settings.model, lengths, settings.text, *settings.vocabulary
