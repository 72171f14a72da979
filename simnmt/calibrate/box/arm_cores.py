"""Names of Arm cores: /proc/cpuinfo gives only the numbers of the MIDR_EL1 register.

Numbers: the Linux kernel's arch/arm64/include/asm/cputype.h, and the technical reference manuals that it follows.
"""

from __future__ import annotations

_ARM = {
    0xC07: "Cortex-A7",
    0xC09: "Cortex-A9",
    0xC0F: "Cortex-A15",
    0xD03: "Cortex-A53",
    0xD04: "Cortex-A35",
    0xD05: "Cortex-A55",
    0xD07: "Cortex-A57",
    0xD08: "Cortex-A72",
    0xD09: "Cortex-A73",
    0xD0A: "Cortex-A75",
    0xD0B: "Cortex-A76",
    0xD0C: "Neoverse-N1",
    0xD0D: "Cortex-A77",
    0xD0E: "Cortex-A76AE",
    0xD40: "Neoverse-V1",
    0xD41: "Cortex-A78",
    0xD42: "Cortex-A78AE",
    0xD44: "Cortex-X1",
    0xD46: "Cortex-A510",
    0xD47: "Cortex-A710",
    0xD48: "Cortex-X2",
    0xD49: "Neoverse-N2",
    0xD4B: "Cortex-A78C",
    0xD4D: "Cortex-A715",
    0xD4E: "Cortex-X3",
    0xD4F: "Neoverse-V2",
    0xD80: "Cortex-A520",
    0xD81: "Cortex-A720",
    0xD82: "Cortex-X4",
    0xD83: "Neoverse-V3AE",
    0xD84: "Neoverse-V3",
    0xD85: "Cortex-X925",
    0xD87: "Cortex-A725",
    0xD8E: "Neoverse-N3",
}
_MAKERS = {
    0x41: ("Arm", _ARM),
    0x42: ("Broadcom", {0x516: "Vulcan"}),
    0x43: ("Cavium", {0x0A1: "ThunderX", 0x0AF: "ThunderX2"}),
    0x46: ("Fujitsu", {0x001: "A64FX"}),
    0x48: ("HiSilicon", {0xD01: "TaiShan v110"}),
    0x4E: ("NVIDIA", {0x000: "Denver", 0x003: "Denver 2", 0x004: "Carmel"}),
    0x51: ("Qualcomm", {0x001: "Oryon", 0x800: "Kryo 2xx Gold", 0x801: "Kryo 2xx Silver"}),
    0x61: ("Apple", {0x022: "M1 Icestorm", 0x023: "M1 Firestorm", 0x032: "M2 Blizzard", 0x033: "M2 Avalanche"}),
    0xC0: ("Ampere", {0xAC3: "Ampere-1", 0xAC4: "Ampere-1A"}),
}


def arm_core(implementer: str | None, part: str | None) -> str | None:
    """Name of the core with these numbers of /proc/cpuinfo, such as `Arm Cortex-A78AE`; None where it is no Arm core.

    A core that is not in the table goes by its numbers.
    """
    try:
        maker, model = int(implementer or "", 0), int(part or "", 0)
    except ValueError:
        return None
    name, parts = _MAKERS.get(maker, (f"Arm implementer {maker:#04x}", {}))
    return f"{name} {parts.get(model) or f'part {model:#05x}'}"
