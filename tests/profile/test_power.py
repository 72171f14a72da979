"""Power of boxes and links: as LEAF has it, above all agreement with LEAF itself (the package leafsim)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from leaf.infrastructure import Infrastructure, Link, Node
from leaf.power import PowerMeter, PowerModelLink, PowerModelNode
from numpy.typing import ArrayLike, NDArray

from simnmt.profile.blocks import EnergyBlock
from simnmt.profile.power import BoxPower, PowerConfiguration, RequestCost, transfer_joules

LOADS = st.lists(st.integers(0, 8), min_size=1, max_size=40)


def box(capacity: int = 8, **power: float) -> BoxPower:
    return BoxPower.given(PowerConfiguration(**power), capacity)


def total_w(power: BoxPower, executing: ArrayLike) -> NDArray[np.float64]:
    return power.idle_w + power.dynamic_w(executing)


@given(loads=LOADS, idle_w=st.floats(0.0, 500.0), above_w=st.floats(0.0, 5000.0), step_s=st.floats(0.01, 100.0))
def test_the_energy_of_a_load_over_time_is_that_of_leaf(loads: list[int], idle_w: float, above_w: float, step_s: float) -> None:
    """A LEAF node of 8 units with one task for each request, and a meter that reads its power once in each step."""
    node = Node("box", cu=8, power_model=PowerModelNode(max_power=idle_w + above_w, static_power=idle_w))
    environment, read = simpy.Environment(), list[Any]()
    environment.process(PowerMeter(node, measurement_interval=step_s, callback=read.append).run(environment, step_s / 2))

    def vary() -> Any:
        for load in loads:
            node.used_cu = load
            yield environment.timeout(step_s)

    environment.run(until=environment.process(vary()))
    power = box(idle_w=idle_w, load_w=idle_w + above_w)
    assert total_w(power, loads).tolist() == pytest.approx([float(measured) for measured in read], rel=1e-9, abs=1e-9)
    assert step_s * power.dynamic_w(loads).sum() == pytest.approx(
        step_s * sum(part.dynamic for part in read), rel=1e-9, abs=1e-9
    )
    assert all(part.static == power.idle_w for part in read)


@given(loads=LOADS, per_worker_w=st.floats(0.1, 500.0))
def test_power_per_compute_unit_is_a_line_as_well(loads: list[int], per_worker_w: float) -> None:
    node = Node("box", power_model=PowerModelNode(power_per_cu=per_worker_w, static_power=7.0))
    power = box(idle_w=7.0, busy_w=7.0 + per_worker_w, load_w=7.0 + 8 * per_worker_w)
    for load in loads:
        node.used_cu = load
        assert float(total_w(power, load)) == pytest.approx(float(node.measure_power()), rel=1e-9, abs=1e-9)


@given(sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=20), j_per_byte=st.floats(1e-9, 1e-3))
def test_the_energy_of_bytes_on_a_link_is_that_of_leaf(sizes: list[int], j_per_byte: float) -> None:
    """In LEAF a link draws energy per bit times its bit rate; whatever the rate, a transfer takes its bits."""
    link = Link(Node("a"), Node("b"), bandwidth=1e9, power_model=PowerModelLink(j_per_byte / 8))
    joules = 0.0
    for number, size in enumerate(sizes):
        link.used_bandwidth = 1e3 * (number + 1)
        joules += float(link.measure_power()) * 8 * size / link.used_bandwidth
    assert transfer_joules(8 * np.array(sizes), j_per_byte / 8).sum() == pytest.approx(joules, rel=1e-9, abs=1e-9)


def test_a_deployment_draws_what_its_boxes_and_links_draw() -> None:
    deployment, gateway = Infrastructure(), Node("gateway", cu=1, power_model=PowerModelNode(max_power=15.0, static_power=5.0))
    cloud = Node("cloud", cu=4, power_model=PowerModelNode(max_power=300.0, static_power=100.0))
    link = Link(gateway, cloud, bandwidth=1e8, power_model=PowerModelLink(1e-7))
    deployment.add_link(link)
    gateway.used_cu, cloud.used_cu, link.used_bandwidth = 1, 3, 1e6
    boxes_w = total_w(box(1, idle_w=5.0, load_w=15.0), 1) + total_w(box(4, idle_w=100.0, load_w=300.0), 3)
    assert float(deployment.measure_power()) == pytest.approx(float(boxes_w + transfer_joules(1e6, 1e-7)), rel=1e-9, abs=1e-9)


def test_power_steps_up_with_the_first_request_and_then_rises_evenly_to_the_full_load() -> None:
    power = box(5, idle_w=10.0, busy_w=50.0, load_w=90.0)
    assert total_w(power, [0, 1, 2, 3, 4, 5]).tolist() == [10.0, 50.0, 60.0, 70.0, 80.0, 90.0]
    assert total_w(box(5, idle_w=10.0, busy_w=50.0), [0, 1, 5]).tolist() == [10.0, 50.0, 50.0]
    assert total_w(box(1, idle_w=10.0, busy_w=50.0, load_w=90.0), [0, 1]).tolist() == [10.0, 50.0]
    assert total_w(box(1, idle_w=10.0, load_w=90.0), [0, 1]).tolist() == [10.0, 90.0]


def test_a_profile_gives_power_and_the_joules_that_were_measured_by_lengths() -> None:
    by_power = EnergyBlock(kind="measured", source="rapl", idle_w=10.0, active_w=40.0)
    power = BoxPower.of_profile(by_power, 4)
    assert power is not None and power.kind == "measured"
    assert total_w(power, [0, 1, 4]).tolist() == [10.0, 40.0, 40.0]
    assert power.alone.of(9, 9, 2.0) == 60.0
    by_cell = by_power.model_copy(update={"j_per_src_token": 0.5, "j_per_tgt_token": 2.0, "j_fixed": 1.0})
    by_lengths = BoxPower.of_profile(by_cell, 1)
    assert by_lengths is not None
    joules = by_cell.joules(4, 10, 0.3)
    assert joules is not None and by_lengths.alone.of(4, 10, 0.3) == pytest.approx(joules - 10.0 * 0.3)
    for unknown in ("idle_w", "active_w"):
        assert BoxPower.of_profile(by_power.model_copy(update={unknown: None}), 1) is None
    assert BoxPower.of_profile(None, 1) is None


def test_a_request_never_gives_energy_back() -> None:
    assert RequestCost(per_s=-10.0, per_src_token=1.0).of([1, 50], [0, 0], [1.0, 1.0]).tolist() == [0.0, 40.0]
