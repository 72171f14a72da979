"""Decisions: which device executes a request. Pure; neither simpy nor torch."""

from simnmt.policies.backlog import BacklogView
from simnmt.policies.batch_view import BatchView
from simnmt.policies.cnmt import CNmt, constant_length
from simnmt.policies.decision import CLOUD, GATEWAY, Decide, Policy, least_total
from simnmt.policies.fixed import Fixed
from simnmt.policies.oracle import Oracle
from simnmt.policies.plan_view import PlanView
from simnmt.policies.threshold import Threshold, threshold
from simnmt.policies.transfer import ProbedEstimate, TransferEstimate

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
