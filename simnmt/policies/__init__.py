"""Policies choose the device that executes a request. Pure decisions; neither simpy nor torch.

To read it, start with `decision.py` (a policy and its settings), then `cnmt.py` (C-NMT and its variants), `estimates.py`
(transfer times), `gains.py` (quality), `views.py` (queues and streamed models) and `batch_view.py`. The kinds that a scenario
may name are registered here: a new one is a file, an import and an entry in `PolicyConfiguration`.
"""

from typing import Annotated, get_args

from pydantic import Field

from simnmt.policies.baselines import CloudPolicy, EdgePolicy, FixedPolicy, OraclePolicy
from simnmt.policies.batch_view import BatchView
from simnmt.policies.cascade import CascadePolicy
from simnmt.policies.cnmt import CNmt, CNmtPolicy, NaivePolicy, constant_length, kept_lengths
from simnmt.policies.decision import Decide, DecisionView, Fixed, LeastTotal, Policy
from simnmt.policies.estimates import QuantileEstimate, TransferEstimate
from simnmt.policies.route import RoutePolicy
from simnmt.policies.views import BacklogView, PlanView

PolicyConfiguration = Annotated[
    EdgePolicy | CloudPolicy | FixedPolicy | OraclePolicy | NaivePolicy | CNmtPolicy | RoutePolicy | CascadePolicy,
    Field(discriminator="kind"),
]
"""Settings of a policy in a scenario."""

KINDS: tuple[str, ...] = tuple(
    get_args(settings.model_fields["kind"].annotation)[0] for settings in get_args(get_args(PolicyConfiguration)[0])
)
"""Values of `kind`; a policy with one of them as its name needs no `kind`."""

__all__ = [
    "KINDS", "BacklogView", "BatchView", "CNmt", "Decide", "DecisionView", "Fixed", "LeastTotal",
    "PlanView", "Policy", "PolicyConfiguration", "QuantileEstimate", "TransferEstimate", "constant_length", "kept_lengths",
]  # fmt: skip
