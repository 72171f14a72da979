"""The commands that deploy a plan's choice, for devices that stream their model and for those without an engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from simnmt.experiment.plan.messages import deploy_commands


def plan(*without_engine: str, **streams: bool) -> Any:
    """Return what `deploy_commands` reads of a plan; `streams`: by device, whether it streams its model."""
    devices = {name: SimpleNamespace(sti=object() if sti else None, count=2) for name, sti in streams.items()}
    scenario = SimpleNamespace(
        devices=devices,
        policies={"cnmt": SimpleNamespace(devices_of=lambda names: names)},
        balancer_of=lambda device: "attached",
    )
    choice = SimpleNamespace(policy="cnmt")
    return SimpleNamespace(scenario=scenario, choice=choice, overrides=(), without_engine=frozenset(without_engine))


def test_a_device_that_streams_its_model_is_left_to_the_user() -> None:
    for streams in ({"gateway": False, "cloud": True}, {"gateway": True, "cloud": False}):
        (remark,) = deploy_commands(plan(**streams), "own.yaml")
        assert remark.startswith("#")


def test_a_model_is_asked_for_where_no_profile_names_one() -> None:
    server, gateway = deploy_commands(plan("gateway", "cloud", gateway=False, cloud=False), "own.yaml", "choice.yaml")
    assert server.startswith("simnmt live server choice.yaml --device cloud --model MODEL ")
    assert gateway.startswith("simnmt live gateway choice.yaml --policy cnmt --model MODEL --server ")
