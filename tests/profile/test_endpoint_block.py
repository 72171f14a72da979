"""The block of a running service in a device profile."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from simnmt.profile.blocks import Quantiles
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.endpoint_block import EndpointBlock, LoadLevel, RoundTrip
from simnmt.profile.profile_summary import facts


def level(concurrency: float, executed: float) -> LoadLevel:
    return LoadLevel(
        concurrency=concurrency,
        rate_rps=10.0 * concurrency,
        requests=30,
        answered=30,
        throughput_rps=10.0 * executed,
        executed=executed,
        executed_rounds=(executed,),
        latency=Quantiles.of([0.1, 0.2]),
        lateness_p99_s=0.0,
    )


def block(**fields: Any) -> EndpointBlock:
    given = {"kind": "measured", "api": "libretranslate", "url": "http://box:5000", "source": "de", "target": "en"}
    numbers = {"sentences": 12, "requests": 48, "mean_s": 0.1, "round_trip": RoundTrip(how="included")}
    return EndpointBlock.model_validate(given | numbers | fields)


@pytest.mark.parametrize(("knee", "workers"), [(2.7, 3), (0.4, 1), (None, None)])
def test_workers_are_the_nearest_whole_number_of_the_knee(knee: float | None, workers: int | None) -> None:
    fields = {} if knee is None else {"knee_concurrency": knee, "knee_interval": (knee, knee), "knee_rps": 10.0 * knee}
    assert block(**fields).workers == workers


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"ladder": (level(2.0, 2.0), level(1.0, 1.0))}, "ladder: the levels must rise"),
        ({"knee_concurrency": 2.0}, "knee_concurrency and knee_rps go together"),
        ({"knee_concurrency": 2.0, "knee_rps": 20.0}, "knee_concurrency and knee_interval go together"),
        (
            {"knee_concurrency": 2.0, "knee_interval": (1.0, 3.0), "knee_rps": 20.0, "knee_reason": "unsteady"},
            "knee_reason: only for a knee that is left out",
        ),
        ({"round_trip": {"how": "echo"}}, "seconds: needed with how echo"),
        ({"round_trip": {"how": "included", "echo": "GET /languages"}}, "echo and seconds go together"),
        ({"round_trip": {"how": "included", "taken_off_s": 0.1}}, "taken_off_s: must be 0 with how included"),
    ],
)
def test_contradictions_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        block(**fields)


def test_a_ladder_that_found_no_knee_says_how_far_it_went() -> None:
    assert block(ladder=(level(1.0, 1.0), level(2.0, 1.9))).describe_knee() == (
        "not reached: 19 requests a second at a concurrency of 2"
    )


def test_a_knee_shows_its_interval_and_one_that_is_left_out_its_reason() -> None:
    known = block(ladder=(level(1.0, 1.0),), knee_concurrency=2.96, knee_interval=(2.8, 3.1), knee_rps=29.6)
    assert known.describe_knee() == (
        "2.96 sentences at once (95 % interval 2.8 to 3.1), 29.6 requests a second of this text (workers: 3 in a scenario)"
    )
    assert block(ladder=(level(1.0, 1.0),), knee_reason="the levels differ").describe_knee() == "left out: the levels differ"


def test_a_profile_shows_its_service_and_repeats_its_doubts(make_profile: Any) -> None:
    profile = make_profile((0.001, 0.008, 0.010)).model_copy(update={"endpoint": block(doubts=("the knee was not reached",))})
    assert "the knee was not reached" in [doubt.message for doubt in profile_doubts(profile, ["execution"])]
    shown = facts(profile)
    place = [label for label, _ in shown].index("endpoint knee")
    assert ("warning", "the knee was not reached") in shown[place + 1 : place + 3]
    included, recorded = profile_doubts(profile, ["execution"])
    assert included.effect and not recorded.effect
    assert dict(shown)["endpoint network"] == "round trip included"


def test_the_profile_of_a_box_has_no_place_for_a_service(make_profile: Any) -> None:
    assert "endpoint" not in make_profile((0.001, 0.008, 0.010)).model_dump(mode="json")
