"""Puts a device profile together from what was measured."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from simnmt import __version__
from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.settings import Settings
from simnmt.costs import DeviceProfile, checked_profile
from simnmt.costs.profile import SCHEMA_VERSION
from simnmt.costs.reconciliation import reconciled
from simnmt.nmt.engine import EngineAccount

TOOL = f"simnmt calibrate, simnmt {__version__}"


def put_together(
    settings: Settings,
    account: EngineAccount,
    box: BoxDescription,
    blocks: dict[str, Any],
    *,
    name: str,
    device_name: str | None,
) -> DeviceProfile:
    """The profile of these blocks, a sentence alone reconciled (`simnmt.costs.reconciliation`)."""
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
    return reconciled(profile, kind="inferred" if settings.mode == "paper" else "measured")


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
    return reconciled(profile, kind="inferred") if "step" in settings.parts else profile


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
