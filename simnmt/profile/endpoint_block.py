"""A running service as a device: what was measured through HTTP, beside the plane of its executions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from simnmt.base.configuration import Configuration
from simnmt.profile.blocks import Count, Kind, NotNegative, Positive, Quantiles


class RoundTrip(Configuration):
    """The way to the service and back, and the service's own handling of HTTP."""

    how: Literal["echo", "included"]
    """`echo`: measured by a request that translates nothing, and taken off every time of the profile. `included`: the times
    contain it, because the service answers no such request, or none that is shorter than a sentence."""
    echo: str = ""
    """The request that translates nothing, such as `GET /languages`; empty if the service answers none."""
    seconds: Quantiles | None = None
    """Times of the echo, between the sentences."""
    taken_off_s: NotNegative = 0.0
    """The median echo; on a busy box the median over the sentences of the least echo beside each."""

    @model_validator(mode="after")
    def _has_its_echo(self) -> RoundTrip:
        if bool(self.echo) != (self.seconds is not None):
            raise ValueError("echo and seconds go together")
        if self.how == "echo" and self.seconds is None:
            raise ValueError("seconds: needed with how echo")
        if self.how == "included" and self.taken_off_s > 0.0:
            raise ValueError("taken_off_s: must be 0 with how included")
        return self

    def describe(self) -> str:
        """Describe how the profile treats the round trip."""
        if self.how == "included" or self.seconds is None:
            return "round trip included"
        return f"round trip of {1e3 * self.taken_off_s:.3g} ms ({self.echo}, {self.seconds.repeats} times) taken off"


class StreamedTokens(Configuration):
    """Times of the tokens of a streamed answer, one sentence at a time."""

    first_token: Quantiles
    """From sending to the first token, less the round trip that was taken off."""
    between_tokens: Quantiles
    """Mean time between two tokens of an answer."""


class EndpointBlock(Configuration):
    """A running service that was measured through HTTP."""

    kind: Kind
    api: str
    """Its protocol, such as `libretranslate`."""
    url: str
    source: str
    """Language of the text."""
    target: str
    """Language of the translations."""
    sentences: Count
    """Different sentences that were sent."""
    requests: Count
    """Requests one after another, from which the plane follows."""
    mean_s: Positive
    """Mean time of a sentence alone, over the different sentences."""
    spread: NotNegative | None = None
    """Median over the sentences of the interquartile range over the median of their repeats; null: one repeat."""
    round_trip: RoundTrip
    streamed: StreamedTokens | None = None
    """Null: answers came as a whole."""
    doubts: tuple[Annotated[str, Field(min_length=1, max_length=300)], ...] = ()
    """Reasons to distrust the figures, one sentence each without a full stop."""

    def facts(self) -> list[tuple[str, str]]:
        """Return (label, value) lines."""
        service = f"{self.kind}: {self.api} at {self.url}, {self.source} to {self.target}, through HTTP"
        spread = "" if self.spread is None else f"; repeats spread by {100 * self.spread:.2g} %"
        lines = [
            ("endpoint", f"{service}; {self.requests:,} requests of {self.sentences} sentences{spread}"),
            ("endpoint network", self.round_trip.describe()),
        ]
        if self.streamed is not None:
            first, between = self.streamed.first_token, self.streamed.between_tokens
            tokens = f"first after {1e3 * first.median_s:.4g} ms, then every {1e3 * between.median_s:.4g} ms (medians)"
            lines.append(("endpoint tokens", tokens))
        return lines
