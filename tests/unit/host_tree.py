"""Builds fake proc, sys and cgroup trees for the host tests."""

from __future__ import annotations

import struct
from pathlib import Path


class HostTree:
    """A directory that stands for "/". Files are written by their absolute path on the imagined host."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str | int) -> HostTree:
        """Writes one file, with a final newline as the kernel does."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8")
        return self

    def cpus(
        self, online: str, *, allowed: str | None = None, memory_nodes: str | None = None, cpuinfo: str = ""
    ) -> HostTree:
        """Online CPUs, this process's mask (default: all of them) and the nodes of its memory (default: not said)."""
        self.write("/sys/devices/system/cpu/online", online)
        status = f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed or online}"
        status += "" if memory_nodes is None else f"\nMems_allowed_list:\t{memory_nodes}"
        self.write("/proc/self/status", status)
        return self.write("/proc/cpuinfo", cpuinfo or "processor\t: 0\nmodel name\t: Test CPU  @ 2.0GHz")

    def core(self, siblings: tuple[int, ...], *, core_id: int = 0, package: int = 0) -> HostTree:
        """Topology files of one physical core with these SMT siblings."""
        for cpu in siblings:
            base = f"/sys/devices/system/cpu/cpu{cpu}/topology"
            self.write(f"{base}/thread_siblings_list", ",".join(map(str, siblings)))
            self.write(f"{base}/core_id", core_id)
            self.write(f"{base}/physical_package_id", package)
        return self

    def node(self, number: int, cpus: str, *, total_gib: int, free_gib: int, distances: str = "") -> HostTree:
        """One NUMA node; half of what is available is file cache."""
        base = f"/sys/devices/system/node/node{number}"
        free = free_gib << 20
        lines = (("MemTotal", total_gib << 20), ("MemFree", free // 2), ("Inactive(file)", free - free // 2))
        self.write(f"{base}/meminfo", "\n".join(f"Node {number} {key}: {kib} kB" for key, kib in lines))
        return self.write(f"{base}/cpulist", cpus).write(f"{base}/distance", distances)

    def page_size(self, size: int) -> HostTree:
        """The auxiliary vector that tells a process its page size (AT_PAGESZ is 6, AT_HWCAP 16, AT_NULL 0)."""
        self.write("/proc/self/auxv", "")
        (self.root / "proc/self/auxv").write_bytes(struct.pack("=6Q", 16, 0xFFFF, 6, size, 0, 0))
        return self

    def memory(self, total_kib: int, available_kib: int) -> HostTree:
        """/proc/meminfo."""
        return self.write(
            "/proc/meminfo", f"MemTotal: {total_kib} kB\nMemFree: 1 kB\nMemAvailable:   {available_kib} kB"
        )

    def cgroup_v2(self, group: str, *, mount_root: str = "/", mount_point: str = "/sys/fs/cgroup") -> HostTree:
        """A unified hierarchy with this process in `group`."""
        self.write("/proc/self/cgroup", f"0::{group}")
        return self.write(
            "/proc/self/mountinfo",
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
            f"30 22 0:26 {mount_root} {mount_point} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate",
        )

    def cgroup_v1(self, group: str, *, mount_root: str = "/", memory_group: str | None = None) -> HostTree:
        """Split hierarchies, cpu and cpuacct together as distributions mount them."""
        self.write(
            "/proc/self/cgroup",
            f"5:memory:{memory_group or group}\n4:cpuset:{group}\n3:cpu,cpuacct:{group}\n1:name=systemd:/x",
        )
        lines = [
            f"{30 + i} 22 0:{26 + i} {mount_root} /sys/fs/cgroup/{names} rw shared:4 - cgroup cgroup rw,{names}"
            for i, names in enumerate(("cpu,cpuacct", "memory", "cpuset"))
        ]
        return self.write("/proc/self/mountinfo", "\n".join(lines))
