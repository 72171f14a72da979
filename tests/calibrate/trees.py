"""Boxes as trees of small files: what /proc, /sys and /etc of each would say, cut to what is read."""

from __future__ import annotations

from pathlib import Path

ORIN_FEATURES = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm asimddp"


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write each file under `root`."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return root


def _cpuinfo(blocks: list[dict[str, object]]) -> str:
    return "\n\n".join("\n".join(f"{key}\t: {value}" for key, value in block.items()) for block in blocks) + "\n\n"


def _status(cpus: str) -> str:
    return f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\n"


def x86_server(root: Path) -> Path:
    """Two sockets of two cores with two threads each, AMX, clock held, quiet, RAPL closed to us (see the test)."""
    flags = "fpu sse4_2 avx avx2 fma f16c avx512f avx512bw avx512vl avx512_vnni avx512_bf16 amx_tile amx_int8 amx_bf16"
    blocks: list[dict[str, object]] = []
    files = {}
    for cpu in range(8):
        socket, core = cpu // 2 % 2, cpu % 2
        blocks.append(
            {
                "processor": cpu,
                "vendor_id": "GenuineIntel",
                "model name": "Intel(R) Xeon(R) Gold 6430",
                "cpu MHz": "2100.000",
                "physical id": socket,
                "core id": core,
                "flags": flags,
            }
        )
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        files[f"{folder}/topology/thread_siblings_list"] = f"{cpu % 4},{cpu % 4 + 4}\n"
        files[f"{folder}/cpufreq/scaling_governor"] = "performance\n"
        files[f"{folder}/cpufreq/scaling_cur_freq"] = "3400000\n" if cpu % 2 else "3300000\n"
        files[f"{folder}/cpufreq/scaling_min_freq"] = "800000\n"
        files[f"{folder}/cpufreq/scaling_max_freq"] = "3400000\n"
    for socket in (0, 1):
        zone = f"sys/class/powercap/intel-rapl:{socket}"
        files |= {f"{zone}/name": f"package-{socket}\n", f"{zone}/max_energy_range_uj": "262143328850\n"}
        files |= {f"{zone}/energy_uj": f"{1000 * (socket + 1)}\n"}
        files |= {f"{zone}:0/name": "dram\n", f"{zone}:0/energy_uj": "77\n"}
    return plant(
        root,
        files
        | {
            "proc/cpuinfo": _cpuinfo(blocks),
            "proc/self/status": _status("0-7"),
            "proc/self/cgroup": "0::/user.slice\n",
            "proc/meminfo": "MemTotal:       131072000 kB\nMemAvailable:   120000000 kB\n",
            "proc/loadavg": "0.04 0.10 0.20 1/400 1234\n",
            "proc/version": "Linux version 6.8.0-45-generic (buildd@host) (gcc) #45\n",
            "sys/class/dmi/id/sys_vendor": "Dell Inc.\n",
            "sys/class/dmi/id/product_name": "PowerEdge R760\n",
        },
    )


def orin(root: Path) -> Path:
    """A Jetson AGX Orin: two INA3221 chips, of whose rails one feeds another."""
    block = {"Features": ORIN_FEATURES, "CPU implementer": "0x41", "CPU part": "0xd42"}
    chips = {
        3: [("VDD_GPU_SOC", 20000, 200), ("VDD_CPU_CV", 20000, 50), ("VIN_SYS_5V0", 5000, 600)],
        4: [("NC", 0, 0), ("VDDQ_VDD2_1V8AO", 5000, 80)],
    }
    files = {}
    for chip, channels in chips.items():
        folder = f"sys/class/hwmon/hwmon{chip}"
        files[f"{folder}/name"] = "ina3221\n"
        for channel, (label, voltage_mv, current_ma) in enumerate(channels, 1):
            files[f"{folder}/in{channel}_label"] = f"{label}\n"
            files[f"{folder}/in{channel}_input"] = f"{voltage_mv}\n"
            files[f"{folder}/curr{channel}_input"] = f"{current_ma}\n"
        files[f"{folder}/in7_label"] = "sum of shunt voltages\n"
    return plant(
        root,
        files
        | {
            "proc/cpuinfo": _cpuinfo([{"processor": cpu} | block for cpu in range(12)]),
            "proc/self/status": _status("0-7"),
            "proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
            "proc/loadavg": "0.30 0.20 0.10 1/300 42\n",
            "proc/meminfo": "MemTotal: 62000000 kB\nMemAvailable: 55000000 kB\n",
            "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n",
            "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=MAXN >\n< POWER_MODEL ID=2 NAME=MODE_30W >\n",
            "var/lib/nvpmodel/status": "pmode:0002 fmode:quiet\n",
            "var/lib/dpkg/status": "Package: bash\nVersion: 5.1\n\nPackage: nvidia-jetpack\nStatus: ok\nVersion: 6.2+b77\n",
            "sys/class/hwmon/hwmon0/name": "tmp102\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "schedutil\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors": "performance schedutil\n",
        },
    )


def laptop(root: Path) -> Path:
    """On battery, its clock following the load, with one package's counter."""
    zone = "sys/class/powercap/intel-rapl:0"
    block = {"vendor_id": "GenuineIntel", "model name": "Intel(R) Core(TM) Ultra 7", "cpu MHz": "nan", "flags": "avx2 avx_vnni"}
    return plant(
        root,
        {
            "proc/cpuinfo": _cpuinfo([{"processor": cpu, "core id": cpu} | block for cpu in range(4)]),
            "proc/self/status": _status("0-3"),
            "proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 1500000 kB\n",
            "proc/loadavg": "nan 0.1 0.1 1/2 3\n",
            "sys/class/power_supply/AC/type": "Mains\n",
            "sys/class/power_supply/AC/online": "0\n",
            "sys/class/power_supply/BAT0/type": "Battery\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
            f"{zone}/name": "package-0\n",
            f"{zone}/energy_uj": "5\n",
            f"{zone}/max_energy_range_uj": "262143328850\n",
            # The same package once more, and one that contains it.
            "sys/class/powercap/intel-rapl-mmio:0/name": "package-0\n",
            "sys/class/powercap/intel-rapl-mmio:0/energy_uj": "5\n",
            "sys/class/powercap/intel-rapl:1/name": "psys\n",
            "sys/class/powercap/intel-rapl:1/energy_uj": "9\n",
        },
    )


def container(root: Path) -> Path:
    """A container with a CPU quota that shows next to nothing."""
    return plant(
        root,
        {
            "proc/cpuinfo": _cpuinfo([{"processor": cpu, "vendor_id": "AuthenticAMD", "flags": "avx2"} for cpu in range(16)]),
            "proc/self/status": _status("0-3,8"),
            "proc/self/cgroup": "0::/kubepods/pod1/box\n",
            "proc/1/cgroup": "0::/kubepods/pod1/box\n",
            "proc/loadavg": "12.0 11.0 10.0 5/900 7\n",
            "proc/meminfo": "MemTotal: 64000000 kB\nMemAvailable: 60000000 kB\n",
            # The group's own folder is the host's and not shown here; the container's root is.
            "sys/fs/cgroup/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/memory.max": "1500000000\n",
        },
    )
