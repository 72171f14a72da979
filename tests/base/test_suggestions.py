"""One place decides which known name an unknown one is near to."""

from __future__ import annotations

import pytest

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
