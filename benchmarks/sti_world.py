"""Gateways that stream their model, in the world: `python -m benchmarks.sti_world [--json]`.

Two questions, on synthetic devices: what a request costs to simulate where every gateway streams its model, over what it costs
where all models lie in memory, on the same requests and taken in turn; and what C-NMT loses where it takes a streamed
gateway for one that has its model in memory (XP-04), beside one that knows the state and beside the oracle.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.printing import print_figures
from benchmarks.world import cpu_s
from simnmt.policies import PlanView, TransferEstimate, least_total
from simnmt.profile.streaming_cost import BITS, DecoderShards, ShardGeometry, StiCost
from simnmt.results.requests import Block, Requests, Trail
from simnmt.streaming.plan.engagement import Lifecycle, engagement
from simnmt.world.deciders import Beliefs
from simnmt.world.fifo_server import FifoPool, LeastWork
from simnmt.world.server import FewestTokens
from simnmt.world.simulation import simulate
from simnmt.world.streaming_server import StreamingPool, StreamingServerSpec

Column = NDArray[np.float64]
REQUESTS = 100_000
GATEWAYS = 20
DEADLINE_S, STEPS, LENGTH = 0.4, 15.0, 32
"""What the plans are made for: an output of so many tokens of a source of so many."""
PRELOAD_BYTES, CACHE_BYTES = 2_000_000, 6_000_000
DISK_BYTES_PER_S = 80e6
SKEW = 3.57
"""Reading a layer's float32 weights over computing it for 16 tokens (STI-21: 339 ms and 95 ms)."""
RESIDENT_BYTES = 8_000 * 512 * 2
"""Embeddings at 16 bits, which a cold start reads as well where the whole app was taken out of memory."""
HALF_RTT_S = 0.15
ENGAGEMENT_GAP_S, RECLAIMED_AFTER_S = 30.0, 300.0
BARS = {
    "streamed_over_plain": ("<=", 4.0),
    "streamed_known_over_plain": ("<=", 4.0),
    "streamed_cloud_over_plain": ("<=", 4.0),
    "cold_lost_percent": (">", 0.0),
}
"""What the project asks of the figures; a figure that misses its bar is printed as it is."""


def device(resident_bytes: int = RESIDENT_BYTES) -> StreamingServerSpec:
    """An encoder-decoder of 6 + 6 layers on a slow board: reads at 80 MB/s, computes at the paper's skew. Made up."""
    encoder, decoder = ShardGeometry(6, 8, 512, 2_048), ShardGeometry(6, 8, 512, 2_048, cross_attention=True)

    def sizes(half: ShardGeometry) -> dict[int, int]:
        return {bits: half.index_bytes(bits) + half.dictionary_bytes(bits) for bits in BITS}

    def reads_s(half: ShardGeometry) -> dict[int, float]:
        return {bits: size / DISK_BYTES_PER_S for bits, size in sizes(half).items()}

    layer_s = encoder.float32_bytes_per_layer / DISK_BYTES_PER_S / SKEW
    shares = [0.2 + 0.8 * slices / encoder.heads for slices in range(1, encoder.heads + 1)]
    cost = StiCost(
        encoder,
        reads_s(encoder),
        {length: tuple(layer_s * length / 16 * share for share in shares) for length in (8, 16, 32, 64)},
        sizes(encoder),
        DecoderShards(decoder, reads_s(decoder), sizes(decoder), tuple(layer_s / 16 * share for share in shares)),
    )
    turns = engagement(
        cost,
        DEADLINE_S,
        PRELOAD_BYTES,
        CACHE_BYTES,
        length=LENGTH,
        steps=STEPS,
        cold_read_s=resident_bytes / DISK_BYTES_PER_S,
    )
    lifecycle = Lifecycle(len(turns.states) - 1, ENGAGEMENT_GAP_S, RECLAIMED_AFTER_S)
    return StreamingServerSpec(turns.compute, turns.states, lifecycle, DEADLINE_S, STEPS, turns.working_bytes)


@dataclass(frozen=True, slots=True)
class Deployment:
    """Requests in engagements of one to three turns at many gateways, and what a policy expects of them."""

    requests: Requests
    streamed: StreamingServerSpec
    believed_s: tuple[Column, Column]
    """By target, as if models lay in memory, at the expected target length."""

    @classmethod
    def of(cls, streamed: StreamingServerSpec, requests: int, seed: int = 1) -> Deployment:
        """Engagements begin at each gateway as a Poisson process, ten minutes apart on average; thinking takes 5 s."""
        random = np.random.default_rng(seed)
        turns = random.integers(1, 4, requests)
        engagements = int(np.searchsorted(np.cumsum(turns), requests)) + 1
        begin_s = np.cumsum(random.exponential(600.0 / GATEWAYS, engagements))
        gateway = random.integers(0, GATEWAYS, engagements)
        of_request = np.repeat(np.arange(engagements), turns[:engagements])[:requests]
        first = np.r_[True, of_request[1:] != of_request[:-1]]
        thought_s = np.where(first, 0.0, 1.0 + random.exponential(4.0, requests))
        since_s = np.cumsum(thought_s)
        arrival_s = begin_s[of_request] + since_s - since_s[np.maximum.accumulate(np.where(first, np.arange(requests), 0))]
        src_len = np.clip(random.lognormal(2.6, 0.5, requests).round(), 2, 64).astype(np.int64)
        expected = 0.9 * src_len + 1.0
        tgt_len = np.clip((expected * random.lognormal(-0.02, 0.2, requests)).round(), 1, 90).astype(np.int64)
        order = np.argsort(arrival_s, kind="stable")
        src_len, tgt_len, expected = src_len[order], tgt_len[order], expected[order]
        here_s = streamed.compute.in_memory_s(src_len, tgt_len) * random.lognormal(-0.005, 0.1, requests)
        there_s = 0.02 + 0.004 * tgt_len
        half_rtt_s = HALF_RTT_S * random.lognormal(-0.02, 0.2, requests)
        columns = Requests(
            src_len,
            (here_s, there_s),
            (half_rtt_s,),
            (half_rtt_s,),
            arrival_s[order],
            gateway[of_request][order].astype(np.int32),
            tgt_len=tgt_len,
        )
        return cls(columns, streamed, (streamed.compute.in_memory_s(src_len, expected), 0.02 + 0.004 * expected))

    def run(self, knowing: str = "ignored", streams: bool = True, records_lost: bool = False) -> Trail:
        """The world under C-NMT that ignores states, knows them, or under the oracle; `streams`: whether anything does."""
        oracle, knows = knowing == "oracle", knowing == "known" and streams
        view = partial(PlanView, self.streamed.lifecycle.next_state, len(self.streamed.states))
        beliefs = Beliefs(
            lambda decider, target: TransferEstimate(2 * HALF_RTT_S),
            plan_views=(view, None) if knows else (),
            true_transfer=oracle,
            true_backlog=oracle,
        )
        reckoned_s: Sequence[Column] = self.requests.execution_s if oracle else self.believed_s

        def part(block: Block) -> slice:
            return slice(block.first, block.first + len(block))

        def beyond_s(block: Block) -> list[list[list[float]] | None]:
            return [self.streamed.beyond_s(block.src_len), None]

        return simulate(
            self.requests,
            lambda block: least_total([column[part(block)] for column in reckoned_s]),
            beliefs,
            [FifoPool(workers=GATEWAYS)],
            deciders=GATEWAYS,
            local=self.streamed if streams else None,
            plan_beyond_for=beyond_s if knows else None,
            judged_share=float(records_lost),
        )

    def run_cloud(self, streams: bool) -> Trail:
        """Everything is sent to a tier of boxes, which stream their model, or have it in memory."""
        pool = StreamingPool(self.streamed, GATEWAYS, FewestTokens()) if streams else LeastWork(GATEWAYS)
        columns = self.requests
        swapped = Requests(
            columns.src_len,
            columns.execution_s[::-1],
            columns.uplink_s,
            columns.downlink_s,
            columns.arrival_s,
            columns.node,
            tgt_len=columns.tgt_len,
        )
        beliefs = Beliefs(lambda decider, target: TransferEstimate(2 * HALF_RTT_S))
        return simulate(swapped, lambda block: lambda request, delay_s: 1, beliefs, [pool], deciders=GATEWAYS)

    def latency_s(self, trail: Trail) -> Column:
        """From arrival at the gateway to the answer there."""
        assert trail.execution_s is not None
        away_s = self.requests.execution_s[1] + self.requests.uplink_s[0] + self.requests.downlink_s[0]
        latency_s: Column = trail.queue_s + np.where(trail.target == 0, np.nan_to_num(trail.execution_s), away_s)
        return latency_s


def measure(rounds: int, requests: int = REQUESTS) -> dict[str, Any]:
    """All figures; each round runs every world once, and the minimum of each counts."""
    streamed = device()
    deployment = Deployment.of(streamed, requests)
    works: dict[str, Callable[[], Trail]] = {
        "plain": partial(deployment.run, streams=False),
        "streamed": deployment.run,
        "streamed_known": partial(deployment.run, "known"),
        "plain_cloud": partial(deployment.run_cloud, False),
        "streamed_cloud": partial(deployment.run_cloud, True),
    }
    least = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            least[name] = min(least[name], cpu_s(work))
    return {
        "streamed_over_plain": least["streamed"] / least["plain"],
        "streamed_known_over_plain": least["streamed_known"] / least["plain"],
        "streamed_cloud_over_plain": least["streamed_cloud"] / least["plain_cloud"],
        **lost(deployment),
        **{f"{name}_app_stays": value for name, value in lost(Deployment.of(device(0), requests)).items()},
        "us_per_request": least["streamed"] / requests * 1e6,
        "requests": requests,
        "rounds": rounds,
        "python": sys.version.split()[0],
    }


def lost(deployment: Deployment) -> dict[str, Any]:
    """What the plane that knows of no states costs, over all requests and over those that it keeps on a cold gateway."""
    streamed = deployment.streamed
    trails = {name: deployment.run(name) for name in ("ignored", "known", "oracle")}
    latency_s = {name: deployment.latency_s(trail) for name, trail in trails.items()}
    states = trails["ignored"].state
    assert states is not None
    cold = states == 0
    mean_s = {name: float(column.mean()) for name, column in latency_s.items()}
    cold_s = {name: float(column[cold].mean()) for name, column in latency_s.items()}
    return {
        "cold_lost_percent": 100.0 * (cold_s["ignored"] / cold_s["known"] - 1.0),
        "lost_percent": 100.0 * (mean_s["ignored"] / mean_s["known"] - 1.0),
        "cold_share": float(cold.mean()),
        "kept_share": float((trails["ignored"].target == 0).mean()),
        **{f"mean_ms_{name}": 1e3 * seconds for name, seconds in mean_s.items()},
        **{f"cold_mean_ms_{name}": 1e3 * seconds for name, seconds in cold_s.items()},
        "requests_by_state": tuple(np.bincount(states[states >= 0], minlength=len(streamed.states)).tolist()),
        "alone_ms_by_state": tuple(round(1e3 * float(state.alone_s(streamed.compute, 16, 15)), 1) for state in streamed.states),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    help_requests = "requests of each world, for a quick look; the bars hold for the default"
    parser.add_argument("--requests", type=int, default=REQUESTS, help=help_requests)
    arguments = parser.parse_args()
    print_figures(measure(arguments.rounds, arguments.requests), BARS, as_json=arguments.json)


if __name__ == "__main__":
    main()
