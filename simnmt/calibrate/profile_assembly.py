"""A device profile assembled from its measured blocks, with the conditions of the box around each measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from simnmt.calibrate.box import BoxDescription, BusyWatch, is_busy
from simnmt.calibrate.harness import counted
from simnmt.nmt.engine import EngineAccount
from simnmt.profile.blocks import overheads_times
from simnmt.profile.decoder_settings import DecoderOptions
from simnmt.profile.device_profile import SCHEMA_VERSION, DeviceProfile, checked_profile
from simnmt.profile.doubts import alone_vs_plane
from simnmt.profile.origin import Conditions, Device, EngineBlock, Model

STEADY_GOVERNORS = ("performance", "userspace")
_ACCOUNT = ("backend", "compute_type", "device", "device_name", "threads", "fused", "weights", "architecture", "versions")
"""Fields of an engine's account that `engine` of a profile has too."""
Blocks = Mapping[str, Any]
"""Measured blocks of a profile by name, `overheads` as a mapping; None for a block that could not be measured."""
CELL = ["cell", "src_len", "tgt_len", "batch"]


def state(box: BoxDescription) -> Conditions:
    """Return the present load, clock and governor of the box, which is watched for half a second."""
    others = BusyWatch.over_span()
    return Conditions(
        others_cpus=others,
        busy=None if others is None else is_busy(others, box),
        load_average=None if box.load_average is None else box.load_average[0],
        governor=box.governor,
        frequency_mhz=box.frequency_mhz,
    )


def conditions_block(
    before: Conditions, after: Conditions, frame: pd.DataFrame | None, pinned_cpus: Sequence[int], gap_s: float | None = None
) -> Conditions:
    """Return `conditions` of a profile: the state before the session and after it, and the drift of the reference work.

    `frame`: rows that were measured beside reference work; None if there are none.
    """
    states = (before, after)
    busy = [state.busy for state in states if state.busy is not None]
    return Conditions(
        load_average=before.load_average,
        governor=after.governor,
        frequency_mhz=tuple(state.frequency_mhz for state in states if isinstance(state.frequency_mhz, float)) or None,
        others_cpus=max((state.others_cpus for state in states if state.others_cpus is not None), default=None),
        busy=any(busy) if busy else None,
        gap_s=gap_s,
        **(
            {"load_average_after": after.load_average, "pinned_cpus": [*pinned_cpus]} | ({} if frame is None else _drift(frame))
        ),
    )


def _drift(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the fields of `conditions` on the steadiness of the reference work, and on the cells that stayed disturbed."""
    stretches, rows = frame.drop_duplicates(["attempt", "stretch"]), counted(frame)
    readings = np.array([reading for pair in stretches["reference_s"] for reading in pair])
    usual_s = float(np.quantile(readings, 0.25))
    cells = rows.loc[rows["disturbed"], CELL].drop_duplicates().itertuples(index=False)
    disturbed = tuple(f"{cell} {src}+{tgt}" + (f" x{batch}" if batch > 1 else "") for cell, src, tgt, batch in cells)
    return {
        "drift": float(np.abs(readings / usual_s - 1.0).max()),
        "drift_from": "the lower quartile of all readings",
        "reference_s": usual_s,
        "stretches": int((stretches["attempt"] == 0).sum()),
        "stretches_repeated": int((stretches["attempt"] > 0).sum()),
        "disturbed_cells": len(disturbed),
        "disturbed": disturbed,
    }


def remarks(governor: str | None, *, on_cpu: bool) -> list[str]:
    """Return a remark on an unsteady governor, if any."""
    is_steady = governor is None or set(governor.split("+")) <= set(STEADY_GOVERNORS)
    return [f"the clock governor is {governor}: under performance, times vary less"] if on_cpu and not is_steady else []


def new_profile(
    name: str, account: EngineAccount, box: BoxDescription, blocks: Blocks, *, device_name: str | None = None, beam: int = 1
) -> DeviceProfile:
    """Return the checked profile of these blocks. `device_name`: None for the processor and its threads."""
    path, threads = Path(account.model), account.threads
    of_threads = "" if threads is None else f", {threads} thread{'' if threads == 1 else 's'}"
    model_name = path.stem if path.suffix in (".yaml", ".yml", ".json") else path.name
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "device": Device(name=device_name or account.device_name + of_threads, details=_details(account, box)),
        "model": Model(name=model_name or account.model, vocab=account.vocab),
        "engine": engine_block(account, beam),
        **blocks,
    }
    return checked_profile(DeviceProfile.model_construct(**content).model_dump(mode="json"))


def completed(before: DeviceProfile, blocks: Blocks, conditions: Conditions, parts: Sequence[str], tool: str) -> DeviceProfile:
    """Return a profile with further blocks; date, tool and conditions of its execution do not change.

    Date, tool and conditions of the new blocks are added to `conditions.later`. Overheads of parts that are not measured now
    stay.
    """
    earlier = before.conditions or Conditions()
    later = conditions.model_copy(update={"gap_s": None, "parts": tuple(parts), "date": now(), "tool": tool})
    update: dict[str, object] = {
        **blocks,
        "overheads": {**before.overheads, **blocks.get("overheads", {})},
        "conditions": earlier.model_copy(update={"later": (*earlier.later, later)}),
        "provenance": before.provenance.model_copy(update={"source": f"{before.provenance.source}; later: {', '.join(parts)}"}),
    }
    return checked_profile(before.model_copy(update=update).model_dump(mode="json"))


def with_batches_at_pace(profile: DeviceProfile) -> DeviceProfile:
    """Return the profile with encoder, steps, gaps and joining at the pace of its whole executions (XP-01).

    Whole executions and their parts are measured by different benches, on a box whose speed varies, and only whole executions
    follow the gaps of `Settings.gap_s`. All costs of batches are multiplied by one factor, so that a sentence alone takes the
    plane's time on the mean over a shipped length table. The same profile if it lacks steps or encoder from batch 1 on.
    """
    step, encoder, apart = profile.step, profile.encoder, alone_vs_plane(profile)
    if apart is None or step is None or encoder is None or step.batch[0] != 1 or encoder.batch[0] != 1:
        return profile
    pace = 1.0 / (1.0 + apart)
    source = f"{profile.provenance.source}; costs of batches at a pace of {pace:.4g}"
    changed: dict[str, object] = {
        "step": step.times(pace),
        "encoder": encoder.times(pace),
        "overheads": overheads_times(profile.overheads, pace),
        "provenance": profile.provenance.model_copy(update={"source": source}),
    }
    return profile.model_copy(update=changed)


def now() -> str:
    """Return the time in ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def engine_block(account: EngineAccount, beam: int) -> EngineBlock:
    """Return `engine` of a profile."""
    clipping = account.clipping
    return EngineBlock(
        **{name: getattr(account, name) for name in _ACCOUNT},
        beam=beam,
        decoder=None if account.decoder is None else DecoderOptions(**account.decoder),
        clipped_weights=None if clipping is None else clipping.clipped,
        product_weights=None if clipping is None else clipping.weights,
    )


def _details(account: EngineAccount, box: BoxDescription) -> str:
    memory_gib = None if box.memory_bytes is None else box.memory_bytes / 2**30
    counts = {"{} logical CPUs": box.logical_cores, "a quota of {} CPUs": box.cpu_quota, "{:.0f} GiB memory": memory_gib}
    facts = [box.board, box.cpu_model, box.jetson, " ".join(box.simd), box.virtualisation, box.system]
    facts += [text.format(count) for text, count in (counts | {"governor {}": box.governor}).items() if count]
    return "; ".join(filter(None, [*facts, *(f"{name} {version}" for name, version in account.versions.items())]))
