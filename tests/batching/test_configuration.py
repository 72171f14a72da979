"""What a scenario may say of batching, what it comes to, and what is refused."""

from __future__ import annotations

from math import inf
from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter, ValidationError

from simnmt.batching import Batching, maxi, mini, top_up
from simnmt.batching.configuration import BatchingConfiguration

BATCHING: TypeAdapter[Any] = TypeAdapter(BatchingConfiguration)


@pytest.mark.parametrize(
    ("content", "batching"),
    [
        ({"kind": "mini"}, mini(32, longest_wait_s=0.0)),
        ({"kind": "mini", "size": 8, "longest_wait_ms": None}, mini(8)),
        ({"kind": "maxi"}, maxi(32, 1280, longest_wait_s=0.0)),
        ({"kind": "maxi", "size": 128, "longest_wait_ms": None}, maxi(128)),
        ({"kind": "top_up"}, top_up(32, 16)),
        ({"kind": "top_up", "size": 5}, top_up(5, 2)),
        ({"kind": "top_up", "size": 5, "threshold": "immediate"}, top_up(5, 4)),
        ({"kind": "top_up", "size": 1}, top_up(1, 0)),
        ({"kind": "top_up", "threshold": 0, "longest_wait_ms": 20}, top_up(32, 0, longest_wait_s=0.02)),
        ({"kind": "top_up", "size": 128, "collect": 1280}, top_up(128, 64, 1280)),
        ({"kind": "mini", "padded_tokens": 900, "encode": 4}, Batching(32, padded_tokens=900, encoded_together=4)),
    ],
)
def test_a_configuration_is_the_batching_that_it_names(content: dict[str, Any], batching: Batching) -> None:
    assert BATCHING.validate_python(content).batching == batching


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"kind": "top_up", "threshold": 40}, r"a batch of 32 .* not 40 \(give 0 to 31, half_empty or immediate\)"),
        ({"kind": "top_up", "size": 8, "threshold": 8}, "give 0 to 7"),
        ({"kind": "top_up", "threshold": -1}, "not -1"),
        ({"kind": "top_up", "threshold": "half"}, r'^1 validation error[^\0]*one of half_empty, immediate or .*, got "half"'),
        ({"kind": "top_up", "threshold": True}, "^1 validation error[^\0]*got true"),
        ({"kind": "top_up", "threshold": 3.5}, "^1 validation error[^\0]*got 3.5"),
        ({"kind": "top_up", "threshold": None}, "^1 validation error[^\0]*got null"),
        ({"kind": "mini", "threshold": 1}, "not permitted"),
        ({"kind": "maxi", "collect": 16}, r"16 are too few for one batch of 32 \(give 32 or more\)"),
        ({"kind": "maxi", "size": 2000}, "1280 are too few for one batch of 2000"),
        ({"kind": "maxi", "collect": None}, "valid integer"),
        ({"kind": "top_up", "size": 64, "collect": 63}, "give 64 or more"),
        ({"kind": "mini", "collect": 1280}, "not permitted"),
        ({"kind": "mini", "size": 0}, "greater than or equal to 1"),
        ({"kind": "mini", "longest_wait_ms": -1}, "greater than or equal to 0"),
        ({"kind": "mini", "longest_wait_ms": inf}, "finite number"),
        ({"kind": "mini", "padded_tokens": 0}, "greater than or equal to 1"),
        ({"kind": "mini", "encode": 0}, "greater than or equal to 1"),
        ({"size": 8}, "kind"),
        ({"kind": "topup"}, "mini.*maxi.*top_up"),
    ],
)
def test_what_makes_no_batching_is_refused(content: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        BATCHING.validate_python(content)


@pytest.mark.parametrize(
    ("content", "allowed"),
    [
        ({"kind": "mini", "longest_wait_ms": None, "padded_tokens": None}, True),
        ({"kind": "top_up", "threshold": 3}, True),
        ({"kind": "top_up", "threshold": "immediate", "collect": 64}, True),
        ({"kind": "top_up", "threshold": "full"}, False),
        ({"kind": "maxi", "longest_wait_ms": -1}, False),
        ({"size": 8}, False),
    ],
)
def test_the_schema_for_editors_says_the_same(content: dict[str, Any], allowed: bool) -> None:
    assert jsonschema.Draft202012Validator(BATCHING.json_schema()).is_valid(content) == allowed
    if allowed:
        BATCHING.validate_python(content)
