"""All host facts at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenmill.host.cgroup import read_limits
from tokenmill.host.cpu import read_cpu_facts
from tokenmill.host.memory import read_memory_facts
from tokenmill.host.numa import read_numa_nodes
from tokenmill.vocabulary.host_facts import HostFacts


def read_host_facts(root: Path = Path("/"), features: Sequence[str] = ()) -> HostFacts:
    """Reads what the machine, or the container that acts as the machine, gives this process.

    Args:
        root: "/" for this machine; a test hands in a directory with its own proc and sys.
        features: CPU features as native code detects them; host/ itself may not load native code.

    Returns:
        The facts. A file that is missing gives the widest answer (no limit, one core per CPU), never an error.
    """
    limits = read_limits(root)
    return HostFacts(
        cpu=read_cpu_facts(root, features, limits.cpuset),
        quota=limits.quota,
        memory=read_memory_facts(root, limits.memory_headroom_bytes),
        numa=read_numa_nodes(root),
    )
