"""Set a policy up for the requests of one unit: its rule, its knowledge, and its estimates, for each part of a mix its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.base.arrays import Floats
from simnmt.devices import Slots
from simnmt.experiment.cases import Unit
from simnmt.experiment.draws import Drawn, DrawnPart, Learnt
from simnmt.experiment.routes import Line
from simnmt.experiment.targets import Decoding, Target
from simnmt.policies import BacklogView, BatchView, CNmt, Decide, Fixed, LeastTotal, PlanView, Policy, TransferEstimate
from simnmt.policies.cnmt import TimesAlone
from simnmt.policies.custom import CheckedPolicy, is_shown_view
from simnmt.policies.decision import Estimation, PolicySettings
from simnmt.policies.gains import GainPolicySettings, Gains
from simnmt.results.requests import Block, Requests
from simnmt.world.deciders import Beliefs
from simnmt.world.inputs import PolicySetup

Truths = frozenset[str]
"""True quantities that a policy knows instead of estimating them: `lengths` of targets, execution `times`, `transfer` times,
and waits (`backlog`) (CNMT-19)."""


def truths_by_source(queues: bool, streams: bool) -> dict[str, Truths]:
    """Return the truths that the analysed policy knows, by the source of loss that they remove, with `nothing` and
    `everything`.

    Queues and states of streamed models are added to the paper's three sources. Its "linear time model" is a scatter here:
    true times are a plane plus noise, so the plane's error is the noise.
    """
    sources = {
        "nothing": Truths(),
        "length regression": Truths({"lengths"}),
        "scatter of execution times": Truths({"times"}),
        "stale transfer time": Truths({"transfer"}),
    }
    unseen = [name for name, is_there in (("queues", queues), ("states", streams)) if is_there]
    if unseen:
        sources[f"unseen {' and '.join(unseen)}"] = Truths({"backlog"})
    return sources | {"everything": Truths().union(*sources.values())}


Estimate = Callable[[int, int], TransferEstimate]
"""Returns a new estimate of the transfer time of (decider, target)."""


def set_up_policy(
    unit: Unit,
    learnt: Learnt,
    settings: PolicySettings,
    estimate: Estimate,
    drawn: DrawnPart | None = None,
    truths: Truths = frozenset(),
) -> PolicySetup:
    """Set up a policy for one part of a unit.

    `drawn`: the requests; None in a live gateway, which does not know them. `truths`: what the policy knows of them.
    """
    case, estimation = unit.case, settings.estimation
    knows_states = case.streams and estimation.plan_state == "known"
    policy = None if settings.knows_truth else settings.policy(learnt.knowledge(list(unit.scenario.devices)))
    beliefs = Beliefs(
        estimate,
        views=_views(unit, learnt, estimation) if case.queues and estimation.hears_batches else (),
        plan_views=tuple(
            None if streamed is None else partial(PlanView, streamed.lifecycle.next_state, len(streamed.states))
            for streamed in (target.streamed if knows_states else None for target in case.targets)
        ),
        true_transfer=settings.knows_truth or "transfer" in truths,
        # The time that a streamed model's state takes is known as a wait is, back to back as well.
        true_backlog=(case.queues or case.streams) and (settings.knows_truth or "backlog" in truths),
        shows_view=policy is not None and is_shown_view(policy),
    )
    if policy is None:
        return PolicySetup(lambda block: LeastTotal(block.execution_s), [beliefs])
    if isinstance(policy, Fixed):
        return PolicySetup(lambda block: policy, [beliefs])
    if not isinstance(policy, CNmt):
        return _set_up_custom(unit, learnt, settings, policy, beliefs, drawn)
    informed = _informed(unit, drawn, policy, truths)

    def plan_beyond_for(block: Block) -> Sequence[Sequence[Floats] | None]:
        # Reads are added to the plane's estimate as it is: the state does not correct errors of the plane's fit.
        return [
            None
            if target.streamed is None
            else target.streamed.beyond_s(block.src_len, plane.factor if isinstance(plane, _TrueTimes) else 1.0)
            for target, plane in zip(case.targets, informed(block).planes, strict=True)
        ]

    def expected_for(block: Block) -> list[Floats]:
        of_block = informed(block)
        return _expected(unit, of_block.planes, block.src_len, of_block.predict(block.src_len))

    setup = PolicySetup(
        lambda block: informed(block).prepare(block.src_len),
        [beliefs],
        expected_for if any(beliefs.views) else None,
        plan_beyond_for if knows_states else None,
        predicted_tgt_len=policy.predict,
    )
    if not isinstance(settings, GainPolicySettings):
        return setup
    assert learnt.gains is not None, "the scenario was checked for scores"
    return _weighing_gain(setup, settings, learnt.gains)


def _weighing_gain(setup: PolicySetup, settings: GainPolicySettings, gains: Gains) -> PolicySetup:
    """Return the set-up of C-NMT's estimates with the decision of a policy that weighs the gain in quality.

    Raises `InputError` for a threshold outside the expected gains, and if they cannot be expected.
    """
    limit = settings.limit(gains.fitted(settings.signal))

    def weighing(gain_for: Callable[[Block], Floats]) -> PolicySetup:
        def weighed_for(block: Block) -> LeastTotal:
            times = setup.decide_for(block)
            assert isinstance(times, LeastTotal)
            return settings.weighed(times, settings.keeping_s(gain_for(block), limit))

        if settings.decides_again:
            return replace(setup, decide_for=lambda block: Fixed(0), second_for=weighed_for)
        return replace(setup, decide_for=weighed_for)

    def gain_of_sentences(block: Block) -> Floats:
        assert block.text_row is not None
        return gains.gain(settings.signal, block.text_row)

    return replace(weighing(gain_of_sentences), for_gain=lambda gain: weighing(lambda block: np.full(len(block), gain)))


def _simulated_estimate(
    unit: Unit, estimation: Estimation, lines: Sequence[Line], decider: int, target: int
) -> TransferEstimate:
    """Return a new estimate of the transfer time of a decider, by its number at its site, to a target; `lines`: by copy."""
    copy, number = divmod(decider, lines[0].deciders)
    overheads = [device.overhead for device in [*unit.scenario.devices.values()][1 : target + 1]]
    initial_s = lines[copy].routes.rtt_s(number, target, 0.0) + sum(part.mean_s for part in overheads if part is not None)
    if estimation.initial_transfer_ms is not None:
        initial_s = estimation.initial_transfer_ms / 1e3
    return estimation.transfer_estimate.estimate(initial_s)


def _expected(unit: Unit, planes: Sequence[TimesAlone], src_len: NDArray[np.int64], tgt_len: Floats) -> list[Floats]:
    """Return a policy's expectation of each request by target, in the unit of the target's view (`ExpectedFor`)."""
    columns = zip(unit.case.targets, planes, strict=True)
    return [
        target.slots.output.per_token * tgt_len + target.slots.output.fixed
        if target.slots is not None
        else (plane.seconds(src_len, tgt_len) if target.decoding is None else tgt_len)
        for target, plane in columns
    ]


def _set_up_custom(
    unit: Unit, learnt: Learnt, settings: PolicySettings, policy: Policy, beliefs: Beliefs, drawn: DrawnPart | None
) -> PolicySetup:
    name = next(name for name, other in unit.scenario.policies.items() if other is settings)
    where = f"workload {unit.case.name}, network {unit.network}, replication {unit.replication}"
    checked = CheckedPolicy(policy, f"policy {name} ({where})", len(unit.case.targets))
    predict = checked.predicted_tgt_len()
    # A policy without a prediction of lengths counts its requests under way by that of the regression.
    tgt_len_of = predict or learnt.knowledge([]).lengths.predict
    numbers = None if drawn is None else drawn.numbers

    def decide_for(block: Block) -> Decide:
        def number_of(row: int) -> int:
            return block.first + row if numbers is None else int(numbers[block.first + row])

        return checked.prepare(block.src_len, number_of)

    def expected_for(block: Block) -> list[Floats]:
        return _expected(unit, learnt.planes, block.src_len, tgt_len_of(block.src_len))

    return PolicySetup(decide_for, [beliefs], expected_for if any(beliefs.views) else None, predicted_tgt_len=predict)


def _views(unit: Unit, learnt: Learnt, estimation: Estimation) -> tuple[Callable[[], BacklogView | BatchView] | None, ...]:
    """Return, per target, the factory of the policy's view of its queue or batch; None if the policy has no view there.

    A policy that sees queues must not treat a device that batches as workers that are each as fast as one alone.
    """
    scenario, workload = unit.scenario, unit.case.name
    steps, src_len = (max(round(mean), 1) for mean in (learnt.fit_pairs.mean_tgt_len, learnt.fit_pairs.mean_src_len))

    def batch_view(decoding: Decoding, servers: int) -> Callable[[], BatchView]:
        """Return the factory of a batch's view, with the costs of sentences of the fit pairs' mean lengths."""

        def step_s(active: int) -> float:
            return decoding.cost.steps_at(active)(0, steps - 1) / steps

        def joining_s(sentences: int) -> float:
            return decoding.cost.encode_s([src_len] * sentences) + decoding.cost.refill_s(sentences)

        batching = decoding.batching
        # The tables of costs are made once, here, and shared by all deciders.
        return BatchView(step_s, batching.size, batching.threshold, servers, joining_s).blank

    def slots_view(slots: Slots, servers: int) -> Callable[[], BatchView]:
        """Return the factory of a view of slots: a free one is taken at once, and reading a prompt delays all."""
        (prompt,), (output,) = slots.tokens(np.array([src_len]), np.array([steps]))
        context_s = slots.cost.s_per_context_token * float(prompt + output / 2)
        read_s = slots.cost.s_per_prompt_token * slots.limits.tokens_read(int(prompt))
        most = slots.limits.slots
        step_s = [seconds + active * context_s for active, seconds in enumerate(slots.cost.step_s)]
        return BatchView(step_s.__getitem__, most, most - 1, servers, lambda requests: requests * read_s).blank

    views: list[Callable[[], BacklogView | BatchView] | None] = []
    for target in unit.case.targets:
        servers = scenario.count_of(target.device, workload)
        if scenario.balancer_of(target.device) == "attached":
            # End node n, of decider n modulo deciders, enters server n modulo servers.
            servers //= gcd(servers, scenario.count_of(next(iter(scenario.devices)), workload))
        if target.decoding is not None:
            views.append(batch_view(target.decoding, servers))
        elif target.slots is not None:
            views.append(slots_view(target.slots, servers))
        else:
            views.append(partial(BacklogView, servers * target.workers) if estimation.sees_backlog else None)
    return tuple(views)


@dataclass(frozen=True, slots=True)
class _TrueTimes:
    """The true seconds of a block's requests on a target: with their residuals, and one by one on a target that batches."""

    target: Target
    noise: Floats

    @property
    def factor(self) -> Floats:
        """The true computing times over those of the profile."""
        return self.target.profile.residual.factor(self.noise)

    def seconds(self, src_len: NDArray[np.int64], tgt_len: Floats) -> Floats:
        return self.target.execution_s(src_len, tgt_len, self.noise)


def _informed(unit: Unit, drawn: DrawnPart | None, policy: CNmt, truths: Truths) -> Callable[[Block], CNmt]:
    """Return C-NMT for a block of requests, with their true lengths and times in place of its predictions, as `truths` has it.

    With both, its estimates are the true times.
    """
    if not truths & {"lengths", "times"}:
        return lambda block: policy
    assert drawn is not None, "only drawn requests have truths"
    true_len, numbers, size = drawn.tgt_len, drawn.numbers, unit.scenario.requests
    noises = [random_streams.standard_normal(*unit.stream(f"execution {device}"), size) for device in unit.scenario.devices]

    def informed(block: Block) -> CNmt:
        rows: slice | NDArray[np.int64] = slice(block.first, block.first + len(block))
        if numbers is not None:  # requests are drawn in the order of issue
            rows = numbers[rows]
        of_block = policy
        if "lengths" in truths:
            tgt_len = true_len[rows].astype(np.float64)
            of_block = replace(of_block, predict=lambda src_len: tgt_len, percentiles=None)
        if "times" in truths:
            times = [_TrueTimes(target, noise[rows]) for target, noise in zip(unit.case.targets, noises, strict=True)]
            of_block = replace(of_block, planes=times)
        return of_block

    return informed


@dataclass(frozen=True, slots=True)
class UnitSetup:
    """A policy that is set up for every part of a unit, which may have other settings at each site."""

    drawn: Drawn
    setups: tuple[PolicySetup, ...]

    @classmethod
    def of(cls, unit: Unit, drawn: Drawn, policy: str, truths: Truths = frozenset()) -> UnitSetup:
        """Set a policy up. `unit`: as policies know it."""
        setups = list[PolicySetup]()
        for part, requests in zip(unit.parts, drawn.parts, strict=True):
            settings = part.scenario.policies[policy]
            estimate = partial(_simulated_estimate, part, settings.estimation, requests.lines)
            setups.append(set_up_policy(part, requests.learnt, settings, estimate, requests, truths))
        return cls(drawn, tuple(setups))

    def composed(self, unit: Unit) -> PolicySetup:
        """Return the policy that decides on each request as its part does."""
        if len(self.setups) == 1:
            return self.setups[0]
        has_views, has_plans = any(one.expected_for for one in self.setups), any(one.plan_beyond_for for one in self.setups)
        beliefs = [self.setups[deciders.parts[0]].beliefs[0] for deciders in unit.deciders]
        return PolicySetup(
            self._decide_for,
            beliefs,
            self._expected_for if has_views else None,
            self._beyond_for if has_plans else None,
            self._second_for if any(one.second_for for one in self.setups) else None,
        )

    @property
    def tgt_len_by_src_len(self) -> Floats:
        """The target length that each part assumes by source length, up to the longest drawn; NaN if it assumes none."""
        by_src_len = np.full((len(self.setups), int(self.drawn.truth.src_len.max()) + 1), np.nan)
        for row, setup in zip(by_src_len, self.setups, strict=True):
            if setup.predicted_tgt_len is not None:
                row[1:] = setup.predicted_tgt_len(np.arange(1, len(row)))
        return by_src_len

    def _parts_of(self, block: Block) -> Iterator[tuple[PolicySetup, NDArray[np.int64], Block]]:
        """Yield the set-up of each part, its rows in a block, and these requests as a block of the part."""
        for part, setup in zip(self.drawn.parts, self.setups, strict=True):
            assert part.rows is not None
            begin, end = np.searchsorted(part.rows, [block.first, block.first + len(block)])
            rows = part.rows[begin:end] - block.first
            if rows.size == len(block):
                yield setup, rows, replace(block, first=int(begin))
            elif rows.size:
                execution_s = tuple(column[rows] for column in block.execution_s)
                text_row = None if block.text_row is None else block.text_row[rows]
                yield setup, rows, Requests(block.src_len[rows], execution_s, first=int(begin), text_row=text_row)

    def _decide_for(self, block: Block) -> Decide:
        choices = [(setup.decide_for(requests), rows) for setup, rows, requests in self._parts_of(block)]
        if len(choices) == 1:
            return choices[0][0]
        fixed = {choice.target if isinstance(choice, Fixed) else None for choice, _ in choices}
        if len(fixed) == 1 and None not in fixed:
            return choices[0][0]
        if all(isinstance(choice, (Fixed, LeastTotal)) for choice, _ in choices):
            return _joined(block, choices)
        places = len(block) * [(choices[0][0], 0)]
        for choice, rows in choices:
            for in_part, row in enumerate(rows.tolist()):
                places[row] = choice, in_part

        def decide(request: int, shown: Any) -> int:
            choice, in_part = places[request]
            return choice(in_part, shown)

        return decide

    def _second_for(self, block: Block) -> LeastTotal:
        keep, choices = Fixed(0), list[tuple[Decide, NDArray[np.int64]]]()
        for setup, rows, requests in self._parts_of(block):
            choices.append((keep if setup.second_for is None else setup.second_for(requests), rows))
        return _joined(block, choices)

    def _expected_for(self, block: Block) -> Sequence[Floats]:
        columns = [np.zeros(len(block)) for _ in block.execution_s]
        for setup, rows, requests in self._parts_of(block):
            if setup.expected_for is not None:
                for column, expected in zip(columns, setup.expected_for(requests), strict=True):
                    column[rows] = expected
        return columns

    def _beyond_for(self, block: Block) -> Sequence[Sequence[Floats] | None]:
        tables: list[list[Floats] | None] = [None for _ in block.execution_s]
        for setup, rows, requests in self._parts_of(block):
            for target, states in enumerate(setup.plan_beyond_for(requests) if setup.plan_beyond_for else ()):
                if states is not None:
                    table = tables[target] or [np.zeros(len(block)) for _ in states]
                    for column, seconds in zip(table, states, strict=True):
                        column[rows] = seconds
                    tables[target] = table
        return tables


def _joined(block: Block, choices: Sequence[tuple[Decide, NDArray[np.int64]]]) -> LeastTotal:
    """Return the decision on the requests of a block, each by that of its part, which is `Fixed` or `LeastTotal`."""
    columns = [np.empty(len(block)) for _ in block.execution_s]
    for choice, rows in choices:
        for target, column in enumerate(columns):
            fixed_s = 0.0 if getattr(choice, "target", None) == target else np.inf
            column[rows] = choice.execution_s[target] if isinstance(choice, LeastTotal) else fixed_s
    return LeastTotal(columns)
