"""A running service as a device: what was measured through HTTP, beside the plane of its executions.

The load generator sends sentences one after another, which gives the plane, and then at growing rates. A level of the ladder
is stated as its offered concurrency: the mean number of sentences that would be executed at once if none had to wait. Above
the knee, the service answers no faster, and sentences wait.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from simnmt.base.configuration import Configuration
from simnmt.profile.blocks import Count, Kind, NotNegative, Positive, Quantiles

Share = Annotated[float, Field(ge=0.0, le=1.0)]


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


class LoadLevel(Configuration):
    """One level of the ladder, over all its rounds: evenly spaced arrivals at one rate, whatever the service does."""

    concurrency: Positive
    """Rate times the mean time of a sentence alone."""
    rate_rps: Positive
    """Requests a second."""
    requests: Count
    answered: Annotated[int, Field(ge=0)]
    """Requests with a translation; the others were refused or not answered in time."""
    throughput_rps: NotNegative
    """Sentences of mean length answered a second, while workers neither fill nor empty."""
    executed: NotNegative
    """The same as sentences at once: seconds of executions alone that were answered in a second; median of the rounds."""
    executed_rounds: tuple[NotNegative, ...] = Field(min_length=1)
    """The same in each round of the level."""
    latency: Quantiles | None
    """Seconds from the moment at which a request was due to its answer, the round trip included; null: none was answered."""
    lateness_p99_s: NotNegative
    """99th percentile of how much later than due the generator sent; median of the rounds."""


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
    """Mean time of a sentence alone, over the different sentences: what one unit of concurrency is."""
    spread: NotNegative | None = None
    """Median over the sentences of the interquartile range over the median of their repeats; null: one repeat."""
    round_trip: RoundTrip
    streamed: StreamedTokens | None = None
    """Null: answers came as a whole."""
    ladder: tuple[LoadLevel, ...] = ()
    """Levels by rising concurrency."""
    knee_concurrency: Positive | None = None
    """Sentences that the service executes at once at most, each at the speed of one alone: greatest throughput times the mean
    time of a sentence alone. Null: the ladder did not reach it, or does not determine it."""
    knee_interval: tuple[Positive, Positive] | None = None
    """95 % interval of `knee_concurrency`."""
    knee_rps: Positive | None = None
    """The greatest throughput itself, requests a second of this text."""
    knee_reason: Annotated[str, Field(max_length=300)] = ""
    """Why the knee is left out although the ladder reached it; empty if neither holds."""
    doubts: tuple[Annotated[str, Field(min_length=1, max_length=300)], ...] = ()
    """Reasons to distrust the figures, one sentence each without a full stop."""

    @model_validator(mode="after")
    def _ladder_rises(self) -> EndpointBlock:
        levels = [level.concurrency for level in self.ladder]
        if levels != sorted(set(levels)):
            raise ValueError("ladder: the levels must rise")
        if (self.knee_concurrency is None) != (self.knee_rps is None):
            raise ValueError("knee_concurrency and knee_rps go together")
        if (self.knee_concurrency is None) != (self.knee_interval is None):
            raise ValueError("knee_concurrency and knee_interval go together")
        if self.knee_concurrency is not None and self.knee_reason:
            raise ValueError("knee_reason: only for a knee that is left out")
        return self

    @property
    def workers(self) -> int | None:
        """Workers of a simulated device that answers as much at most; None if the knee is not known."""
        return None if self.knee_concurrency is None else max(round(self.knee_concurrency), 1)

    def describe_knee(self) -> str:
        """Describe the knee, or how far the ladder went without reaching it."""
        if self.knee_reason:
            return f"left out: {self.knee_reason}"
        if self.knee_concurrency is None or self.knee_interval is None or self.knee_rps is None:
            if not self.ladder:
                return "not measured"
            last = self.ladder[-1]
            return f"not reached: {last.throughput_rps:.4g} requests a second at a concurrency of {last.concurrency:.3g}"
        low, high = self.knee_interval
        at_once = f"{self.knee_concurrency:.3g} sentences at once (95 % interval {low:.3g} to {high:.3g})"
        return f"{at_once}, {self.knee_rps:.4g} requests a second of this text (workers: {self.workers} in a scenario)"

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
        return [*lines, ("endpoint knee", self.describe_knee())]
