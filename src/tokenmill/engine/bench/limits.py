"""Measures what this machine reaches at most, in the run that is going to be judged by it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tokenmill import _native
from tokenmill.engine.bench.spread import spread_of
from tokenmill.engine.placement import Placement
from tokenmill.vocabulary.bench_report import Limit
from tokenmill.vocabulary.errors import CapacityError
from tokenmill.vocabulary.host_facts import HostFacts

STREAMS = (1, 8)
MEMORY_HINT = "ask for less with --memory MIB, or free some"
_LEAST_COLD_BYTES = 512 << 20
_CACHES = 8
_JUDGES = ("read", "int8", "fp32")
_DRIFT = 0.05
_REPEATS = 9  # of each loop, at least
_LONGEST_S = 0.3


def open_bench(kernel_set: str, placement: Placement) -> _native.KernelBench:
    """Threads where the engine would have them, and memory on the nodes that they are on.

    Raises:
        CapacityError: the operating system refuses the threads.
    """
    try:
        return _native.KernelBench(
            kernel_set, threads=placement.threads, cpus=placement.thread_cpus or None, nodes=placement.kv_nodes
        )
    except (OSError, MemoryError) as error:
        raise CapacityError(f"the threads cannot be started: {error}") from error


def cold_bytes(facts: HostFacts) -> int:
    """Memory to read in turn so that little of it is still in a cache: 512 MiB, or 8 times the last level's size.

    Never more than a quarter of what is available.
    """
    cache = facts.cpu.l3_bytes or facts.cpu.l2_bytes or 0
    return max(1 << 20, min(max(_LEAST_COLD_BYTES, _CACHES * cache), facts.memory.available_bytes // 4))


def measure_limits(bench: _native.KernelBench, nbytes: int, case_seconds: float) -> tuple[Limit, ...]:
    """The read rate ("read": the best number of streams; "read_1": one stream) and the set's peak loops.

    Args:
        bench: kernel set and threads to measure with.
        nbytes: memory to read.
        case_seconds: how long the run measures each case; limits take no longer than a few of these.

    Raises:
        CapacityError: the memory to read cannot be had.
    """
    seconds = min(_LONGEST_S, 2 * case_seconds)
    try:
        reads = bench.read(nbytes, STREAMS, repeats=_REPEATS, seconds=seconds)
    except MemoryError as error:
        raise CapacityError(f"no memory for {nbytes:,} bytes that are to be read", hint=MEMORY_HINT) from error
    read = {
        streams: _limit(f"read_{streams}", f"{_streams(streams)}, prefetched 8 KiB ahead", "bytes/s", amount, times)
        for streams, (amount, times) in zip(STREAMS, reads, strict=True)
    }
    best = max(read.values(), key=lambda limit: limit.rate)
    limits = [dataclasses.replace(best, name="read"), *read.values()]
    for quantity, instructions, amount, times in bench.peaks(repeats=_REPEATS, seconds=seconds / 3):
        limits.append(_limit(quantity, instructions, "multiply-adds/s", amount, times))
    return tuple(limits)


def drift_notes(before: Sequence[Limit], after: Sequence[Limit]) -> tuple[str, ...]:
    """A sentence for each limit that changed by more than 5 % while the benchmark ran.

    Rows are judged by what was measured before them, so their fractions are then off by as much.
    """
    rates = rates_of(after)
    return tuple(
        f"the machine changed during the run: limit {limit.name} was {rates[limit.name] / limit.rate:.2f} x at the end"
        for limit in before
        if limit.name in _JUDGES and limit.name in rates and abs(rates[limit.name] / limit.rate - 1) > _DRIFT
    )


def rates_of(limits: Sequence[Limit]) -> dict[str, float]:
    """Rates by name, for the roofline."""
    return {limit.name: limit.rate for limit in limits}


def _streams(count: int) -> str:
    return "1 stream a thread" if count == 1 else f"{count} streams a thread"


def _limit(name: str, how: str, unit: str, amount: float, times: Sequence[float]) -> Limit:
    time = spread_of(times)
    return Limit(name, how, unit, float(amount), amount / time.minimum, time)
