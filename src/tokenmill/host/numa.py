"""NUMA nodes from sysfs. Node numbers may have gaps, and a node may have no memory or no CPU."""

from __future__ import annotations

import re
from pathlib import Path

from tokenmill.host.cpu import online_cpus
from tokenmill.host.kernel_files import below, parse_cpu_list, read_text
from tokenmill.host.memory import meminfo_bytes
from tokenmill.vocabulary.host_facts import NumaNode

_NODE_DIRECTORY = "/sys/devices/system/node"


def read_numa_nodes(root: Path) -> tuple[NumaNode, ...]:
    """The online nodes by ascending id, with their online CPUs; one node 0 of everything where sysfs has no nodes."""
    online = online_cpus(root)
    nodes = [_read_node(root, node_id, set(online)) for node_id in _node_ids(root)]
    if nodes:
        return tuple(nodes)
    total = meminfo_bytes(read_text(below(root, "/proc/meminfo")) or "", "MemTotal") or 0
    return (NumaNode(node_id=0, cpus=online, memory_bytes=total),)


def _node_ids(root: Path) -> list[int]:
    directory = below(root, _NODE_DIRECTORY)
    try:
        present = {int(entry.name[4:]) for entry in directory.iterdir() if re.fullmatch(r"node\d+", entry.name)}
    except OSError:
        return []
    listed = parse_cpu_list(read_text(directory / "online"))
    return sorted(present & set(listed) if listed else present)


def _read_node(root: Path, node_id: int, online: set[int]) -> NumaNode:
    directory = below(root, f"{_NODE_DIRECTORY}/node{node_id}")
    cpus = parse_cpu_list(read_text(directory / "cpulist")) or ()
    memory = meminfo_bytes(read_text(directory / "meminfo") or "", "MemTotal") or 0
    return NumaNode(node_id=node_id, cpus=tuple(cpu for cpu in cpus if cpu in online), memory_bytes=memory)
