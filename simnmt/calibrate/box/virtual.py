"""Whether the box is one of several on the same hardware: its clocks and counters are then not its own."""

from __future__ import annotations

from simnmt.calibrate.box.cpu import Processor
from simnmt.calibrate.box.tree import Tree

_MACHINES = ("qemu", "kvm", "vmware", "virtualbox", "innotek", "xen", "bochs", "parallels", "virtual machine", "hvm domu")
_CLOUDS = ("google compute engine", "amazon ec2", "openstack", "alibaba cloud", "digitalocean", "hetzner")
"""Makers whose name alone is a sign, except on what they call metal."""


def virtualisation(tree: Tree, cpus: list[Processor]) -> str | None:
    """Such as `virtual machine (QEMU Standard PC)` or `container (docker)`; None where nothing hints at either."""
    hints = []
    maker = " ".join(filter(None, (tree.text(f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name"))))
    hypervisor = tree.text("sys/hypervisor/type")
    flagged = any("hypervisor" in cpu.get("flags", "").split() for cpu in cpus)
    named = maker.lower()
    hosted = any(name in named for name in _MACHINES) or (any(name in named for name in _CLOUDS) and "metal" not in named)
    if flagged or hosted or hypervisor or tree.text("proc/device-tree/hypervisor/compatible"):
        which = maker or hypervisor
        hints.append(f"virtual machine ({which})" if which else "virtual machine")
    container = _container(tree)
    if container:
        hints.append(f"container ({container})")
    return "; ".join(hints) or None


def _container(tree: Tree) -> str | None:
    if tree.path(".dockerenv").exists():
        return "docker"
    if tree.path("run/.containerenv").exists():
        return "podman"
    groups = tree.text("proc/1/cgroup") or ""
    return next((name for name in ("kubepods", "docker", "lxc", "containerd") if name in groups), None)
