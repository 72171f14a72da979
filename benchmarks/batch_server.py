"""A batched server that jumps to completions against one that takes every step: `python -m benchmarks.batch_server`.

A top-up server under load 0.95 of what it manages at most, which a run with everybody at hand finds; CPU times in turn, the
least of the rounds on either side. Both must end every sentence at the same times to the bit.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.countdown_server import CountdownServer
from benchmarks.printing import print_figures
from simnmt.batching import Batching, half_empty, immediate, top_up
from simnmt.devices.batch import Decoded, decode_all
from simnmt.profile.batch_cost import BatchCost, DecodingCost, LinearSurface

LOAD = 0.95
SENTENCES = 50_000
MEAN_SRC_LEN, SPREAD = 20.0, 0.6
"""Source tokens on average; standard deviation over mean of both lengths, as of the paper's two sets (FNI-14: 0.57, 0.65)."""
SIZE, LARGE = 32, 128
COST = DecodingCost(
    BatchCost(LinearSurface(10e-3, 0.1e-3, 1e-6, 0.1e-6), (1, 128), (0, 1_000)),
    BatchCost(LinearSurface(2e-3, 0.1e-3, 20e-6, 2e-6), (1, 128), (1, 200)),
    gap_s_fixed=0.1e-3,
    refill_s_fixed=0.1e-3,
)
"""A device that small batches do not fill (FNI-18): a step of 128 costs 2.1 times a step of 8. Made up, as a yardstick."""
BARS = {
    "M20_over_countdown": (">=", 1.4),
    "M200_over_countdown": (">=", 4.0),
}
"""What the project asks of the figures; a figure that misses its bar is printed as it is."""


@dataclass(frozen=True, slots=True)
class Work:
    """What both servers are given."""

    batching: Batching
    src_len: NDArray[np.int64]
    tgt_len: NDArray[np.int64]
    arrival_s: NDArray[np.float64]

    @classmethod
    def of(cls, batching: Batching, mean_tgt_len: float, sentences: int, seed: int = 1) -> Work:
        """Log-normal lengths, Poisson arrivals."""
        generator = np.random.default_rng(seed)
        sigma = math.sqrt(math.log1p(SPREAD**2))

        def lengths(mean: float) -> NDArray[np.int64]:
            drawn = generator.lognormal(math.log(mean) - sigma**2 / 2, sigma, sentences)
            return np.maximum(1, drawn.round()).astype(np.int64)

        src_len, tgt_len = lengths(MEAN_SRC_LEN), lengths(mean_tgt_len)
        most_rps = sentences / decode_all(batching, COST, src_len, tgt_len).total_s
        arrival_s = np.cumsum(generator.exponential(1.0 / (LOAD * most_rps), sentences))
        return cls(batching, src_len, tgt_len, arrival_s)

    def jumping(self) -> Decoded:
        """By the simulator's server."""
        return decode_all(self.batching, COST, self.src_len, self.tgt_len, self.arrival_s)

    def counting(self) -> CountdownServer:
        """By the one that takes every step."""
        return CountdownServer(self.batching, COST, self.src_len.tolist(), self.tgt_len.tolist(), self.arrival_s.tolist())


def works(sentences: int) -> dict[str, Work]:
    """By what a figure's name begins with; the common threshold and batch, then others."""
    return {
        f"M{mean}{name}": Work.of(top_up(size, threshold(size)), mean, sentences)
        for name, size, threshold in (
            ("", SIZE, half_empty),
            ("_immediate", SIZE, immediate),
            (f"_B{LARGE}", LARGE, half_empty),
        )
        for mean in (20, 200)
    }


def cpu_s(run: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    started = time.process_time()
    run()
    return time.process_time() - started


def measure(rounds: int, sentences: int = SENTENCES) -> dict[str, Any]:
    """All figures; each round runs both servers once on every work, and the minimum of each counts."""
    given = works(sentences)
    jumping, counting = dict.fromkeys(given, math.inf), dict.fromkeys(given, math.inf)
    for _ in range(rounds):
        for name, work in given.items():
            jumping[name] = min(jumping[name], cpu_s(work.jumping))
            counting[name] = min(counting[name], cpu_s(work.counting))
    figures: dict[str, Any] = {f"{name}_over_countdown": counting[name] / jumping[name] for name in given}
    for name, work in given.items():
        decoded, slow = work.jumping(), work.counting()
        assert decoded.finish_s.tolist() == slow.finish_s, f"{name}: the servers disagree"
        assert decoded.account.steps.tolist() == slow.steps, f"{name}: the servers disagree"
        steps = int(decoded.account.steps.sum())
        figures[f"{name}_steps_per_second"] = steps / jumping[name]
        figures[f"{name}_countdown_steps_per_second"] = steps / counting[name]
        figures[f"{name}_us_per_sentence"] = jumping[name] / sentences * 1e6
        figures[f"{name}_mean_active"] = decoded.account.mean_active
    return figures | {
        "size": SIZE,
        "large_size": LARGE,
        "load": LOAD,
        "sentences": sentences,
        "rounds": rounds,
        "python": sys.version.split()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    help_sentences = "sentences of each work, for a quick look; the bars hold for the default"
    parser.add_argument("--sentences", type=int, default=SENTENCES, help=help_sentences)
    arguments = parser.parse_args()
    figures = measure(arguments.rounds, arguments.sentences)
    print_figures(figures, BARS, as_json=arguments.json)


if __name__ == "__main__":
    main()
