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


REFUSED = [
    ({"kind": "top_up", "threshold": 40}, ()),
    ({"kind": "top_up", "size": 8, "threshold": 8}, ()),
    ({"kind": "maxi", "collect": 16}, ()),
    ({"kind": "maxi", "size": 2000}, ()),
    ({"kind": "top_up", "size": 64, "collect": 63}, ()),
    ({"kind": "top_up", "threshold": -1}, "threshold"),
    ({"kind": "top_up", "threshold": "half"}, "threshold"),
    ({"kind": "top_up", "threshold": True}, "threshold"),
    ({"kind": "top_up", "threshold": 3.5}, "threshold"),
    ({"kind": "top_up", "threshold": None}, "threshold"),
    ({"kind": "mini", "threshold": 1}, "threshold"),
    ({"kind": "maxi", "collect": None}, "collect"),
    ({"kind": "mini", "size": 0}, "size"),
    ({"kind": "mini", "longest_wait_ms": -1}, "longest_wait_ms"),
    ({"kind": "mini", "longest_wait_ms": inf}, "longest_wait_ms"),
    ({"kind": "mini", "padded_tokens": 0}, "padded_tokens"),
    ({"kind": "mini", "encode": 0}, "encode"),
    ({"size": 8}, ()),
    ({"kind": "topup"}, ()),
]
"""With the key that is refused; none where two keys do not fit each other, or the kind is wrong."""


@pytest.mark.parametrize(("content", "key"), REFUSED)
def test_what_makes_no_batching_is_refused_at_its_key(content: dict[str, Any], key: str) -> None:
    with pytest.raises(ValidationError) as refused:
        BATCHING.validate_python(content)
    assert not key or any(key in error["loc"] for error in refused.value.errors())


@pytest.mark.parametrize(
    ("content", "allowed"),
    [
        ({"kind": "mini", "longest_wait_ms": None, "padded_tokens": None}, True),
        ({"kind": "top_up", "threshold": 3}, True),
        ({"kind": "top_up", "threshold": "full"}, False),
        ({"kind": "maxi", "longest_wait_ms": -1}, False),
        ({"size": 8}, False),
    ],
)
def test_the_schema_for_editors_allows_the_same(content: dict[str, Any], allowed: bool) -> None:
    assert jsonschema.Draft202012Validator(BATCHING.json_schema()).is_valid(content) == allowed
