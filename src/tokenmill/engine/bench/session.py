"""One benchmark run: the machine before and after, what was measured in between, and the report at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from tokenmill import __version__
from tokenmill.engine.bench.limits import MEMORY_HINT
from tokenmill.host import read_host_facts
from tokenmill.host.load import CpuTimes, read_cpu_times, read_load_average
from tokenmill.vocabulary.bench_report import BenchReport, Limit, MachineLoad, ModelFacts, Row
from tokenmill.vocabulary.errors import CapacityError
from tokenmill.vocabulary.host_facts import HostFacts

_ROOT = Path("/")
# Above these, what was measured is not what the machine can do.
_MOST_OTHERS = 0.1  # of one CPU for each CPU
_MOST_STEAL = 0.02
_MOST_LOAD = 0.5  # for each CPU, before the run

OnRow = Callable[[Row], None]


class Session:
    """Begins with the first look at the machine; `report` takes the second one.

    Args:
        features: CPU features as native code detects them.
    """

    def __init__(self, features: Iterable[str]) -> None:
        self.facts: HostFacts = read_host_facts(features=tuple(features))
        self.rows: list[Row] = []
        self.complete = True
        self._created = datetime.now(UTC).isoformat(timespec="seconds")
        self._load = read_load_average(_ROOT)
        self._times = read_cpu_times(_ROOT)
        self._own = _own_cpu_seconds()
        self._begin = time.monotonic()

    def collect(self, rows: Iterable[Row], on_row: OnRow) -> None:
        """Measures one row after another. Ctrl-C ends it and keeps what is there.

        Raises:
            CapacityError: the buffers of a case do not fit.
        """
        try:
            for row in rows:
                self.rows.append(row)
                on_row(row)
        except KeyboardInterrupt:
            self.complete = False
        except MemoryError as error:
            raise CapacityError("no memory for the next case", hint=MEMORY_HINT) from error

    def report(
        self,
        benchmark: str,
        *,
        kernel_set: str,
        threads: int,
        limits: Iterable[Limit],
        model: ModelFacts | None = None,
        notes: Iterable[str] = (),
    ) -> BenchReport:
        """Everything as one document."""
        return BenchReport(
            benchmark=benchmark,
            created=self._created,
            version=__version__,
            engine="tokenmill",
            kernel_set=kernel_set,
            threads=threads,
            host=self.facts,
            load=machine_load(
                load_before=self._load,
                before=self._times,
                after=read_cpu_times(_ROOT),
                own_s=_own_cpu_seconds() - self._own,
                wall_s=time.monotonic() - self._begin,
                cpus=len(self.facts.cpu.affinity),
            ),
            limits=tuple(limits),
            rows=tuple(self.rows),
            model=model,
            notes=tuple(notes),
            complete=self.complete,
        )


def machine_load(
    *,
    load_before: float | None,
    before: CpuTimes | None,
    after: CpuTimes | None,
    own_s: float,
    wall_s: float,
    cpus: int,
) -> MachineLoad:
    """Judges what else the machine did.

    Args:
        load_before: the load average when the run began.
        before: CPU times of the whole machine then.
        after: CPU times at the end.
        own_s: CPU seconds of this process in between.
        wall_s: seconds in between.
        cpus: CPUs that this process may use.
    """
    others = steal = None
    if before is not None and after is not None and after.total > before.total and wall_s > 0:
        others = max(0.0, after.busy - before.busy - own_s) / wall_s
        steal = (after.stolen - before.stolen) / (after.total - before.total)
    load = "" if load_before is None else f"load {load_before:.1f} when the run began"
    reasons = []
    if others is None and load_before is not None and load_before > _MOST_LOAD * cpus:
        reasons.append(load)  # an average of the past, so it judges only where nothing better can be read
    if others is not None and others > _MOST_OTHERS * cpus:
        reasons += [f"others used {others:.1f} CPUs", *([load] if load else [])]
    if steal is not None and steal > _MOST_STEAL:
        reasons.append(f"the hypervisor took {100 * steal:.0f} % of the time")
    busy = f"the machine was busy: {', '.join(reasons)}; figures are low" if reasons else ""
    return MachineLoad(load_before, others, steal, busy)


def _own_cpu_seconds() -> float:
    times = os.times()  # children: programs that the benchmark itself started, and that have ended
    return times.user + times.system + times.children_user + times.children_system
