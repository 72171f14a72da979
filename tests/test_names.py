from __future__ import annotations

import pytest

from simnmt.names import nearest


@pytest.mark.parametrize(
    ("name", "found"), [("clout", "cloud"), ("cloud", "cloud"), ("edgee", "edge"), ("zzz", None), ("", None), ("CLOUD", None)]
)
def test_the_nearest_name_is_found_or_none(name: str, found: str | None) -> None:
    assert nearest(name, (known for known in ("edge", "cloud", "oracle"))) == found
