"""Limits of the control groups (v1, v2 and hybrid) over every ancestor that this process can see.

A process in a group is bound by the tightest limit among the group and all its ancestors. Where a cgroup namespace
hides the outer ancestors, their files cannot be read; what is visible is taken (and, for memory under v1, the kernel's
own `hierarchical_memory_limit`, which includes the hidden ones).
Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/, scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenmill.host.kernel_files import below, parse_cpu_list, parse_int, read_int, read_text, shown_path
from tokenmill.vocabulary.host_facts import QuotaFacts

_DEFAULT_PERIOD_US = 100_000
# v1 has no "max": an absent memory limit is the largest multiple of the page size, near 2^63.
_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Limits:
    """What the control groups allow. `memory_headroom_bytes` counts reclaimable file cache as free."""

    quota: QuotaFacts
    memory_headroom_bytes: int | None
    cpuset: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class _Mount:
    version: int
    controllers: frozenset[str]  # of a v1 hierarchy; empty for v2
    root: str  # the group that the mount point shows
    point: Path


def read_limits(root: Path) -> Limits:
    """Reads CPU quota, memory limit and cpuset of this process's control groups below `root`."""
    mounts = _read_mounts(root)
    groups = _read_groups(root)
    cpu_version, cpu_groups = _chain("cpu", mounts, groups)
    memory_version, memory_groups = _chain("memory", mounts, groups)
    cpuset_version, cpuset_groups = _chain("cpuset", mounts, groups)

    cpus: float | None = None
    cpu_source = "none"
    for group in cpu_groups:
        limit, file = _cpu_limit(group, cpu_version)
        if limit is not None and (cpus is None or limit < cpus):
            cpus, cpu_source = limit, shown_path(file, root)

    memory: int | None = None
    memory_source = "none"
    headroom: int | None = None
    for group in memory_groups:
        for file, size in _memory_limits(group, memory_version):
            if memory is None or size < memory:
                memory, memory_source = size, shown_path(file, root)
            left = max(0, size - _memory_in_use(group, memory_version))
            headroom = left if headroom is None else min(headroom, left)

    return Limits(
        quota=QuotaFacts(
            cgroup_version=cpu_version or memory_version or cpuset_version,
            cpus=cpus,
            cpu_source=cpu_source,
            memory_bytes=memory,
            memory_source=memory_source,
        ),
        memory_headroom_bytes=headroom,
        cpuset=_cpuset(cpuset_groups, cpuset_version),
    )


def _read_mounts(root: Path) -> list[_Mount]:
    """Cgroup mounts from mountinfo; the usual places where mountinfo cannot be read or has none."""
    mounts = []
    for line in (read_text(below(root, "/proc/self/mountinfo")) or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if len(fields) < 5 or len(tail) < 3 or tail[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if tail[0] == "cgroup2" else 1
        options = frozenset(tail[2].split(",")) if version == 1 else frozenset()
        mounts.append(_Mount(version, options, _unescape(fields[3]), below(root, _unescape(fields[4]))))
    if mounts:
        return mounts
    top = below(root, "/sys/fs/cgroup")
    if (top / "cgroup.controllers").exists():
        return [_Mount(2, frozenset(), "/", top)]
    found = [("cpu", "cpu"), ("cpu", "cpu,cpuacct"), ("memory", "memory"), ("cpuset", "cpuset")]
    return [_Mount(1, frozenset([name]), "/", top / folder) for name, folder in found if (top / folder).is_dir()]


def _unescape(field: str) -> str:
    """Mountinfo writes space, tab, newline and backslash as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field)


def _read_groups(root: Path) -> list[tuple[frozenset[str], str]]:
    """(controllers, path) of each line of /proc/self/cgroup; controllers are empty on the v2 line "0::/path"."""
    groups = []
    for line in (read_text(below(root, "/proc/self/cgroup")) or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            groups.append((frozenset(filter(None, parts[1].split(","))), parts[2]))
    return groups


def _chain(
    controller: str, mounts: list[_Mount], groups: list[tuple[frozenset[str], str]]
) -> tuple[int | None, list[Path]]:
    """The version that manages `controller`, and the visible directories of the process's group and its ancestors.

    In the hybrid layout a v1 hierarchy that has the controller takes it away from v2.
    """
    v1_mounts = [mount for mount in mounts if mount.version == 1 and controller in mount.controllers]
    v2_mounts = [mount for mount in mounts if mount.version == 2]
    chosen = v1_mounts or v2_mounts
    if not chosen:
        return None, []
    version = chosen[0].version
    path = next((path for names, path in groups if (controller in names) or (version == 2 and not names)), "/")
    directories: list[Path] = []
    for mount in chosen:
        directories.extend(entry for entry in _ancestors(mount, path) if entry not in directories)
    return version, directories


def _ancestors(mount: _Mount, path: str) -> Iterator[Path]:
    """The group's directory below the mount point, and each one above it up to the mount point itself.

    A path that is not below the mount's root belongs to another cgroup namespace (a container that was given its own
    group as mount): then the mount point is the group.
    """
    relative = ""
    if mount.root == "/":
        relative = path
    elif path == mount.root or path.startswith(mount.root.rstrip("/") + "/"):
        relative = path[len(mount.root.rstrip("/")) :]
    parts = [part for part in relative.split("/") if part]
    if ".." in parts:
        parts = []
    for length in range(len(parts), -1, -1):
        yield mount.point.joinpath(*parts[:length])


def _cpu_limit(group: Path, version: int | None) -> tuple[float | None, Path]:
    """Quota / period of one group, None without a limit, and the file that says so."""
    if version == 2:
        file = group / "cpu.max"
        words = (read_text(file) or "").split()
        quota = parse_int(words[0]) if words else None
        period = parse_int(words[1]) if len(words) > 1 else _DEFAULT_PERIOD_US
    else:
        file = group / "cpu.cfs_quota_us"
        quota = read_int(file)
        period = read_int(group / "cpu.cfs_period_us")
        period = _DEFAULT_PERIOD_US if period is None else period
    if quota is None or quota <= 0 or period is None or period <= 0:
        return None, file
    return quota / period, file


def _memory_limits(group: Path, version: int | None) -> Iterator[tuple[Path, int]]:
    """(file, bytes) of each limit. v2's memory.high counts too: past it the kernel stalls the process in reclaim."""
    if version == 2:
        limits = {file: read_int(file) for file in (group / "memory.max", group / "memory.high")}
    else:
        stat = group / "memory.stat"
        limits = {
            group / "memory.limit_in_bytes": read_int(group / "memory.limit_in_bytes"),
            stat: _stat_value(stat, "hierarchical_memory_limit"),
        }
    for file, size in limits.items():
        if size is not None and 0 <= size < _UNLIMITED_BYTES:
            yield file, size


def _memory_in_use(group: Path, version: int | None) -> int:
    """Bytes charged to the group that reclaim cannot take back at once: usage without inactive file cache."""
    usage = read_int(group / ("memory.current" if version == 2 else "memory.usage_in_bytes")) or 0
    key = "inactive_file" if version == 2 else "total_inactive_file"
    return max(0, usage - (_stat_value(group / "memory.stat", key) or 0))


def _stat_value(file: Path, key: str) -> int | None:
    match = re.search(rf"^{key} (\d+)$", read_text(file) or "", re.MULTILINE)
    return int(match.group(1)) if match else None


def _cpuset(groups: list[Path], version: int | None) -> tuple[int, ...] | None:
    """The CPUs of the innermost group that lists any: each group's effective set is within its parent's."""
    name = "cpuset.cpus.effective" if version == 2 else "cpuset.effective_cpus"
    for group in groups:
        for file in (group / name, group / "cpuset.cpus"):
            cpus = parse_cpu_list(read_text(file))
            if cpus:
                return cpus
    return None
