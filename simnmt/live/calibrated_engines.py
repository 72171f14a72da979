"""Engines that a validation names itself, without a measured profile: calibrated quickly before the testbed starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean
from simnmt.calibrate.calibration import calibrate
from simnmt.calibrate.settings import Part, Settings


def parse_engine(text: str, devices: Sequence[str]) -> tuple[str, str, str, str | None]:
    """Return device, model, backend and number format of `DEVICE=MODEL[:backend[:compute_type]]`.

    Raises `InputError` for another text or an unknown device.

    Example:
        >>> parse_engine("cloud=gru:torch:float16_weights", ["gateway", "cloud"])
        ('cloud', 'gru', 'torch', 'float16_weights')
        >>> parse_engine("cloud=gru", ["gateway", "cloud"])
        ('cloud', 'gru', 'torch', None)
    """
    device, equals, engine = text.partition("=")
    model, *more = engine.split(":")
    if not equals or not model or len(more) > 2 or not all(more):
        raise InputError(f"--engine {text}: not an engine", remedy="write DEVICE=MODEL[:backend[:compute_type]]")
    if device not in devices:
        raise InputError(f"--engine {text}: the scenario has no device {device}", remedy=did_you_mean(device, devices))
    return device, model, more[0] if more else "torch", more[1] if len(more) > 1 else None


def calibrated_profile(
    text: str, devices: Sequence[str], folder: Path, *, batched: bool, progress: Callable[[str], None]
) -> tuple[str, Path]:
    """Calibrate an engine on one thread in the quick mode; return its device and its profile's file.

    The profile sets the rates of the measurement in service, which then replaces its times; costs of batches stay.

    Args:
        text: the engine, as `parse_engine` reads it.
        devices: of the scenario.
        folder: for the profile.
        batched: True to measure steps and encoders as well, which a batching server needs.
        progress: called with a line.

    Raises `InputError` for an engine that is not known, or cannot be loaded.
    """
    device, model, backend, compute_type = parse_engine(text, devices)
    parts: tuple[Part, ...] = ("execution", "step", "overheads") if batched else ("execution",)
    settings = Settings(model, backend, threads=1, compute_type=compute_type, mode="quick", parts=parts)
    progress(f"calibrating {device}: {model} on {backend}")
    path = folder / f"{device}.calibrated.json"
    calibrate(settings, path, name=f"{device}-{model}")
    return device, path
