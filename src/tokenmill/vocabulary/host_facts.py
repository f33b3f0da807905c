"""What the machine, or the container that acts as the machine, gives this process."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """CPUs in the affinity mask. `physical_cores` holds one CPU number per physical core, SMT siblings left out."""

    model_name: str
    architecture: str
    features: tuple[str, ...]
    affinity: tuple[int, ...]
    physical_cores: tuple[int, ...]
    l1d_bytes: int | None
    l2_bytes: int | None
    l3_bytes: int | None


@dataclass(frozen=True, slots=True)
class QuotaFacts:
    """Limits over all cgroup ancestors; None means no limit. `cpus` is quota / period, as a real number."""

    cgroup_version: int | None
    cpus: float | None
    cpu_source: str  # the file that holds the binding limit, or "none"
    memory_bytes: int | None
    memory_source: str


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """From /proc/meminfo and sysfs. `available_bytes` respects the cgroup limit.

    Reserved pages are those of vm.nr_hugepages: no part of `available_bytes`. `lock_limit_bytes` is what mlock may
    hold; None without a limit.
    """

    total_bytes: int
    available_bytes: int
    page_bytes: int
    transparent_huge_pages: str  # "always", "madvise", "never" or "unknown"
    transparent_page_bytes: int = 0  # of one transparent huge page; 0 where the kernel has none
    reserved_page_bytes: int = 0  # of one reserved huge page; 0 where the kernel has none
    reserved_free_bytes: int = 0
    lock_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One node: its id (ids need not be contiguous), its CPUs and its memory (0 for a memory-less node).

    Attributes:
        available_bytes: free, or taken back from the file cache without a loss.
        memory_allowed: whether the cpuset lets this process allocate here.
        distances: to the online nodes by ascending id, as the firmware says; 10 is itself. Empty where unknown.
    """

    node_id: int
    cpus: tuple[int, ...]
    memory_bytes: int
    available_bytes: int = 0
    memory_allowed: bool = True
    distances: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Everything a placement decision needs; read by host/ below a root so that tests hand in a tree."""

    cpu: CpuFacts
    quota: QuotaFacts
    memory: MemoryFacts
    numa: tuple[NumaNode, ...]


class Numa(enum.StrEnum):
    """What to do on several NUMA nodes. AUTO: a copy of the weights per node when memory allows, else INTERLEAVE."""

    AUTO = "auto"
    COPIES = "copies"
    INTERLEAVE = "interleave"
    OFF = "off"


def engine_threads(facts: HostFacts) -> int:
    """max(1, floor(min(physical cores in the affinity mask, cgroup quota over all ancestors)))."""
    cores = float(len(facts.cpu.physical_cores))
    limit = cores if facts.quota.cpus is None else min(cores, facts.quota.cpus)
    return max(1, int(limit))
