"""Puts a device profile together from what was measured."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from simnmt import __version__
from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.overheads import overhead
from simnmt.calibrate.settings import Settings
from simnmt.costs import DeviceProfile, checked_profile
from simnmt.costs.profile import SCHEMA_VERSION
from simnmt.nmt.engine import EngineAccount


def put_together(
    settings: Settings,
    account: EngineAccount,
    box: BoxDescription,
    blocks: dict[str, Any],
    *,
    name: str,
    device_name: str | None,
    before: DeviceProfile | None,
) -> DeviceProfile:
    """The profile of these blocks; those that were not measured are kept from the profile `before`, if there is one."""
    kept = {} if before is None else before.model_dump(mode="json")
    src_unit, tgt_unit = settings.units
    source = _source(settings, account)
    if before is not None:
        source = f"{before.provenance.source}; later: {', '.join(settings.parts)}"
        blocks = _completing(kept, blocks)
    return checked_profile(
        kept
        | {
            "schema_version": SCHEMA_VERSION,
            "name": name,
            "device": {"name": device_name or default_device_name(account), "details": _details(account, box)},
            "model": {"name": model_name(settings.model), "vocab": account.vocab},
            "length_unit": {"src": src_unit, "tgt": tgt_unit},
            "engine": engine_block(account, settings.beam),
            "provenance": {
                "source": source,
                "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "tool": f"simnmt calibrate, simnmt {__version__}",
            },
        }
        | blocks
    )


def _completing(kept: dict[str, Any], blocks: dict[str, Any]) -> dict[str, Any]:
    """What the later parts say beside what the execution's measurement said, not in its place."""
    blocks = blocks | {"conditions": (kept["conditions"] or {}) | {"later": blocks["conditions"]}}
    if "overheads" in blocks:
        # Only whole translations tell of the gap between their steps.
        gap = (kept["overheads"] or {}).get("step_gap_s") or overhead(None, "measured with the part execution alone")
        blocks["overheads"] = blocks["overheads"] | {"step_gap_s": gap}
    return blocks


def engine_block(account: EngineAccount, beam: int) -> dict[str, Any]:
    """`engine` of a profile."""
    return {
        "backend": account.backend,
        "compute_type": account.compute_type,
        "device": account.device,
        "device_name": account.device_name,
        "threads": account.threads,
        "beam": beam,
        "weights": account.weights,
        "architecture": account.architecture,
        "versions": account.versions,
    }


def default_device_name(account: EngineAccount) -> str:
    """The processor's name, and on a CPU how many threads were used of it."""
    if account.threads is None:
        return account.device_name
    return f"{account.device_name}, {account.threads} {'thread' if account.threads == 1 else 'threads'}"


def model_name(model: str) -> str:
    """A model's own name, or the last part of its path."""
    return Path(model).stem if Path(model).suffix in (".yaml", ".yml", ".json") else Path(model).name or model


def _details(account: EngineAccount, box: BoxDescription) -> str:
    clock = f"governor {box.governor}" if box.governor else None
    memory = f"{box.memory_bytes / 2**30:.0f} GiB memory" if box.memory_bytes else None
    cores = f"{box.logical_cores} logical CPUs" if box.logical_cores else None
    libraries = ", ".join(f"{name} {version}" for name, version in account.versions.items())
    parts = [box.board, cores, " ".join(box.simd), memory, clock, box.virtualisation, box.system, libraries]
    return "; ".join(part for part in parts if part)


def _source(settings: Settings, account: EngineAccount) -> str:
    how = {
        "quick": "six corner cells",
        "full": "full grid",
        "paper": f"{settings.inferences:,} inferences with the lengths of {settings.lengths}",
    }[settings.mode]
    weights = "random weights" if account.weights == "random" else "weights of a checkpoint"
    return f"measured on the box itself: {account.model} on {account.backend} {account.compute_type}, {weights}; {how}"
