"""Memory of the host, and what the control group leaves of it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tokenmill.host.kernel_files import below, read_text
from tokenmill.vocabulary.host_facts import MemoryFacts


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
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        transparent_huge_pages=_read_thp_mode(root),
    )


def meminfo_bytes(meminfo: str, key: str) -> int | None:
    """The bytes of one "Key:  123 kB" line, also in a NUMA node's form "Node 0 Key:  123 kB"."""
    match = re.search(rf"^(?:Node \d+ )?{key}:\s*(\d+)\s*kB", meminfo, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None


def _read_thp_mode(root: Path) -> str:
    text = read_text(below(root, "/sys/kernel/mm/transparent_hugepage/enabled")) or ""
    match = re.search(r"\[(always|madvise|never)\]", text)
    return match.group(1) if match else "unknown"
