"""What is refused before anything is measured: what could not end well."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from simnmt.calibrate import profiling
from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.plan import BenchPlan
from simnmt.calibrate.settings import Part, Settings
from simnmt.costs import DeviceProfile, ProfileError, read_profile
from simnmt.files import refuse_replacing
from simnmt.nmt.engine import EngineAccount

_OF_THE_ENGINE = ("backend", "compute_type", "device", "device_name", "threads", "beam", "architecture", "versions")

_TOLD_APART = ("architecture", "backend", "compute_type", "device", "threads", "beam")
_BLOCKS: dict[Part, str] = {"step": "step", "decoder": "decoder", "disk": "disk", "energy": "energy", "overheads": "overheads"}
"""Where a profile holds a part."""


def profile_there(path: Path, settings: Settings) -> DeviceProfile | None:
    """The profile that will be replaced. Raises where none could be written, or a completed one is not there."""
    _refuse_unwritable(path, "--out")
    refuse_replacing(path, *_read(settings))
    found = None
    if path.exists():
        try:
            found = read_profile(path)
        except ProfileError as error:
            what = f"stands there and is no device profile: {error.what}"
            raise CalibrationError(what, path=path, remedy="choose another --out, or remove it") from None
    if found is None and not settings.whole:
        remedy = "add execution to --only, or give as --out a profile to complete"
        raise CalibrationError("a profile needs the part execution", remedy=remedy)
    return found


def refuse_unfit_page(page: Path, out: Path, settings: Settings) -> None:
    """Raises where the page of a profile could not be written, or would replace what is read or the profile."""
    _refuse_unwritable(page, "--plot")
    refuse_replacing(page, out, *_read(settings))


def within_positions(account: EngineAccount, plans: Sequence[BenchPlan]) -> None:
    """Lengths beyond the model's are said at once, not when the longest cell's turn comes."""
    most = account.architecture.get("max_positions")
    longest = max((max(work.src_len, work.tgt_len) for plan in plans for work in plan.works), default=0)
    if most is not None and longest > most:
        remedy = "give smaller --max-src-len and --max-tgt-len, or other --lengths"
        raise CalibrationError(f"{longest} tokens where the model takes {most}", remedy=remedy)


def same_engine(before: DeviceProfile, account: EngineAccount, settings: Settings, path: Path) -> None:
    """Parts of two engines make no profile."""
    theirs = None if before.engine is None else before.engine.model_dump(mode="json")
    ours = profiling.engine_block(account, settings.beam)
    for key in _OF_THE_ENGINE:
        if theirs is None or theirs[key] != ours[key]:
            what = f"the profile to complete is of {key} {None if theirs is None else theirs[key]!r}, this is {ours[key]!r}"
            raise CalibrationError(what, path=path, remedy="choose another --out and add execution to --only")


def nothing_lost(there: DeviceProfile, account: EngineAccount, settings: Settings, path: Path) -> None:
    """A profile is replaced by a newer one of the same model on the same engine, and by nothing that says less."""
    remedy = "choose another --out, or remove it"
    ours = profiling.engine_block(account, settings.beam)
    theirs = {} if there.engine is None else there.engine.model_dump(mode="json")
    for key in _TOLD_APART:
        if theirs.get(key) != ours[key]:
            of = "another model" if key == "architecture" else f"{key} {theirs.get(key)!r}"
            raise CalibrationError(f"a profile of {of} stands there ({there.model.name})", path=path, remedy=remedy)
    lost = [part for part, block in _BLOCKS.items() if part not in settings.parts and getattr(there, block) is not None]
    if lost:
        what = f"the profile that stands there would lose its {', '.join(lost)}"
        raise CalibrationError(what, path=path, remedy=f"add {'them' if len(lost) > 1 else 'it'} to --only, or {remedy}")


def threads_of(settings: Settings, box: BoxDescription) -> int | None:
    """Threads to measure with; by default one for each core that we may use."""
    if settings.device != "cpu":
        return None
    if settings.threads is not None and settings.threads > box.usable_cpus:
        can = f"{box.usable_cpus} {'CPU' if box.usable_cpus == 1 else 'CPUs'}"
        remedy = f"give --threads {box.usable_cpus} or fewer"
        raise CalibrationError(f"{settings.threads} threads on {can} would wait for each other", remedy=remedy)
    return settings.threads or box.usable_cores


def _refuse_unwritable(path: Path, option: str) -> None:
    if not path.parent.is_dir():
        what = "its folder does not exist"
        raise CalibrationError(what, path=path, remedy=f"make the folder, or choose another {option}")
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise CalibrationError("not a file", path=path, remedy=f"choose another {option}")
    if not os.access(path.parent, os.W_OK):
        raise CalibrationError("its folder cannot be written to", path=path, remedy=f"choose another {option}")


def _read(settings: Settings) -> tuple[str | None, ...]:
    """The files that are read."""
    return settings.model, None if settings.lengths.startswith("@") else settings.lengths
