"""Checks before any measurement that refuse calibrations that would fail at the end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from simnmt.base.files import is_standard, refuse_replacing
from simnmt.calibrate import profile_assembly
from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.parts.corrections import text_translator
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.nmt.engine import EngineAccount, Work
from simnmt.profile.blocks import ProfileError
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_file import read_profile

_OF_THE_ENGINE = ("backend", "compute_type", "device", "device_name", "threads", "beam", "fused", "architecture", "versions")


def profile_there(path: Path, settings: Settings) -> DeviceProfile | None:
    """Return the profile that will be replaced, if any. Raise if `path` is unwritable or the profile to complete is missing."""
    refuse_unwritable(path, "--out")
    lengths = None if settings.lengths is None or settings.lengths.startswith("@") else settings.lengths
    refuse_replacing(path, settings.model, lengths, settings.text, *settings.vocabulary)
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
    theirs, ours = before.engine, profile_assembly.engine_block(account, settings.beam)
    differing = [(key, getattr(theirs, key, None), getattr(ours, key)) for key in _OF_THE_ENGINE]
    if theirs is not None and theirs.decoder is not None and ours.decoder is not None:
        differing += [(f"decoder.{key}", getattr(theirs.decoder, key), value) for key, value in ours.decoder]
    for key, one, other in differing:
        if one != other:
            what = f"the profile to complete is of {key} {one!r}, this is {other!r}"
            raise CalibrationError(what, path=path, remedy="choose another --out and add execution to --part")


def same_units(before: DeviceProfile, settings: Settings, path: Path) -> None:
    """Raise `CalibrationError` if the profile to complete has other length units: its costs per token are not converted."""
    unit = before.length_unit
    for side, given, kept in (("source", settings.src_unit, unit.src), ("target", settings.tgt_unit, unit.tgt)):
        if given is not None and given != kept:
            what = f"the profile to complete has costs per {side} token of unit {kept}, --unit is {given}"
            remedy = "leave --unit out, or choose another --out and add execution to --part"
            raise CalibrationError(what, path=path, remedy=remedy)


def check_text(account: EngineAccount, settings: Settings) -> None:
    """Refuse a text that is useless for this model or cannot be read, before hours of measuring.

    Raises `CalibrationError`, `CorpusError` or `NmtError`.
    """
    if settings.text is None:
        return
    if account.weights != "checkpoint":
        what = f"{settings.model} has random weights, whose translations say nothing of text"
        raise CalibrationError(what, remedy="give the folder of a trained model, or leave --text and --vocabulary out")
    if settings.vocabulary:
        from simnmt.calibrate.vocabulary_variants import TextDecoding

        TextDecoding.load(settings, None)
    elif settings.backend == "torch":
        text_translator(settings)
    else:
        from simnmt.calibrate.sharp_agreement import encoded_text

        encoded_text(settings.model, Path(settings.text))


def threads_of(settings: Settings, box: BoxDescription) -> int | None:
    """Return the threads to measure with; by default one for each core that this process may use."""
    if settings.device != "cpu":
        return None
    if settings.threads is not None:
        check_threads(settings.threads, box)
    return settings.threads or box.usable_cores


def check_threads(threads: int, box: BoxDescription) -> None:
    """Raise `CalibrationError` for more threads than this process has CPUs."""
    if threads > box.usable_cpus:
        can = f"{box.usable_cpus} {'CPU' if box.usable_cpus == 1 else 'CPUs'}"
        remedy = f"give --threads {box.usable_cpus} or fewer"
        raise CalibrationError(f"{threads} threads on {can} would wait for each other", remedy=remedy)


def refuse_unwritable(path: Path, option: str) -> None:
    """Raise `CalibrationError` if the file of `option` could not be written at the end."""
    if is_standard(path):
        return
    if not path.parent.is_dir():
        what = "its folder does not exist"
    elif path.exists() and not path.is_file():
        what = "not a file"
    elif not os.access(path.parent, os.W_OK):
        what = "its folder cannot be written to"
    else:
        return
    raise CalibrationError(what, path=path, remedy=f"choose another {option}")
