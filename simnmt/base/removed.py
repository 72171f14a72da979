"""Verbs, options and keys of a scenario that simnmt no longer has, and what to use in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from simnmt.base.errors import InputError

COMMANDS: Mapping[str, str] = {
    "trace record": "record with ping -D or irtt, and iperf3 -J, and read the files with simnmt trace import",
    "trace respond": "run irtt server or iperf3 -s at the far end",
    "trace synth": "draw a longer trace with simnmt trace resample",
    "trace fetch": "download the results from atlas.ripe.net and read them with simnmt trace import",
    "trace import --host": "give a log of ping to one host",
    "trace inspect --host": "give a log of ping to one host",
}
"""Remedy by verb, such as `trace fetch`, or by verb and option, such as `trace import --host`."""

_NEVER_TWICE = "use late_answers.timeout_ms, after which the first device executes the request itself"
KEYS: Mapping[str, str] = {
    "late_answers.hedge_after_ms": _NEVER_TWICE,
    "late_answers.hedge_to": _NEVER_TWICE,
    "devices.*.failures.retries": _NEVER_TWICE,
    "devices.*.failures.retry_after_ms": _NEVER_TWICE,
    "networks.*.loss": "describe the times in which nothing passes by outages",
    "networks.*.retransmission": "a message that is sent during an outage is lost",
}
"""Remedy by key of a scenario; `*` stands for any names."""


def remedy_of_key(location: Sequence[str | int]) -> str | None:
    """Return the remedy for a key that was removed; None for any other key."""
    key = ".".join(map(str, location))
    return next((remedy for pattern, remedy in KEYS.items() if fnmatchcase(key, pattern)), None)


def refuse_removed_command(arguments: Sequence[str]) -> None:
    """Raise `InputError` with the remedy if the arguments of a command line name a removed verb or option."""
    words = [argument for argument in arguments if not argument.startswith("-")]
    options = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
    for verb in (" ".join(words[:1]), " ".join(words[:2])):
        for name in (verb, *(f"{verb} {option}" for option in options)):
            if name in COMMANDS:
                raise InputError(f"simnmt {name} was removed", remedy=COMMANDS[name])
