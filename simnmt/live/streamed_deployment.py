"""From a shard store, and a scenario's device or settings, to a live engine that streams its model; needs no torch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from simnmt.experiment.targets import Target
from simnmt.live.engine_process import EngineSettings, ServedModel
from simnmt.live.streamed_settings import BACKEND, StreamedSettings
from simnmt.profile.blocks import ProfileError


def settings_of(target: Target) -> StreamedSettings:
    """Return the settings of a scenario's device. Raises `ProfileError` unless its model can be streamed here."""
    sti, streaming = target.profile.sti, target.streaming
    if sti is None or streaming is None:
        remedy = f"add devices.{target.device}.sti, or serve it with `simnmt live server`"
        raise ProfileError(f"device {target.device} does not stream its model", remedy=remedy)
    spec, planned = streaming.streamed, streaming.planned
    if sti.decoder is not None:
        what = f"profile {target.profile.name} is of a model with a decoder, and only encoders are streamed from a store"
        raise ProfileError(what, remedy="name a profile of `simnmt sti profile STORE`")
    if spec.changes:
        what = f"device {target.device} changes its plans during the run, which no live server does"
        raise ProfileError(what, remedy=f"remove devices.{target.device}.sti.changes")
    return StreamedSettings(
        cost=target.profile.sti_cost,
        deadline_s=planned.deadline_s,
        preload_bytes=planned.preload_bytes,
        length=planned.src_len,
        lifecycle=spec.lifecycle,
        cache_bytes=planned.cache_bytes,
        pace_bytes_per_s=sti.io.paced_bytes_per_s,
        reads_resident=spec.cold_read_bytes > 0,
        fingerprint=sti.fingerprint,
    )


def streamed_engine(store: Path, settings: StreamedSettings, **options: Any) -> EngineSettings:
    """Return the settings of an engine that streams the model of a store; `options`: further fields, such as `cpus`."""
    return EngineSettings(str(store), BACKEND, loader=partial(_load, settings), **options)


def expected_streamed_hash(target: Target) -> str | None:
    """Return the hash of the engine that streams the model of a device; None if it is of no store that is known."""
    sti = target.profile.sti
    if sti is None or sti.fingerprint is None or sti.decoder is not None:
        return None
    return settings_of(target).engine_block(sti.fingerprint).hash


def _load(streamed: StreamedSettings, settings: EngineSettings) -> ServedModel:
    """Load the model in the engine's process."""
    from simnmt.live.streamed_model import load_streamed

    return load_streamed(streamed, settings)
