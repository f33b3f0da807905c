"""NUMA nodes from sysfs. Node numbers may have gaps, and a node may have no memory or no CPU."""

from __future__ import annotations

import re
from pathlib import Path

from tokenmill.host.cpu import online_cpus
from tokenmill.host.kernel_files import below, parse_cpu_list, parse_int, read_text
from tokenmill.host.memory import meminfo_bytes
from tokenmill.vocabulary.host_facts import NumaNode

_NODE_DIRECTORY = "/sys/devices/system/node"


def read_numa_nodes(root: Path) -> tuple[NumaNode, ...]:
    """The online nodes by ascending id, with their online CPUs; one node 0 of everything where sysfs has no nodes."""
    online = online_cpus(root)
    allowed = _allowed_memory_nodes(root)
    nodes = [_read_node(root, node_id, set(online), allowed) for node_id in _node_ids(root)]
    if nodes:
        return tuple(nodes)
    meminfo = read_text(below(root, "/proc/meminfo")) or ""
    total = meminfo_bytes(meminfo, "MemTotal") or 0
    return (NumaNode(0, online, total, _available_bytes(meminfo, total)),)


def _node_ids(root: Path) -> list[int]:
    directory = below(root, _NODE_DIRECTORY)
    try:
        present = {int(entry.name[4:]) for entry in directory.iterdir() if re.fullmatch(r"node\d+", entry.name)}
    except OSError:
        return []
    listed = parse_cpu_list(read_text(directory / "online"))
    return sorted(present & set(listed) if listed else present)


def _allowed_memory_nodes(root: Path) -> frozenset[int] | None:
    """Nodes that this process's cpuset lets it allocate on; None where /proc does not say."""
    status = read_text(below(root, "/proc/self/status")) or ""
    match = re.search(r"^Mems_allowed_list:\s*(\S+)", status, re.MULTILINE)
    listed = parse_cpu_list(match.group(1)) if match else None
    return frozenset(listed) if listed else None


def _read_node(root: Path, node_id: int, online: set[int], allowed: frozenset[int] | None) -> NumaNode:
    directory = below(root, f"{_NODE_DIRECTORY}/node{node_id}")
    meminfo = read_text(directory / "meminfo") or ""
    memory = meminfo_bytes(meminfo, "MemTotal") or 0
    distances = [parse_int(word) for word in (read_text(directory / "distance") or "").split()]
    return NumaNode(
        node_id=node_id,
        cpus=tuple(cpu for cpu in parse_cpu_list(read_text(directory / "cpulist")) or () if cpu in online),
        memory_bytes=memory,
        available_bytes=_available_bytes(meminfo, memory),
        memory_allowed=allowed is None or node_id in allowed,
        distances=tuple(distance for distance in distances if distance is not None),
    )


def _available_bytes(meminfo: str, total: int) -> int:
    """Nodes have no MemAvailable: free pages and file cache, which gives way. All of it where nothing is said."""
    free = meminfo_bytes(meminfo, "MemFree")
    if free is None:
        return total
    cache = sum(meminfo_bytes(meminfo, key) or 0 for key in (r"Active\(file\)", r"Inactive\(file\)"))
    return min(total, free + cache)
