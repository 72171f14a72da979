"""Units of whole scenarios give the same bits in both engines, under every policy with every key."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import given, seed, settings

from simnmt.experiment import units as unit_module
from simnmt.results.requests import Trail
from simnmt.world.compiled_world import simulate_compiled
from simnmt.world.inputs import PolicySetup, World
from simnmt.world.reference import simulate_reference
from simnmt.world.structures import library
from tests.campaigns.harness import SCALE
from tests.units import plan_of, unit_of
from tests.world.random_scenarios import random_scenarios
from tests.world.random_worlds import assert_agree

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled world was not compiled")

SEED = 21
SCENARIOS = 1_000 if SCALE > 1.0 else 12
"""Random scenarios: in `make check-deep`, and in the suite."""


def simulate_in_both(world: World, policy: PolicySetup, judged_share: float, engine: Any) -> Trail:
    """Run one policy in both engines, and assert that their trails agree."""
    trails = [simulate_compiled(world, policy, judged_share), simulate_reference(world, policy, judged_share)]
    assert_agree(*trails)
    return trails[1]


@seed(SEED)
@given(random_scenarios())
@settings(max_examples=SCENARIOS, database=None)
def test_every_policy_of_a_random_scenario_is_the_same_in_both_engines(scenario: dict[str, Any]) -> None:
    """And the runs of a gap analysis, in which C-NMT knows the truth of one quantity at a time."""
    with mock.patch.object(unit_module, "simulate", simulate_in_both):
        unit_module.run_unit(unit_of(plan_of(scenario)))
