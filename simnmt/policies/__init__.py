"""Policies: which device executes a request. Pure decisions; neither simpy nor torch.

To read it, start with `decision.py` (the interface), then `cnmt.py` (C-NMT and its variants) and `estimates.py` (what a policy
may see of transfers and queues). `configuration.py` lists the kinds that a scenario may name.
"""

from simnmt.policies.baselines import Fixed, Oracle
from simnmt.policies.cnmt import CNmt, constant_length
from simnmt.policies.decision import CLOUD, GATEWAY, Decide, Policy, least_total
from simnmt.policies.estimates import BacklogView, BatchView, PlanView, ProbedEstimate, TransferEstimate
from simnmt.policies.threshold import Threshold, threshold

__all__ = [
    "CLOUD",
    "GATEWAY",
    "BacklogView",
    "BatchView",
    "CNmt",
    "Decide",
    "Fixed",
    "Oracle",
    "PlanView",
    "Policy",
    "ProbedEstimate",
    "Threshold",
    "TransferEstimate",
    "constant_length",
    "least_total",
    "threshold",
]
