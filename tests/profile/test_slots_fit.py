"""The costs of an engine with slots are found again from the tokens of requests that it was made to serve."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from simnmt.batching.slots import SlotBatcher, SlotLimits
from simnmt.profile.slots_block import SlotsCost
from simnmt.profile.slots_fit import SlotsFit, StreamedRequest, fit_slots, place_iterations

COST = SlotsCost((0.004, 0.008, 0.010, 0.011, 0.015), 0.0006, 0.000004, 0.0015)
Sent = tuple[float, int, int]
"""Moment of sending, prompt tokens and output tokens."""


def served(block: int, kind: str, sent: list[Sent], noise: Callable[[], float] = lambda: 1.0) -> list[StreamedRequest]:
    """Serve requests by an engine of four slots; `noise` is a factor on each iteration."""
    batcher, now_s, waiting = SlotBatcher(SlotLimits(4, 4096)), 0.0, sorted(range(len(sent)), key=lambda one: sent[one][0])
    tokens_s: list[list[float]] = [[] for _ in sent]
    while waiting or batcher.active or batcher.waiting:
        if not batcher.active and not batcher.waiting:
            now_s = max(now_s, sent[waiting[0]][0])
        while waiting and sent[waiting[0]][0] <= now_s:
            batcher.arrive(waiting[0], sent[waiting.pop(0)][1])
        work = batcher.next()
        context = sum(sent[one][1] + len(tokens_s[one]) for one in work.decodes)
        now_s += noise() * COST.iterations_s(len(work.decodes), context, 1, work.prompt_tokens)
        for one in (*work.decodes, *work.ends_prompt):
            tokens_s[one].append(now_s)
            if len(tokens_s[one]) == sent[one][2]:
                batcher.leave(one)
    return [
        StreamedRequest(block, kind, at_s, np.array(arrived_s) + COST.request_s, prompt, prompt)
        for (at_s, prompt, _), arrived_s in zip(sent, tokens_s, strict=True)
    ]


def measured(noise: Callable[[int], float] = lambda block: 1.0, *, queue: bool = True) -> list[StreamedRequest]:
    """Two rounds of a ladder, joining prompts, single prompts and a queue; `noise`: of the block with a number."""
    kinds: dict[str, list[Sent]] = {}
    for together in (1, 2, 3, 4):
        for prompt in (30, 300):
            kinds[f"{together} of {prompt}"] = [(0.003 * one, prompt + 7 * one, 40) for one in range(together)]
    kinds["prompts"] = [(10.0 * place, tokens, 3) for place, tokens in enumerate((20, 100, 200, 400))]
    kinds["joining"] = [(0.0, 50, 60), *((0.1 + 0.15 * place, 100, 5) for place in range(3))]
    if queue:
        kinds["queue"] = [(0.0001 * one, 60 + one, 1) for one in range(13)]
    blocks = enumerate([*kinds.items()] * 3)
    return [one for number, (kind, sent) in blocks for one in served(number, kind, sent, lambda number=number: noise(number))]


def fitted(requests: list[StreamedRequest]) -> SlotsFit:
    return fit_slots(requests, 4, (1, 2, 3, 4))


def test_exact_times_give_the_exact_costs() -> None:
    fit = fitted(measured())
    assert fit.cost.step_s == pytest.approx(COST.step_s, rel=1e-6)
    names = ("s_per_prompt_token", "s_per_context_token", "request_s")
    assert [getattr(fit.cost, name) for name in names] == pytest.approx([getattr(COST, name) for name in names], rel=1e-6)
    assert fit.most_decoding == 4 and fit.knows_reading
    assert fit.heldout_error == pytest.approx(0.0, abs=1e-6) and fit.speed_change == pytest.approx(0.0, abs=1e-6)


def test_times_that_vary_give_their_mean_and_no_bias_of_fast_ones() -> None:
    """Weights of one over measured seconds would lower the costs by about 20 %."""
    random = np.random.default_rng(5)
    fit = fitted(measured(lambda block: float(random.gamma(8.0, 1.0 / 8.0))))
    assert fit.cost.step_s[1:] == pytest.approx(COST.step_s[1:], rel=0.05)
    assert fit.cost.s_per_prompt_token == pytest.approx(COST.s_per_prompt_token, rel=0.1)
    assert fit.heldout_error is not None and 0.0 < fit.heldout_error < 0.2


def test_a_service_that_changes_its_speed_between_blocks_is_noticed() -> None:
    assert fitted(measured(lambda block: 1.0 if block < 20 else 1.6)).speed_change > 0.3


def test_without_a_queue_an_iteration_that_only_reads_counts_like_a_step() -> None:
    fit = fitted(measured(queue=False))
    assert not fit.knows_reading and fit.cost.step_s[0] == fit.cost.step_s[1] == pytest.approx(0.008, rel=0.05)


def test_iterations_of_a_misplaced_request_rise() -> None:
    """The second request's first token is a bit before the second iteration, and its others are those from the fourth on."""
    tokens_s = ([1.0, 2.0, 3.0, 4.0], [1.9, 4.0, 5.0])
    requests = [StreamedRequest(0, "two", 0.0, np.array(arrivals_s), 5, 5) for arrivals_s in tokens_s]
    assert place_iterations(requests, 2) == ([1.0, 2.0, 2.0, 4.0, 5.0], [0, 2])


def test_stalls_lengthen_all_costs_alike() -> None:
    """A service that stalls takes longer on average; where it stalled must not decide which of its costs are long."""
    requests = measured()
    blocks = [[one for one in requests if one.block == number] for number in range(requests[-1].block + 1)]
    busy_s = sum(max(one.tokens_s[-1] for one in block) - min(one.sent_s for one in block) for block in blocks)
    busy_s -= 3 * 30.0  # between the single prompts nothing was asked
    alone = [one for one in requests if one.kind.startswith("1 of")]
    for one in alone:
        one.tokens_s[-3:] += 0.5
    fit = fitted(requests)
    assert fit.stalled_share > 0.05
    ratios = np.array(fit.cost.step_s[1:]) / COST.step_s[1:]
    assert ratios.max() / ratios.min() < 1.1
    assert ratios.mean() == pytest.approx(1.0 + 0.5 * len(alone) / busy_s, abs=0.05)
