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
    "calibrate --neighbour": "start the other program yourself, and measure with --gaps",
}
"""Remedy by verb, such as `trace fetch`, or by verb and option, such as `trace import --host`."""

KEYS: Mapping[str, str] = {
    "devices.*.neighbour": "remove it: no time depended on it",
    "carbon_intensity": "remove it, and multiply mean_energy_j by your intensity: 3.6e6 J are one kWh",
    "policies.*.minimises.energy": "compare policies by objective: energy_j, or write one that compares knowledge.costs",
    "policies.*.minimises.cost": "compare policies by objective: cost_per_request, or write one that compares knowledge.costs",
    "policies.*.budget": "limit policies by slo, such as {energy_j: 2.5}, or write one that compares knowledge.costs",
}
"""Remedy by key of a scenario, or by key and value; `*` stands for a name that the user chose."""


def refuse_removed_command(arguments: Sequence[str]) -> None:
    """Raise `InputError` with the remedy if the arguments of a command line name a removed verb or option."""
    words = [argument for argument in arguments if not argument.startswith("-")]
    options = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
    for verb in (" ".join(words[:1]), " ".join(words[:2])):
        for name in (verb, *(f"{verb} {option}" for option in options)):
            if name in COMMANDS:
                raise InputError(f"simnmt {name} was removed", remedy=COMMANDS[name])


def removed_key_remedy(location: Sequence[str | int]) -> str | None:
    """Return the remedy for a removed key of a scenario; None if the key never was one."""
    key = ".".join(map(str, location))
    return next((remedy for pattern, remedy in KEYS.items() if fnmatchcase(key, pattern)), None)
