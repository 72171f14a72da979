"""A device profile assembled from its measured blocks, with the conditions of the box around each measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base import VERSION
from simnmt.calibrate import processor_use
from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.measurement import Measured
from simnmt.calibrate.samples import BASE
from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import EngineAccount
from simnmt.profile.consistency import reconcile
from simnmt.profile.device_profile import SCHEMA_VERSION, DeviceProfile
from simnmt.profile.doubts import busy_message
from simnmt.profile.profile_file import checked_profile

STEADY_GOVERNORS = ("performance", "userspace")


def state(box: BoxDescription) -> dict[str, Any]:
    """What may change from one moment to the next. Watches the box for half a second."""
    others = processor_use.others_cpus()
    return {
        "others_cpus": others,
        "busy": None if others is None else processor_use.is_busy(others, box),
        "load_average": None if box.load_average is None else box.load_average[0],
        "governor": box.governor,
        "frequency_mhz": box.frequency_mhz,
    }


def conditions_block(
    sessions: Sequence[dict[str, Any]], after: dict[str, Any], measured: Measured | None, pinned_cpus: Sequence[int]
) -> dict[str, Any]:
    """`conditions` of a profile: the states before each session and after the last, and how steady the reference was."""
    states = [*sessions, after]
    loads = [state["load_average"] for state in sessions if state["load_average"] is not None]
    others = [state["others_cpus"] for state in states if state.get("others_cpus") is not None]
    clocks = [state["frequency_mhz"] for state in states if state["frequency_mhz"] is not None]
    block: dict[str, Any] = {
        "load_average": max(loads, default=None),
        "governor": after["governor"],
        "frequency_mhz": clocks or None,
        "sessions": len(sessions),
        "load_average_after": after["load_average"],
        "others_cpus": max(others, default=None),
        "busy": any(state.get("busy") for state in states),
        "pinned_cpus": list(pinned_cpus),
    }
    if measured is not None:
        spoilt = disturbed_works(measured)
        if measured.frequencies_mhz:
            block["frequency_mhz"] = [float(clock_mhz) for clock_mhz in np.quantile(measured.frequencies_mhz, (0.0, 0.5, 1.0))]
            block["frequency_how"] = "least, median and greatest of the CPUs measured on, read after each reference reading"
        block |= {
            "drift": abs(measured.drift.largest),
            "drift_from": BASE,
            "reference_s": measured.drift.usual_s,
            "stretches": measured.stretches,
            "stretches_repeated": measured.repeated,
            "disturbed_cells": len(spoilt),
            "disturbed": spoilt,
        }
    return block


def busy_warnings(states: Sequence[Mapping[str, Any]], activity: str) -> list[str]:
    """Return a warning if other programs used the box in one of these states, which lie around `activity`."""
    if not any(state["busy"] for state in states):
        return []
    return [busy_message(max(state["others_cpus"] or 0.0 for state in states), activity)]


def disturbed_works(measured: Measured) -> list[str]:
    """Cells no repeat of which was free of disturbance, as `execution 2+100` (source and target tokens) or `step 2+32 x16`."""
    return [
        f"{bench} {cell.work.src_len}+{cell.work.tgt_len}" + (f" x{cell.work.batch}" if cell.work.batch > 1 else "")
        for bench, cells in measured.cells.items()
        for cell in cells
        if cell.disturbed
    ]


def remarks(block: Mapping[str, Any], measured: Measured | None, *, on_cpu: bool) -> list[str]:
    """Return what a reader of a new profile should know beside its doubts: an unsteady governor, and cells left out."""
    governor, messages = block["governor"], []
    if on_cpu and governor is not None and not set(governor.split("+")) <= set(STEADY_GOVERNORS):
        messages.append(f"the clock governor is {governor}: under performance, times vary less")
    for bench, works in {} if measured is None else measured.too_large.items():
        if works:
            least = min(works, key=lambda work: (work.batch, work.beam, work.src_len, work.tgt_len))
            messages.append(f"{bench}: {len(works)} cells from batch {least.batch} on were left out: out of memory")
    return messages


TOOL = f"simnmt calibrate, simnmt {VERSION}"


def put_together(
    settings: Settings,
    account: EngineAccount,
    box: BoxDescription,
    blocks: dict[str, Any],
    *,
    name: str,
    device_name: str | None,
) -> DeviceProfile:
    """The profile of these blocks, a sentence alone reconciled (`simnmt.profile.consistency`)."""
    src_unit, tgt_unit = settings.units
    profile = checked_profile(
        {
            "schema_version": SCHEMA_VERSION,
            "name": name,
            "device": {"name": device_name or default_device_name(account), "details": details(account, box)},
            "model": {"name": model_name(settings.model), "vocab": account.vocab},
            "length_unit": {"src": src_unit, "tgt": tgt_unit, "end_of_sentence": "both"},
            "engine": engine_block(account, settings.beam),
            "provenance": {"source": _source(settings, account), "date": now(), "tool": TOOL},
        }
        | blocks
    )
    # Drawn inferences are measured before the rounds of steps and encoders, everything else in the same rounds.
    return reconcile(profile, kind="inferred" if settings.mode == "paper" else "measured")


def completed(
    before: DeviceProfile,
    settings: Settings,
    account: EngineAccount,
    blocks: dict[str, Any],
    *,
    name: str | None,
    device_name: str | None,
) -> DeviceProfile:
    """A profile with these blocks beside its own; date, tool and conditions of its execution stay as they are.

    When and how the blocks came is added to `conditions.later`. A name that is given replaces the profile's.
    """
    kept = before.model_dump(mode="json")
    earlier = kept["conditions"] or {}
    later = {"parts": list(settings.parts), "date": now(), "tool": TOOL} | blocks["conditions"]
    if "overheads" in blocks:
        # Those that belong to parts which are not measured now stay.
        blocks = blocks | {"overheads": (kept["overheads"] or {}) | blocks["overheads"]}
    if kept["engine"] is not None:
        kept["engine"] |= _clipping(account)
    if "step" in settings.parts and before.reconciliation is not None:
        # The new steps are held against the same whole executions, not against what the old ones made of them.
        kept["execution"]["plane"] = kept["reconciliation"]["measured_plane"]
        kept["reconciliation"] = None
    source = f"{before.provenance.source}; later: {', '.join(settings.parts)}"
    profile = checked_profile(
        kept
        | blocks
        | {
            "schema_version": SCHEMA_VERSION,
            "name": name or kept["name"],
            "device": kept["device"] | ({"name": device_name} if device_name else {}),
            "provenance": kept["provenance"] | {"source": source},
            "conditions": earlier | {"later": [*earlier.get("later", []), later]},
        }
    )
    return reconcile(profile, kind="inferred") if "step" in settings.parts else profile


def now() -> str:
    """ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def engine_block(account: EngineAccount, beam: int) -> dict[str, Any]:
    """`engine` of a profile."""
    return {
        "backend": account.backend,
        "compute_type": account.compute_type,
        "device": account.device,
        "device_name": account.device_name,
        "threads": account.threads,
        "beam": beam,
        "fused": account.fused,
        "decoder": account.decoder,
        "weights": account.weights,
        **_clipping(account),
        "architecture": account.architecture,
        "versions": account.versions,
    }


def _clipping(account: EngineAccount) -> dict[str, int | None]:
    clipping = account.clipping
    return {
        "clipped_weights": None if clipping is None else clipping.clipped,
        "product_weights": None if clipping is None else clipping.weights,
    }


def default_device_name(account: EngineAccount) -> str:
    """The processor's name, and on a CPU how many threads were used of it."""
    if account.threads is None:
        return account.device_name
    return f"{account.device_name}, {account.threads} {'thread' if account.threads == 1 else 'threads'}"


def model_name(model: str) -> str:
    """A model's own name, or the last part of its path."""
    return Path(model).stem if Path(model).suffix in (".yaml", ".yml", ".json") else Path(model).name or model


def details(account: EngineAccount, box: BoxDescription) -> str:
    """What a repeat of the measurement needs of the box."""
    clock = f"governor {box.governor}" if box.governor else None
    memory = f"{box.memory_bytes / 2**30:.0f} GiB memory" if box.memory_bytes else None
    cores = f"{box.logical_cores} logical CPUs" if box.logical_cores else None
    libraries = ", ".join(f"{name} {version}" for name, version in account.versions.items())
    quota = f"a quota of {box.cpu_quota:g} CPUs" if box.cpu_quota else None
    parts = [box.board, box.cpu_model, _jetson(box), cores, quota, " ".join(box.simd), memory, clock]
    parts += [box.virtualisation, box.system, libraries]
    return "; ".join(part for part in parts if part)


def _jetson(box: BoxDescription) -> str | None:
    if box.jetson is None:
        return None
    jetpack = f" (JetPack {box.jetson.jetpack})" if box.jetson.jetpack else ""
    return f"L4T {box.jetson.l4t}{jetpack}, power mode {box.jetson.power_mode or 'not known'}"


def _source(settings: Settings, account: EngineAccount) -> str:
    how = {
        "quick": "six corner cells",
        "full": "full grid",
        "paper": f"{settings.inferences:,} inferences with the lengths of {settings.lengths}",
    }[settings.mode]
    weights = "random weights" if account.weights == "random" else "weights of a checkpoint"
    return f"measured on the box itself: {account.model} on {account.backend} {account.compute_type}, {weights}; {how}"
