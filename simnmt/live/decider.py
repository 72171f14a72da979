"""The gateway's decisions: the very policies, estimates and views of the simulation, driven by real moments.

A `LiveDecider` has no clock and no network: it is given moments and measured durations, so that a log of these replays to the
same decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import nan

import numpy as np

from simnmt.base.configuration import end_tokens
from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan, Unit
from simnmt.experiment.draws import learn
from simnmt.experiment.policy_setup import set_up_policy
from simnmt.policies.decision import PolicySettings
from simnmt.policies.estimates import TransferEstimate
from simnmt.policies.gains import GainPolicySettings
from simnmt.results.requests import Requests
from simnmt.workload.length_units import count_words
from simnmt.world.deciders import Decider, Prepared
from simnmt.world.inputs import PolicySetup

_LOG = logging.getLogger("simnmt.live")


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision on one request."""

    target: int
    delay_s: tuple[float, ...]
    """Delay to each target, as the policy was shown it."""
    tgt_len_predicted: float | None
    """None if the policy predicts no lengths."""
    estimate_s: float
    measured_at_s: float
    sent_as: int


def live_unit(plan: RunPlan, workload: str | None = None, site: str | None = None) -> Unit:
    """Return the unit of a scenario that a gateway serves: its first workload, unless named, on its first network.

    `site`: whose gateway it is; None: the first one's that has one. Raises `InputError` for a workload or a site that the
    scenario does not have, and for a device that streams its model.
    """
    parts = {part.name: part for part in plan.sites if part.has_device}
    if site not in (None, *parts) or (plan.sites and not parts):
        remedy = f"one of {', '.join(parts)}" if parts else None
        raise InputError(f"no site {site} has a gateway" if site else "no site has a gateway", remedy=remedy)
    scenario, cases, networks, of_site = plan.scenario, plan.cases, plan.networks, None
    if parts:
        part = parts[site or next(iter(parts))]
        scenario, cases = part.scenario, part.cases
        networks = {network: links[0] for network, links in part.networks.items()}
        of_site = part if len(plan.sites) > 1 else None  # a single one is as a scenario without
    name = next(iter(cases)) if workload is None else workload
    if name not in cases:
        raise InputError(f"no workload {name}", remedy=f"one of {', '.join(cases)}")
    for target in cases[name].targets:
        if target.streaming is not None:
            raise InputError(f"device {target.device} streams its model, which can only be simulated")
    network, links = next(iter(networks.items()))
    return Unit(scenario, cases[name], network, links, 0, site=of_site)


def deployable_policy(unit: Unit, policy: str) -> PolicySettings:
    """Return the settings of a policy of the scenario. Raises `InputError` for an unknown one, and one that knows the truth."""
    scenario = unit.scenario
    if policy not in scenario.policies:
        raise InputError(f"no policy {policy}", remedy=f"one of {', '.join(scenario.policies)}")
    settings = scenario.policies[policy]
    if not settings.is_deployable:
        raise InputError(f"policy {policy} knows the truth and cannot be deployed", remedy="choose another policy")
    return settings


class LiveDecider:
    """The decisions of one gateway under one policy. Moments are seconds since the gateway began; they must not decrease."""

    def __init__(self, unit: Unit, policy: str, initial_s: Mapping[int, float]) -> None:
        """`policy`: its name in the scenario; `initial_s`: the first measured transfer time of each remote target.

        Raises `InputError` for an unknown policy, for one that knows the truth, and for a threshold that no gain comes to.
        """
        settings, learnt = deployable_policy(unit, policy), learn(unit)
        estimation = settings.estimation
        self._expect_gain: Callable[[Mapping[str, float]], float] | None = None
        if isinstance(settings, GainPolicySettings) and learnt.gains is not None:
            self._expect_gain = partial(learnt.gains.gain_of, settings.signal)

        def estimate(decider: int, target: int) -> TransferEstimate:
            first_s = initial_s[target] if estimation.initial_transfer_ms is None else estimation.initial_transfer_ms / 1e3
            return estimation.transfer_estimate.estimate(first_s)

        self._uncounted = 1 - end_tokens(unit.case.profiles[0].length_unit.end_of_sentence)[0]
        """Tokens of a source that the scenario's lengths do not count: the end of the sentence, or none."""
        self._setup: PolicySetup = set_up_policy(unit, learnt, settings, estimate)
        self._decider = Decider(0, len(unit.case.targets), self._setup.beliefs[0])
        self._prepared: dict[int, tuple[Prepared, float | None]] = {}

    @property
    def views_itself(self) -> bool:
        """Whether it counts the requests at the gateway's own device."""
        return self._decider.views_itself

    @property
    def decides_again(self) -> bool:
        """Whether it decides again when the gateway has translated a request."""
        return self._setup.second_for is not None

    def gain_of(self, text: str, output_len: int = 0, logprob: float = nan) -> float | None:
        """Return the expected gain in quality of a text at the last device; None if the policy weighs none.

        `output_len`, `logprob`: tokens of the gateway's translation, and the sum of their natural log-probabilities.
        """
        if self._expect_gain is None:
            return None
        source = {"src_chars": len(text.strip()), "src_words": count_words(text)}
        return self._expect_gain({**source, "output_len": output_len, "logprob": logprob})

    def decide(
        self,
        request: int,
        src_len: int,
        now_s: float,
        unreachable: Sequence[int] = (),
        held: int | None = None,
        *,
        gain: float | None = None,
        again: bool = False,
    ) -> Decision:
        """Decide on a request, and note that it is sent; `src_len` includes the end of the sentence.

        Args:
            request, src_len, now_s: its number and its length, and the moment.
            unreachable: targets that do not answer for now; the first of the others takes what the policy sends to one.
            held: the decision on the first sentence of the document, if that holds for this one.
            gain: what `gain_of` returned.
            again: the gateway has translated the request. Target 0 then means that it is answered.
        """
        prepared, tgt_len = self._prepared.get(src_len) or self._prepare(src_len, gain)
        decider = self._decider
        decider.unreachable, delay_s = unreachable, list(decider.delay_s)
        decider.add_views(delay_s, prepared, 0, now_s)
        if again and prepared.second is not None:
            delay_s[0] = 0.0
            chosen = prepared.second(0, delay_s)
        else:
            shown = decider.view(delay_s, now_s, nan) if decider.beliefs.shows_view else delay_s
            chosen = prepared.decide(0, shown) if held is None else held
        target = decider.answering(chosen)
        estimate = decider.estimates[-1]
        sent_as = decider.announce(prepared, target, request, 0, now_s) if target or not again else 0
        _LOG.debug("request %d of %d tokens: to target %d; delays %s s", request, src_len, target, delay_s)
        return Decision(target, tuple(delay_s), tgt_len, estimate.value_s, estimate.measured_at_s, sent_as)

    def heard(self, decision: Decision, now_s: float, *, transfer_s: float, wait_s: float, report: Sequence[int] = ()) -> None:
        """Learn from an answer, or at the gateway itself from the begin of an execution.

        `transfer_s`: measured, 0 at the gateway; `wait_s`: how long the request had waited for its execution.
        """
        decider, target = self._decider, decision.target
        if target:
            decider.learn(target, transfer_s, now_s, wait_s)
        if decider.views and (view := decider.views[target]) is not None:
            view.reported(decision.sent_as, wait_s, tuple(report[:2]) if len(report) >= 2 else (0, 0), now_s)

    def lost(self, decision: Decision) -> None:
        """Forget a request that its target did not answer."""
        views = self._decider.views
        if views and (view := views[decision.target]) is not None:
            view.lost(decision.sent_as)

    def shook_hands(self, target: int, rtt_s: float, now_s: float) -> None:
        """Learn from the first round trip to a target that answers again."""
        self._decider.learn(target, rtt_s, now_s)

    def _prepare(self, src_len: int, gain: float | None) -> tuple[Prepared, float | None]:
        """Prepare the policy for a source length and an expected gain; what it holds depends on nothing else."""
        setup = self._setup if self._setup.for_gain is None else self._setup.for_gain(gain or 0.0)
        block = Requests(src_len=np.array([max(src_len - self._uncounted, 0)], np.int64), execution_s=())
        expected = () if setup.expected_for is None else setup.expected_for(block)
        predict = setup.predicted_tgt_len
        tgt_len = None if predict is None else float(predict(block.src_len)[0])
        second = None if setup.second_for is None else setup.second_for(block)
        result = Prepared.of(setup.decide_for(block), expected, second=second), tgt_len
        if self._setup.for_gain is None and len(self._prepared) < 10_000:
            self._prepared[src_len] = result
        return result
