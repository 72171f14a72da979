"""What `simnmt validate` refuses before it measures anything, and the text that it prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simnmt.live.cell_comparison import group_verdicts
from simnmt.live.validation import Validation
from simnmt.live.validation_text import format_validation
from tests.live.made_runs import result
from tests.refusals import assert_complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("@live-smoke", "--engine", "clod=gru"), "no device clod (did you mean cloud?)"),
        (("@live-smoke", "--engine", "cloud"), "write DEVICE=MODEL"),
        (("@live-smoke", "--loads", "0.2;0.5"), "write it as 0.2,0.5,0.8"),
        (("@live-smoke", "--loads", "3"), "shares of the capacity"),
        (("@live-smoke", "--policies", "oracle"), "oracle is no policy"),
        (("@live-smoke", "--batching", "{kind: minni, size: 8}"), "minni"),
        (("@live-smoke", "--repeats", "0"), "too few"),
        (("@tiers",), "validate a gateway and one server"),
        (("@live-smok",), "did you mean @live-smoke"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_measured(
    simnmt: Callable[..., Any], arguments: tuple[str, ...], complaint: str
) -> None:
    done = simnmt("validate", *arguments)
    assert done.status == 2
    assert_complaint(done.err)
    assert complaint in done.err


def test_the_text_names_every_cell_its_voids_and_the_bars() -> None:
    cells = [
        result([0.1, 0.101, 0.099], 0.15, policy="edge", structural_s=0.101),
        result([0.15, 0.151, 0.149], 0.1, policy="cloud", structural_s=0.15),
        result([0.2, 0.2, 0.2], 0.2, policy="cnmt", others_cpus=1.0),
    ]
    text = format_validation(Validation({}, cells, group_verdicts(cells), {}))
    assert "batching alone, load 0.4, link constant" in text
    assert "cnmt: void, every repeat was disturbed" in text
    assert "best live edge, simulated cloud: another; inverted: edge, cloud" in text
    assert "equivalent within 5 % by two one-sided tests: 0 of 2 cells" in text
    row = next(line for line in text.splitlines() if line.startswith("rankings inverted"))
    assert "1.00" in row and row.endswith("MISSED")
