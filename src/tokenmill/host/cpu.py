"""CPUs that this process may use: the affinity mask, one CPU per physical core, caches, and the model's name."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

from tokenmill.host.kernel_files import below, parse_cpu_list, read_int, read_text
from tokenmill.vocabulary.host_facts import CpuFacts

_CPU_DIRECTORY = "/sys/devices/system/cpu"
_MAX_LISTED_CPUS = 1 << 16  # a malformed range must not allocate without bound

# (implementer, part) of MIDR_EL1 as /proc/cpuinfo prints them; Arm CPUs have no "model name" line.
_ARM_PARTS = {
    (0x41, 0xD08): "Arm Cortex-A72",
    (0x41, 0xD0B): "Arm Cortex-A76",
    (0x41, 0xD0C): "Arm Neoverse N1",
    (0x41, 0xD40): "Arm Neoverse V1",
    (0x41, 0xD49): "Arm Neoverse N2",
    (0x41, 0xD4F): "Arm Neoverse V2",
    (0x41, 0xD84): "Arm Neoverse V3",
    (0x41, 0xD8E): "Arm Neoverse N3",
    (0xC0, 0xAC3): "Ampere-1",
}


def read_cpu_facts(root: Path, features: Sequence[str], cpuset: Sequence[int] | None = None) -> CpuFacts:
    """Reads CPU facts below `root`.

    Args:
        root: "/" for this machine, or the top of a fake tree.
        features: instruction-set features, detected by native code (a CPU's flags are not a file on every system).
        cpuset: CPUs of the control group's cpuset, where one is known.

    Returns:
        The facts; `affinity` and `physical_cores` are never empty.
    """
    affinity = read_affinity(root, cpuset)
    l1d, l2, l3 = _read_caches(root, affinity[0])
    return CpuFacts(
        model_name=_read_model_name(root),
        architecture=_read_architecture(root),
        features=tuple(features),
        affinity=affinity,
        physical_cores=one_cpu_per_core(root, affinity),
        l1d_bytes=l1d,
        l2_bytes=l2,
        l3_bytes=l3,
    )


def online_cpus(root: Path) -> tuple[int, ...]:
    """CPUs that are switched on, ascending. Falls back to /proc/cpuinfo, then to CPU 0."""
    listed = parse_cpu_list(read_text(below(root, f"{_CPU_DIRECTORY}/online")))
    if listed:
        return listed[:_MAX_LISTED_CPUS]
    processors = re.findall(r"^processor\s*:\s*(\d+)", read_text(below(root, "/proc/cpuinfo")) or "", re.MULTILINE)
    return tuple(sorted(int(number) for number in processors)) or (0,)


def read_affinity(root: Path, cpuset: Sequence[int] | None = None) -> tuple[int, ...]:
    """The CPUs this process may run on, ascending: its mask, without offline CPUs, within the cpuset.

    The kernel's own mask already honours the cpuset; some sandboxes only show it in the control group's files, so both
    are read. A step that would leave no CPU is skipped, since the process evidently runs somewhere.
    """
    online = online_cpus(root)
    if root == Path("/"):
        mask: tuple[int, ...] | None = tuple(sorted(os.sched_getaffinity(0)))
    else:
        status = read_text(below(root, "/proc/self/status")) or ""
        match = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
        mask = parse_cpu_list(match.group(1)) if match else None
    result = online if not mask else tuple(cpu for cpu in mask if cpu in set(online)) or mask
    if cpuset:
        result = tuple(cpu for cpu in result if cpu in set(cpuset)) or result
    return result


def one_cpu_per_core(root: Path, cpus: Sequence[int]) -> tuple[int, ...]:
    """The lowest CPU of each physical core that has one in `cpus`; a CPU without topology files is its own core."""
    cores: dict[tuple[object, ...], int] = {}
    for cpu in sorted(cpus):
        cores.setdefault(_core_key(root, cpu), cpu)
    return tuple(sorted(cores.values()))


def _core_key(root: Path, cpu: int) -> tuple[object, ...]:
    topology = below(root, f"{_CPU_DIRECTORY}/cpu{cpu}/topology")
    for name in ("core_cpus_list", "thread_siblings_list"):
        siblings = parse_cpu_list(read_text(topology / name))
        if siblings and cpu in siblings:
            return ("siblings", siblings)
    core = read_int(topology / "core_id")
    if core is None or core < 0:
        return ("cpu", cpu)
    # Core numbers repeat in every package, die and (on Arm) cluster.
    return (
        "core",
        read_int(topology / "physical_package_id"),
        read_int(topology / "die_id"),
        read_int(topology / "cluster_id"),
        core,
    )


def _read_caches(root: Path, cpu: int) -> tuple[int | None, int | None, int | None]:
    sizes: dict[int, int] = {}
    for index in sorted(below(root, f"{_CPU_DIRECTORY}/cpu{cpu}/cache").glob("index*")):
        level, size = read_int(index / "level"), _parse_size(read_text(index / "size"))
        if level is not None and size is not None and read_text(index / "type") in ("Data", "Unified"):
            sizes[level] = size
    return sizes.get(1), sizes.get(2), sizes.get(3)


def _parse_size(text: str | None) -> int | None:
    match = re.fullmatch(r"(\d+)([KMG]?)", text or "")
    return int(match.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[match.group(2)] if match else None


def _read_architecture(root: Path) -> str:
    if root == Path("/"):
        return platform.machine()
    stated = read_text(below(root, "/proc/sys/kernel/arch"))
    if stated:
        return stated
    cpuinfo = read_text(below(root, "/proc/cpuinfo")) or ""
    return "aarch64" if re.search(r"^CPU implementer", cpuinfo, re.MULTILINE) else "x86_64"


def _read_model_name(root: Path) -> str:
    cpuinfo = read_text(below(root, "/proc/cpuinfo")) or ""
    name = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    if name:
        return " ".join(name.group(1).split())
    implementer = re.search(r"^CPU implementer\s*:\s*0x([0-9a-f]+)", cpuinfo, re.MULTILINE)
    part = re.search(r"^CPU part\s*:\s*0x([0-9a-f]+)", cpuinfo, re.MULTILINE)
    if not implementer or not part:
        return "unknown"
    key = int(implementer.group(1), 16), int(part.group(1), 16)
    return _ARM_PARTS.get(key, f"CPU implementer 0x{key[0]:02x} part 0x{key[1]:03x}")
