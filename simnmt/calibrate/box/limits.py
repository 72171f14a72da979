"""How much of the box this process may use: CPU affinity, and the control group's quota and memory limit."""

from __future__ import annotations

from collections.abc import Iterator

from simnmt.calibrate.box.tree import Tree, parse_ranges

_NO_LIMIT_BYTES = 1 << 60
"""Version 1 of control groups writes a number near 2^63 where there is no limit."""


def allowed_cpus(tree: Tree) -> tuple[int, ...]:
    """Numbers of the logical CPUs that we may run on."""
    for line in (tree.text("proc/self/status") or "").splitlines():
        key, _, value = line.partition(":")
        if key == "Cpus_allowed_list":
            return parse_ranges(value)
    return ()


def cpu_quota(tree: Tree) -> float | None:
    """CPUs' worth of time granted, the least on the way from our control group to the root; None without a quota."""
    quotas = []
    for folder in _groups(tree, ""):
        quota, _, period = (tree.text(f"{folder}/cpu.max") or "").partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period):
            quotas.append(int(quota) / int(period))
    for folder in _groups(tree, "cpu"):
        quota_us, period_us = tree.number(f"{folder}/cpu.cfs_quota_us"), tree.number(f"{folder}/cpu.cfs_period_us")
        if quota_us and period_us and quota_us > 0 and period_us > 0:
            quotas.append(quota_us / period_us)
    return min(quotas, default=None)


def memory_limit_bytes(tree: Tree) -> int | None:
    """The least limit on the way from our control group to the root; None without one."""
    limits = [tree.number(f"{folder}/memory.max") for folder in _groups(tree, "")]
    limits += [tree.number(f"{folder}/memory.limit_in_bytes") for folder in _groups(tree, "memory")]
    return min((limit for limit in limits if limit is not None and limit < _NO_LIMIT_BYTES), default=None)


def _groups(tree: Tree, controller: str) -> Iterator[str]:
    """Folders of our control group and of those it lies in; `controller` is empty for version 2.

    In a container the group's path may be one of the host, which is not there; its root is.
    """
    for line in (tree.text("proc/self/cgroup") or "0::/").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controller not in controllers.split(","):
            continue
        parts = [part for part in path.split("/") if part]
        for mount in (f"sys/fs/cgroup/{controllers}", f"sys/fs/cgroup/{controller}"):
            for depth in range(len(parts), -1, -1):
                yield "/".join([mount.rstrip("/"), *parts[:depth]])
