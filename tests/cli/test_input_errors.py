"""Any `InputError`, whatever its text, ends a command with status 2 and one short printable line with its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.base.errors import InputError
from simnmt.cli import app
from simnmt.scenario.errors import ScenarioError
from tests.refusals import assert_one_line

TEXTS = st.text(max_size=400) | st.sampled_from(["a\nb", "\x1b[31m", "x" * 2_000, "Usage: a"])
PLACES = st.sampled_from([(None, None), (7, None), (7, 5)])


@given(st.sampled_from([InputError, ScenarioError]), TEXTS, st.none() | TEXTS, PLACES)
def test_an_input_error_is_one_short_line_with_its_place(
    kind: type[InputError], what: str, remedy: str | None, place: tuple[int | None, int | None]
) -> None:
    line, column = place
    error = kind(what, path="a file.yaml", line=line, column=column, remedy=remedy)

    def parser(verb: str) -> Any:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr(app, "_parser", parser)
        patch.setattr(app.sys, "argv", ["simnmt", "run"])
        patch.setattr("builtins.print", lambda text, file: printed.append(f"{text}\n"))
        assert app._run() == 2
    (err,) = printed
    assert_one_line(err)
    assert err.startswith("simnmt: a file.yaml:" + "".join(f"{part}:" for part in place if part is not None))


def test_no_kind_of_input_error_formats_itself_otherwise() -> None:
    kinds = [InputError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert {kind.__name__ for kind in kinds if "__str__" in vars(kind)} <= {"InputError", "ScenarioError"}
