"""Policies choose the device that executes a request. Pure decisions; neither simpy nor torch.

To read it, start with `decision.py` (a policy and its settings), then `cnmt.py` (C-NMT and its variants), `estimates.py`
(transfer times) and `views.py` (queues, batches, streamed models). The kinds that a scenario may name are registered here: a
new one is a file and a line in `PolicyConfiguration`.
"""

from typing import Annotated, get_args

from pydantic import Field

from simnmt.policies.baselines import CloudPolicy, EdgePolicy, FixedPolicy, Oracle, OraclePolicy
from simnmt.policies.cnmt import CNmt, CNmtPolicy, NaivePolicy, Threshold, constant_length, threshold
from simnmt.policies.decision import CLOUD, GATEWAY, Choice, Decide, Fixed, LeastTotal, Policy, least_total
from simnmt.policies.estimates import QuantileEstimate, TransferEstimate
from simnmt.policies.views import BacklogView, BatchView, PlanView

PolicyConfiguration = Annotated[
    EdgePolicy | CloudPolicy | FixedPolicy | OraclePolicy | NaivePolicy | CNmtPolicy, Field(discriminator="kind")
]
"""Settings of a policy in a scenario."""

KINDS: tuple[str, ...] = tuple(
    get_args(settings.model_fields["kind"].annotation)[0] for settings in get_args(get_args(PolicyConfiguration)[0])
)
"""Values of `kind`; a policy with one of them as its name needs no `kind`."""

__all__ = [
    "CLOUD",
    "GATEWAY",
    "KINDS",
    "BacklogView",
    "BatchView",
    "CNmt",
    "Choice",
    "Decide",
    "Fixed",
    "LeastTotal",
    "Oracle",
    "PlanView",
    "Policy",
    "PolicyConfiguration",
    "QuantileEstimate",
    "Threshold",
    "TransferEstimate",
    "constant_length",
    "least_total",
    "threshold",
]
