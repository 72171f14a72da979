"""Boards that have a device tree, and what NVIDIA's Linux for Tegra says of itself."""

from __future__ import annotations

import re

from simnmt.calibrate.box.description import JetsonDescription
from simnmt.calibrate.box.tree import Tree

_SERIES = {32: "4", 34: "5", 35: "5", 36: "6", 38: "7", 39: "7"}
"""L4T's major release -> JetPack's (https://developer.nvidia.com/embedded/jetpack-archive)."""
_NO_BOARD = "linux,dummy-virt"
"""What virtual machines on Arm call theirs, whatever they run on."""


def board(tree: Tree) -> str | None:
    """The model in the device tree, such as `Raspberry Pi 5 Model B Rev 1.0`."""
    model = tree.text("proc/device-tree/model") or tree.text("sys/firmware/devicetree/base/model")
    return None if model == _NO_BOARD else model


def jetson(tree: Tree) -> JetsonDescription | None:
    """L4T's release, JetPack and power mode; None on any other box."""
    release = re.match(r"#\s*R(\d+)\s*\(release\),\s*REVISION:\s*([\d.]+)", tree.text("etc/nv_tegra_release") or "")
    if release is None:
        return None
    return JetsonDescription(
        l4t=f"{release[1]}.{release[2]}",
        jetpack=_installed_jetpack(tree) or _SERIES.get(int(release[1])),
        power_mode=_power_mode(tree),
    )


def _installed_jetpack(tree: Tree) -> str | None:
    """Exact version of the package `nvidia-jetpack`, which not every box has."""
    for package in (tree.text("var/lib/dpkg/status") or "").split("\n\n"):
        if package.startswith("Package: nvidia-jetpack\n"):
            version = re.search(r"^Version: (\d+(?:\.\d+)*)", package, re.MULTILINE)
            return version[1] if version else None
    return None


def _power_mode(tree: Tree) -> str | None:
    """Name of the mode that nvpmodel noted as its last; its number where the name is not to be found."""
    mode = re.search(r"pmode:(\d+)", tree.text("var/lib/nvpmodel/status") or "")
    if mode is None:
        return None
    modes = tree.text("etc/nvpmodel.conf") or ""
    name = re.search(rf"<\s*POWER_MODEL\s+ID={int(mode[1])}\s+NAME=(\S+?)\s*>", modes)
    return name[1] if name else f"mode {int(mode[1])}"
