"""The block of a running service in a device profile."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from simnmt.profile.doubts import profile_doubts
from simnmt.profile.endpoint_block import EndpointBlock, RoundTrip
from simnmt.profile.profile_summary import facts


def block(**fields: Any) -> EndpointBlock:
    given = {"kind": "measured", "api": "libretranslate", "url": "http://box:5000", "source": "de", "target": "en"}
    numbers = {"sentences": 12, "requests": 48, "mean_s": 0.1, "round_trip": RoundTrip(how="included")}
    return EndpointBlock.model_validate(given | numbers | fields)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"round_trip": {"how": "echo"}}, "seconds: needed with how echo"),
        ({"round_trip": {"how": "included", "echo": "GET /languages"}}, "echo and seconds go together"),
        ({"round_trip": {"how": "included", "taken_off_s": 0.1}}, "taken_off_s: must be 0 with how included"),
    ],
)
def test_contradictions_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        block(**fields)


def test_a_profile_shows_its_service_and_repeats_its_doubts(make_profile: Any) -> None:
    profile = make_profile((0.001, 0.008, 0.010)).model_copy(update={"endpoint": block(doubts=("answers are cut",))})
    assert "answers are cut" in [doubt.message for doubt in profile_doubts(profile, ["execution"])]
    shown = facts(profile)
    place = [label for label, _ in shown].index("endpoint network")
    assert ("warning", "answers are cut") in shown[place + 1 : place + 3]
    included, recorded = profile_doubts(profile, ["execution"])
    assert included.effect and not recorded.effect
    assert dict(shown)["endpoint network"] == "round trip included"


def test_the_profile_of_a_box_has_no_place_for_a_service(make_profile: Any) -> None:
    assert "endpoint" not in make_profile((0.001, 0.008, 0.010)).model_dump(mode="json")
