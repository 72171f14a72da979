"""What a study's plans say of memory, operations, submodels' shapes and busy time (STI-23 to 25)."""

from __future__ import annotations

from math import log10
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simnmt.reproduce.sti import published, ways
from simnmt.reproduce.sti.studies import Way, basis_of, told, unasked
from simnmt.reproduce.verdicts import UNKNOWN, Records

if TYPE_CHECKING:
    from simnmt.calibrate.sti_study.document import StudiedDevice, Study

EQUAL = 0.10
"""By how much operations and busy times may differ and still count as alike."""

MEMORY: Way = (
    "STI-23 (c)",
    "Parameters held between executions are 1 to 2 orders of magnitude fewer bytes than the whole model's",
    f"{published.MEMORY['PreloadModel-32']:g} times fewer than in full, {published.MEMORY['PreloadModel-6']:g} at 6 bits",
)
EQUAL_WORK: Way = ("STI-24 (a)", "Plans compute as many shards as the model in memory does", "as high as PreloadModel")
MORE_FULL: Way = (
    "STI-24 (b)",
    "Plans compute more shards than Load&Exec and StdPL-32",
    f"{published.SHARDS['Load&Exec, StdPL-32']:g} times",
)
MORE_LOW: Way = (
    "STI-24 (c)",
    "Plans compute more shards than StdPL-2 and StdPL-6",
    f"{published.SHARDS['StdPL-2, StdPL-6']:g} times",
)
SHAPES: Way = ("STI-24 (h)", "A processor takes deep and narrow submodels, a GPU shallow and wide ones", "")
BUSY: Way = (
    "STI-25",
    "Computation is busy for longer than with Load&Exec and StdPL-32, and for about as long as with PreloadModel-32",
    "expected, not measured",
)


def resource_claims(study: Study | None) -> Records:
    """Each claim on each device that the study plans for; of no study, that one is needed."""
    every = (MEMORY, EQUAL_WORK, MORE_FULL, MORE_LOW, SHAPES, BUSY)
    if study is None or not study.grid:
        return [unasked(way, study, "grid") for way in every]
    found = [_memory(study, device) for device in study.devices]
    found += [_equal(study, device) for device in study.devices]
    for way, methods in ((MORE_FULL, ("Load&Exec", "StdPL-32")), (MORE_LOW, ("StdPL-2", "StdPL-6"))):
        found += [_more(study, device, way, methods) for device in study.devices]
    return [*found, _shapes(study), *(_busy(study, device) for device in study.devices)]


def _memory(study: Study, device: StudiedDevice) -> dict[str, Any]:
    own = ways.of(study, device, "STI")
    found = {
        method: ways.ratio(ways.of(study, device, method), own, lambda each: each.held_bytes)
        for method in ("PreloadModel-32", "PreloadModel-6")
    }
    known = {method: ratio for method, ratio in found.items() if ratio is not None}
    if len(known) < len(found):
        return told(study, MEMORY, "", UNKNOWN, "nothing is held under a common deadline", device.name)
    ours = "; ".join(f"{ratio:.0f} times fewer than {method}" for method, ratio in known.items())
    share = 100 * device.preload_share
    whole = ways.of(study, device, "PreloadModel-32")
    working = fmean(each.working_bytes for each in own.values()) / fmean(each.held_bytes for each in whole.values())
    why = f"a buffer of {share:.2f} % of all shards in float32, as on the board, so by construction; the working buffer of one "
    why += (
        f"layer in float32, {100 * working:.1f} %, and the compressed shards that an execution reads come on top while it runs"
    )
    holds = all(log10(ratio) >= published.LEAST_ORDER for ratio in known.values())
    return told(study, MEMORY, ours, holds, why, device.name)


def _equal(study: Study, device: StudiedDevice) -> dict[str, Any]:
    own = ways.of(study, device, "STI")
    found = ways.ratio(own, ways.of(study, device, "PreloadModel-32"), lambda each: each.shards)
    if found is None:
        return told(study, EQUAL_WORK, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    return told(study, EQUAL_WORK, f"{found:.2f} times", abs(found - 1.0) <= EQUAL, "n x m, mean over deadlines", device.name)


def _more(study: Study, device: StudiedDevice, way: Way, methods: tuple[str, ...]) -> dict[str, Any]:
    own = ways.of(study, device, "STI")
    found = {method: ways.ratio(own, ways.of(study, device, method), lambda each: each.shards) for method in methods}
    known = {method: ratio for method, ratio in found.items() if ratio is not None}
    if not known:
        return told(study, way, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    ours = "; ".join(f"{ratio:.2f} times {method}" for method, ratio in known.items())
    ran = {method: len(ways.of(study, device, method)) for method in methods}
    why = f"n x m, mean over those of {len(own)} deadlines under which the other runs anything: "
    why += ", ".join(f"{method} {count}" for method, count in ran.items())
    return told(study, way, ours, all(ratio > 1.0 for ratio in known.values()), why, device.name)


def _shapes(study: Study) -> dict[str, Any]:
    """By how flat each device's computation is over slices."""
    flat = {device.name: device.comp_s[len(device.comp_s) // 4 - 1] / device.comp_s[-1] for device in study.devices}
    if len(flat) < 2 or max(flat.values()) < 0.9 or min(flat.values()) > 0.6:
        return told(
            study, SHAPES, "", UNKNOWN, "needs a device whose computation grows with slices, and one of which it hardly does"
        )
    names = sorted(flat, key=lambda name: flat[name])
    deep, shallow = (next(each for each in study.devices if each.name == name) for name in (names[0], names[-1]))
    ratios = {
        device.name: fmean(each.layers / each.slices for each in ways.of(study, device, "STI").values())
        for device in (deep, shallow)
    }
    own = [ways.of(study, device, "STI") for device in (deep, shallow)]
    shares = ways.common(*own)
    middle = shares[len(shares) // 2]
    ours = "; ".join(
        f"{name}: {way[middle].layers} x {way[middle].slices} at {ways.percent([middle])}"
        for name, way in zip(ratios, own, strict=True)
    )
    why = "; ".join(f"{name}: layers over slices {ratio:.2f} on average" for name, ratio in ratios.items())
    record = told(study, SHAPES, ours, ratios[deep.name] > ratios[shallow.name], why)
    return record | {"basis": basis_of(study, [deep.name, shallow.name])}


def _busy(study: Study, device: StudiedDevice) -> dict[str, Any]:
    own = ways.of(study, device, "STI")
    found = {
        method: ways.ratio(own, ways.of(study, device, method), lambda each: each.busy_s)
        for method in ("Load&Exec", "StdPL-32", "PreloadModel-32")
    }
    known = {method: ratio for method, ratio in found.items() if ratio is not None}
    if "PreloadModel-32" not in known or len(known) < 2:
        return told(study, BUSY, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    ours = "; ".join(f"{ratio:.2f} times as long as {method}" for method, ratio in known.items())
    near = abs(known.pop("PreloadModel-32") - 1.0) <= EQUAL
    io_s = fmean(each.io_s for each in own.values())
    why = f"the disk is busy for {1e3 * io_s:.1f} ms beside it; busy times alone, no energy was measured"
    return told(study, BUSY, ours, near and all(ratio > 1.0 for ratio in known.values()), why, device.name)
