"""What the campaigns share: how many cases, from which seed, and which case failed.

`SIMNMT_CAMPAIGN_SCALE` multiplies the number of cases (1), `SIMNMT_CAMPAIGN_SEED` draws others (17), and `SIMNMT_CAMPAIGN_CASE`
repeats one case alone, with its traceback. `make check-deep` runs the campaigns at a scale of 10, and with them the tests and
cases marked `deep`, in whatever file they stand; at a scale of 1 these are left out.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import pytest

from simnmt.base.errors import InputError
from simnmt.cli.terminal import complaint_line
from tests.command_line import assert_complaint

SEED = int(os.environ.get("SIMNMT_CAMPAIGN_SEED", "17"))
SCALE = float(os.environ.get("SIMNMT_CAMPAIGN_SCALE", "1"))
ONE_CASE = os.environ.get("SIMNMT_CAMPAIGN_CASE")
SUITE_SHARE = 0.25
"""Of a campaign's cases at a scale of 1 or less, as in the suite."""
MOST_FAILURES = 10
"""A campaign ends after so many."""

Place = tuple[str | int, ...]


def deep(*values: Any) -> Any:
    """Return a case of `parametrize` that only `make check-deep` runs."""
    return pytest.param(*values, marks=pytest.mark.deep)


def thinned(cases: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """Return the cases of `parametrize`, of which all but those in `kept` run in `make check-deep` alone."""
    cases = list(cases)
    assert all(case in cases for case in kept), "a case to keep is none"
    return [case if case in kept else deep(*(case if isinstance(case, tuple) else (case,))) for case in cases]


ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 1.0, 0.5, -0.5, 1e-9, 1e12, 10**30, 5e-324, -0.0, 2**63, 1e300, "", " ", "x", "auto",
    "@cp1", "20 Mbit/s", "7", "a/b", "\t", "\x1b[31m", "\u202e", [], [1], ["x"], {}, {"x": 1}, [[]],
    {"kind": "poisson", "rate_rps": 1.0}, {"constant_ms": 50}, {"csv": "a.csv"}, {"rtt": "@cp1"},
]  # fmt: skip
ODD_KEYS = [
    "x", "", " ", "Upper", "a" * 31, "a" * 81, "with/slash", "back\\slash", "tab\t", "é", "0", "kind", "\x1b[31m", "\u202e",
]  # fmt: skip


def run_cases(campaign: str, cases: int, check: Callable[[random.Random], object]) -> None:
    """Check `cases` times SCALE cases, in the suite a quarter of them, and fail with the number and message of each failure.

    A case may end in an `InputError` in short lines: the input is refused.
    """
    numbers = range(max(1, round(cases * SCALE * (1.0 if SCALE > 1.0 else SUITE_SHARE))))
    failures: list[str] = []
    for number in [int(ONE_CASE)] if ONE_CASE else numbers:
        try:
            try:
                check(random.Random(f"{campaign} {SEED} {number}"))
            except InputError as refusal:
                assert_short_lines(refusal)
        except (Exception, pytest.fail.Exception) as failure:
            if ONE_CASE:
                raise
            failures.append(f"case {number}: {type(failure).__name__}: {str(failure)[:1500]}")
        if len(failures) == MOST_FAILURES:
            break
    if failures:
        repeat = f"SIMNMT_CAMPAIGN_SEED={SEED} SIMNMT_CAMPAIGN_CASE=NUMBER repeats one case"
        pytest.fail(f"campaign {campaign}; {repeat}\n" + "\n".join(failures), pytrace=False)


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the place of every key and item below a value of JSON."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, below in children:
        yield (*place, part)
        yield from places(below, (*place, part))


def mutate(
    data: Any,
    generator: random.Random,
    *,
    keys: list[str] | None = None,
    value_of: Callable[[str | int, Any], Any] | None = None,
    every: list[Place] | None = None,
) -> Any:
    """Return a copy of JSON with one value replaced, or one key removed, renamed or added.

    `keys` are the names that a key may get (by default odd ones), `value_of` returns the new value of a key (by default an odd
    one), and `every` lists the places of `data` if the caller has them.
    """
    keys = keys or ODD_KEYS
    value_of = value_of or (lambda key, old: generator.choice([old, *ODD_VALUES]))
    changed = copy.deepcopy(data)
    every = every or list(places(changed))
    if not every:
        return copy.deepcopy(value_of("", changed))
    *around, part = generator.choice(every)
    holder: Any = changed
    for step in around:
        holder = holder[step]
    change = generator.choice(["replace", "replace", "replace", "remove", "rename", "add"])
    if change == "remove":
        del holder[part]
    elif change == "rename" and isinstance(holder, dict):
        holder[generator.choice(keys)] = holder.pop(part)
    elif change == "add" and isinstance(holder, dict):
        key = generator.choice(keys)
        holder[key] = copy.deepcopy(value_of(key, holder[part]))
    else:
        holder[part] = copy.deepcopy(value_of(part, holder[part]))
    return changed


def mutate_bytes(content: bytes, generator: random.Random) -> bytes:
    """Return the content with some bytes replaced, cut out, doubled or inserted, as a fault of a disk or an attacker would."""
    changed = bytearray(content)
    for _ in range(generator.choice([1, 1, 2, 5])):
        start = generator.randrange(len(changed) + 1)
        end = min(len(changed), start + generator.choice([1, 1, 2, 8, 100]))
        change = generator.choice(["replace", "cut", "double", "insert", "truncate"])
        if change == "replace":
            changed[start:end] = generator.randbytes(end - start)
        elif change == "cut":
            del changed[start:end]
        elif change == "double":
            changed[start:start] = changed[start:end]
        elif change == "insert":
            changed[start:start] = generator.choice(_INSERTED)
        elif generator.random() < 0.2:
            del changed[start:]
    return bytes(changed)


_INSERTED = [
    b"\x00", b"\xff", b"\n", b"\r", b"\t", b",", b";", b'"', b"'", b"-", b"1e999", b"nan", b"inf", b"-1", b"0", b"9" * 400,
    b"{", b"[", b"}", b"]", b": ", b"&a ", b"*a ", b"<<: ", b"!!python/object:x ", b"| ", b"\xef\xbb\xbf", b"\x1b[31m",
    "\u202e".encode(), "\u2028".encode(), b"\xed\xa0\x80", b"1_0", b"0x1f", b"1" + b"0" * 5000, b"? ", b"#", b"%", b"---\n",
    b"...\n",
]  # fmt: skip


def assert_short_lines(error: Exception) -> None:
    """Assert that the command line reports an error of the library in printable lines of at most 300 characters."""
    lines = f"simnmt: {error}".split("\n")
    assert_complaint("".join(f"{complaint_line(line)}\n" for line in lines))
    assert all(line.isprintable() for line in lines), lines
