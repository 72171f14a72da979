from __future__ import annotations

from pathlib import Path

from simnmt.base.errors import InputError


def test_an_address_given_as_a_path_keeps_both_slashes_in_the_message() -> None:
    assert str(InputError("no such file", path=Path("hf://x/y"))) == "hf://x/y: no such file"
    assert str(InputError("no such file", path="hf://x/y")) == "hf://x/y: no such file"
    assert str(InputError("no such file", path=Path("folder/name:/x"))) == "folder/name:/x: no such file"
