"""The C-NMT world in Ciw 3.2, by its own means: an independent judge of completion times, a second yardstick.

Four nodes: gateway and cloud with servers, uplink and downlink with infinitely many. The choice of target
stands in the arrival node, which saves Ciw a fifth node and an event per request; what a request took is
read from the records that Ciw writes anyway. (Both ways of the link in one node would cost 10 % less, for a
model harder to read.) Ciw draws lots among events of the same moment: inputs must have no ties
(`cnmt_inputs` has none).
"""

from __future__ import annotations

import ciw
import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import Floats, WorldInputs

GATEWAY, UPLINK, CLOUD, DOWNLINK, EXIT = 1, 2, 3, 4, -1

Answer = tuple[NDArray[np.float64], NDArray[np.int8]]
"""Completion times (s) and targets (0 gateway, 1 cloud), each of shape (requests,)."""


class _Moments(ciw.dists.Distribution):
    """The moments of a sorted column one after another, then never again."""

    def __init__(self, moment_s: Floats) -> None:
        # Ciw copies its distributions deeply: a list would be copied, its bound method is shared.
        self.at = [*moment_s.tolist(), float("inf")].__getitem__
        self.next = 0

    def sample(self, t: float | None = None, ind: ciw.Individual | None = None) -> float:
        self.next += 1
        return self.at(self.next - 1)


class _PerRequest(ciw.dists.Distribution):
    """A request's own entry of a column."""

    def __init__(self, column: Floats) -> None:
        # Ciw numbers individuals from one.
        self.of = [float("nan"), *column.tolist()].__getitem__

    def sample(self, t: float | None = None, ind: ciw.Individual | None = None) -> float:
        return self.of(ind.id_number)


class _Answered(ciw.routing.NodeRouting):
    """Leaves the world from the downlink, and leaves the measured transfer time behind."""

    def next_node(self, ind: ciw.Individual) -> ciw.ExitNode:
        uplink, cloud = ind.data_records
        away_s = self.simulation.current_time - uplink.arrival_date
        self.simulation.nodes[0].estimate_s = away_s - (cloud.exit_date - cloud.arrival_date)
        return self.simulation.nodes[EXIT]


def simulate(inputs: WorldInputs, workers: int = 1) -> Answer:
    """Open loop: requests arrive at their moments and queue at the gateway and at the cloud's workers."""
    local_predicted_s = inputs.local_predicted_s.tolist()
    remote_predicted_s = inputs.remote_predicted_s.tolist()

    class Door(ciw.ArrivalNode):
        """Sends each arrival to the gateway or on its way to the cloud."""

        estimate_s = inputs.initial_transfer_s

        def increment_time(self, original: float, increment: float) -> float:
            """Moments themselves come from `_Moments`, not gaps: sums of gaps would round."""
            return increment

        def release_individual(self, next_node: ciw.Node, next_individual: ciw.Individual) -> None:
            i = next_individual.id_number - 1
            local = local_predicted_s[i] <= remote_predicted_s[i] + self.estimate_s
            super().release_individual(self.simulation.nodes[GATEWAY if local else UPLINK], next_individual)

    network = ciw.create_network(
        arrival_distributions=[_Moments(inputs.arrival_s), None, None, None],
        service_distributions=[
            _PerRequest(inputs.gateway_s),
            _PerRequest(inputs.uplink_s),
            _PerRequest(inputs.cloud_s),
            _PerRequest(inputs.downlink_s),
        ],
        number_of_servers=[1, float("inf"), workers, float("inf")],
        routing=ciw.routing.NetworkRouting(
            [ciw.routing.Leave(), ciw.routing.Direct(to=CLOUD), ciw.routing.Direct(to=DOWNLINK), _Answered()]
        ),
    )
    simulation = ciw.Simulation(network, arrival_node_class=Door)
    simulation.simulate_until_max_customers(inputs.requests, method="Complete")

    completion_s = np.empty(inputs.requests)
    target = np.empty(inputs.requests, dtype=np.int8)
    for individual in simulation.nodes[EXIT].all_individuals:
        last = individual.data_records[-1]
        completion_s[individual.id_number - 1] = last.exit_date
        target[individual.id_number - 1] = last.node == DOWNLINK
    return completion_s, target
