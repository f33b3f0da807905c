"""Memory of the host, and what the control group leaves of it."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

from tokenmill.host.kernel_files import below, read_int, read_text
from tokenmill.vocabulary.host_facts import MemoryFacts

_THP_DIRECTORY = "/sys/kernel/mm/transparent_hugepage"
_AT_PAGESZ = 6  # of the auxiliary vector, getauxval(3)
_CAP_IPC_LOCK = 14  # capabilities(7)


def read_memory_facts(root: Path, cgroup_headroom_bytes: int | None) -> MemoryFacts:
    """Reads memory facts below `root`.

    Args:
        root: "/" or the top of a fake tree.
        cgroup_headroom_bytes: what the process may still allocate under its control groups; None without a limit.

    Returns:
        The facts; 0 where /proc/meminfo cannot be read.
    """
    meminfo = read_text(below(root, "/proc/meminfo")) or ""
    total = meminfo_bytes(meminfo, "MemTotal") or 0
    available = meminfo_bytes(meminfo, "MemAvailable")
    if available is None:  # kernels before 3.14, and some sandboxes
        available = sum(meminfo_bytes(meminfo, key) or 0 for key in ("MemFree", "Buffers", "Cached"))
    if cgroup_headroom_bytes is not None:
        available = min(available, cgroup_headroom_bytes)
    return MemoryFacts(
        total_bytes=total,
        available_bytes=available,
        page_bytes=_read_page_bytes(root),
        transparent_huge_pages=_read_thp_mode(root),
        transparent_page_bytes=read_int(below(root, f"{_THP_DIRECTORY}/hpage_pmd_size")) or 0,
        reserved_page_bytes=meminfo_bytes(meminfo, "Hugepagesize") or 0,
        reserved_free_bytes=_reserved_free_bytes(meminfo),
        lock_limit_bytes=_read_lock_limit(root),
    )


def meminfo_bytes(meminfo: str, key: str) -> int | None:
    """The bytes of one "Key:  123 kB" line, also in a NUMA node's form "Node 0 Key:  123 kB"."""
    match = re.search(rf"^(?:Node \d+ )?{key}:\s*(\d+)\s*kB", meminfo, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None


def _read_page_bytes(root: Path) -> int:
    """Base page size: what the C library says here, what the kernel told a process at its start in another tree."""
    if root != Path("/"):
        try:
            auxv = below(root, "/proc/self/auxv").read_bytes()
        except OSError:
            auxv = b""
        for key, value in struct.iter_unpack("=QQ", auxv[: len(auxv) // 16 * 16]):
            if key == _AT_PAGESZ:
                return int(value)
    return os.sysconf("SC_PAGE_SIZE")


def _reserved_free_bytes(meminfo: str) -> int:
    """Reserved huge pages of the default size that nobody has taken or has a claim on."""
    counts = {key: re.search(rf"^HugePages_{key}:\s*(\d+)", meminfo, re.MULTILINE) for key in ("Free", "Rsvd")}
    free, claimed = (int(match.group(1)) if match else 0 for match in counts.values())
    return max(0, free - claimed) * (meminfo_bytes(meminfo, "Hugepagesize") or 0)


def _read_lock_limit(root: Path) -> int | None:
    """RLIMIT_MEMLOCK in bytes; None when it is unlimited or when CAP_IPC_LOCK sets it aside."""
    status = read_text(below(root, "/proc/self/status")) or ""
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    if capabilities and int(capabilities.group(1), 16) >> _CAP_IPC_LOCK & 1:
        return None
    limits = read_text(below(root, "/proc/self/limits")) or ""
    match = re.search(r"^Max locked memory\s+(\d+)", limits, re.MULTILINE)
    return int(match.group(1)) if match else None


def _read_thp_mode(root: Path) -> str:
    text = read_text(below(root, f"{_THP_DIRECTORY}/enabled")) or ""
    match = re.search(r"\[(always|madvise|never)\]", text)
    return match.group(1) if match else "unknown"
