"""What the machine was doing: the load average and the kernel's account of CPU time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tokenmill.host.kernel_files import below, read_text

_IDLE, _IOWAIT, _STEAL = 3, 4, 7
_FIELDS = 8  # user nice system idle iowait irq softirq steal; guests are counted in user already


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds of all CPUs together since the machine started."""

    busy: float
    stolen: float
    total: float


def read_load_average(root: Path) -> float | None:
    """The one-minute load average below `root`; None where it cannot be read."""
    fields = (read_text(below(root, "/proc/loadavg")) or "").split()
    try:
        return float(fields[0])
    except (IndexError, ValueError):
        return None


def read_cpu_times(root: Path) -> CpuTimes | None:
    """The first line of /proc/stat below `root`; None where it cannot be read."""
    line = (read_text(below(root, "/proc/stat")) or "").partition("\n")[0].split()
    if len(line) < 1 + _FIELDS or line[0] != "cpu" or not all(field.isdecimal() for field in line[1:]):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    times = [int(field) / ticks for field in line[1 : 1 + _FIELDS]]
    idle = times[_IDLE] + times[_IOWAIT]
    total = sum(times)
    return CpuTimes(busy=total - idle - times[_STEAL], stolen=times[_STEAL], total=total)
