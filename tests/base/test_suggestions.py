"""One place decides which known name an unknown one is near to."""

from __future__ import annotations

from pathlib import Path

import pytest

import simnmt
from simnmt.base.suggestions import did_you_mean, nearest


@pytest.mark.parametrize(
    ("name", "nearest_name"), [("clout", "cloud"), ("cloud", "cloud"), ("CLOUD", "cloud"), ("zzz", None), ("", None), (7, None)]
)
def test_the_nearest_name_is_found_or_none(name: object, nearest_name: str | None) -> None:
    assert nearest(name, (known for known in ("edge", "cloud", "oracle"))) == nearest_name


def test_the_remedy_names_the_nearest_or_what_is_known() -> None:
    assert did_you_mean("len-slop", ["len_slope", "len_offset"]) == "did you mean len_slope?"
    assert did_you_mean("zzz", ["a", "b"], shown=lambda name: f"@{name}") == "known: @a, @b"
    assert did_you_mean("zzz", ["a"], "remove it") == "remove it"
    assert did_you_mean("zzz", []) == "known: none"


def test_which_names_are_near_is_decided_in_one_place() -> None:
    package = Path(simnmt.__file__).parent
    texts = {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in package.rglob("*.py")}
    assert {name for name, text in texts.items() if "difflib" in text} == {"base/suggestions.py"}
    # validation.py chooses among keys twice: those not yet given come first.
    asking = {name for name, text in texts.items() if '"did you mean' in text}
    assert asking <= {"base/suggestions.py", "scenario/validation.py"}
