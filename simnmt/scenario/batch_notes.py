"""What a reader must know of a run's batches: how they are formed, what their times lack, and what does not foresee them."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf

from simnmt.costs.decoder_choice import DecoderChoice
from simnmt.costs.profile import DeviceProfile
from simnmt.costs.profile_blocks import Overhead, Overheads
from simnmt.policies.configuration import OraclePolicy
from simnmt.results.wording import duration
from simnmt.scenario.build import Decoding, Plan
from simnmt.scenario.model import Scenario


def batches(decoding: Decoding, decoder: DecoderChoice | None = None) -> str:
    """How a device batches, and on what its times rest; `decoder`: the variant to which its profile was moved."""
    batching, cost = decoding.batching, decoding.cost
    order = "in the order of arrival"
    if batching.collected is not None:
        order = f"collected by {batching.collected:,} and sorted by source length"
    refilled = "a batch begins when the one before is done"
    if batching.threshold:
        free = ", at no cost, as the scenario says (refill: free)" if decoding.free_refills else ""
        refilled = f"a batch is refilled when at most {batching.threshold} of its sentences are left{free}"
    wait = ""
    if batching.longest_wait_s > 0.0:
        long = "until it can be filled" if isinf(batching.longest_wait_s) else f"up to {duration(batching.longest_wait_s)}"
        wait = f", for which whoever waits first waits {long}"
    known = "composed" if decoder is not None and decoder.how == "composed" else "measured"
    beams = f"step costs of beam {cost.beam} {known} up to batches of {cost.most_batch}"
    beyond = ", extrapolated beyond" if batching.size > cost.most_batch else ""
    return (
        f"decodes up to {batching.size} sentences together, {order}; {refilled}{wait}. What that takes follows from lengths "
        f"({beams}{beyond}), without the residual of single executions; what policies learn of the device is its time alone"
    )


def not_told(profile: DeviceProfile, decoding: Decoding) -> list[str]:
    """What batching takes beside steps and encoder and the profile has no figure for."""
    own = profile.overheads or Overheads()

    def known(overhead: Overhead | None) -> bool:
        return overhead is not None and overhead.value is not None

    parts = {
        "the gap between two steps": known(own.step_gap_s) or known(own.step_gap_s_per_sentence),
        "what each sentence adds to the gap between two steps": known(own.step_gap_s_per_sentence) or not known(own.step_gap_s),
        "joining a batch (refilling)": profile.knows_refills or decoding.free_refills,
        "leaving it": known(own.leave_s),
        "what a longer source adds to a step": profile.step is not None and profile.step.s_per_row_src_token is not None,
    }
    return [part for part, told in parts.items() if not told]


def of_endless_waits(plan: Plan) -> Iterator[str]:
    """Where what foresees batches cannot tell when one begins, as only who comes later decides it."""
    scenario = plan.scenario
    foreseeing = [name for name, policy in scenario.policies.items() if isinstance(policy, OraclePolicy)]
    foreseeing += ["the misroutes (foresee_misroutes)"] if scenario.foresee_misroutes else []
    foreseeing += ["the gap analysis"] if scenario.gap_analysis else []
    for case in plan.cases.values():
        endless = [
            device
            for device, decoding in zip(scenario.devices, case.decoding, strict=True)
            if decoding is not None and isinf(decoding.batching.longest_wait_s)
        ]
        if case.batches and endless and foreseeing:
            yield (
                f"{case.name}, {', '.join(endless)}: a batch may wait for company for ever (longest_wait_ms: null), and when "
                f"it begins depends on who is still to come. That is not foreseen by {', '.join(foreseeing)}, which take it to "
                "begin at once: what they hold to be fastest need not be, and is no bound. A finite wait is foreseen."
            )


def of_nothing_batched(scenario: Scenario) -> Iterator[str]:
    """What is said of batches where there are none: taking `batching` away must not make a scenario wrong."""
    if any(device.batching is not None for device in scenario.devices.values()):
        return
    hearing = [name for name, policy in scenario.policies.items() if getattr(policy, "batch", "plain") != "plain"]
    if hearing:
        yield f"No device batches, so nothing is reported of a batch to {', '.join(hearing)}."
    if scenario.foresee_misroutes and not any(device.sti is not None for device in scenario.devices.values()):
        yield "No device batches or streams its model, so foresee_misroutes changes nothing."
