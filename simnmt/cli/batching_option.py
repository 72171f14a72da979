"""The option `--batching KIND:SIZE` of the verbs that serve a model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from simnmt.base.errors import InputError, shorten

if TYPE_CHECKING:
    from simnmt.batching import Batching
    from simnmt.batching.slots import SlotLimits

_BATCHING, _SLOTS = re.compile(r"(mini|maxi|top-up):(\d{1,5})"), re.compile(r"slots:(\d{1,5})(?::(\d{1,6}))?")


def parse_batching(text: str, longest_wait_s: float) -> Batching | SlotLimits:
    """Return the settings that the option states. Raises `InputError` for a kind or a size that no server takes."""
    from pydantic import TypeAdapter

    from simnmt.batching.batcher import MAXI
    from simnmt.batching.configuration import MOST, BatchingConfiguration

    if text.startswith("slots"):
        return _parse_slots(text, longest_wait_s)
    match = _BATCHING.fullmatch(text)
    if match is None or not 1 <= (size := int(match[2])) <= MOST:
        remedy = "write it as mini:8, maxi:8, top-up:8 or slots:8"
        raise InputError(f"--batching {shorten(text)!r} is no kind with a size", remedy=remedy)
    content = {"kind": match[1].replace("-", "_"), "size": size, "longest_wait_ms": 1e3 * longest_wait_s}
    collected = {"collect": max(MAXI, size)} if match[1] == "maxi" else {}
    settings: Any = TypeAdapter(BatchingConfiguration).validate_python(content | collected)
    batching: Batching = settings.batching
    return batching


def _parse_slots(text: str, longest_wait_s: float) -> SlotLimits:
    from simnmt.batching.slots import DEFAULT_CHUNK, SlotLimits

    match = _SLOTS.fullmatch(text)
    if match is None or longest_wait_s:
        what = f"--batching {shorten(text)!r} {'with --longest-wait' if match else 'has no number of slots'}"
        remedy = "write it as slots:4, or slots:4:512 with the most tokens of an iteration, and leave --longest-wait out"
        raise InputError(what, remedy=remedy)
    slots = int(match[1])
    chunk = int(match[2] or max(DEFAULT_CHUNK, slots))
    try:
        return SlotLimits(slots, chunk)
    except ValueError as error:
        raise InputError(f"--batching: {error}", remedy="give 1 slot or more, and no fewer tokens than slots") from None
