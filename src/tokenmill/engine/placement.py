"""Where threads, weights and KV pages go: a decision from host facts and options alone (docs/decisions/)."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenmill.engine.options import EngineOptions
from tokenmill.vocabulary.errors import CapacityError, RequestError
from tokenmill.vocabulary.host_facts import HostFacts, Numa, NumaNode, engine_threads

_FARTHEST = 255  # a distance of the firmware's table: unreachable


class Pinning(enum.StrEnum):
    """What keeps a thread where it is. CORE: one CPU each; CORES: a set of cores, one CPU of each; NONE: nothing."""

    CORE = "core"
    CORES = "cores"
    NONE = "none"


class WeightsIn(enum.StrEnum):
    """LOCAL: in the memory of one node; COPIES: once in each node's; INTERLEAVED: page by page over nodes."""

    LOCAL = "local"
    COPIES = "copies"
    INTERLEAVED = "interleaved"


@dataclass(frozen=True, slots=True)
class Placement:
    """Who runs where, and what lies where; the defaults leave all to the kernel. Every `why` is a phrase for people.

    Attributes:
        threads: compute threads.
        thread_cpus: for each thread the CPUs it may run on; empty when nothing keeps threads anywhere.
        thread_nodes: for each thread the node whose memory it reads; empty on one node, or when threads may be on any.
        weight_nodes: one entry per copy of the weights: the nodes that hold it; empty leaves it to the first touch.
        thread_copies: for each thread the copy that it reads; empty when there is one.
        kv_nodes: nodes that hold KV pages, interleaved when several; empty leaves it to the first touch.
        page_bytes: of a base page.
        huge_page_bytes: of a transparent huge page; 0 where the kernel has none.
    """

    threads: int
    threads_why: str = ""
    pinning: Pinning = Pinning.NONE
    pinning_why: str = ""
    thread_cpus: tuple[tuple[int, ...], ...] = ()
    thread_nodes: tuple[int, ...] = ()
    weights: WeightsIn = WeightsIn.LOCAL
    weights_why: str = ""
    weight_nodes: tuple[tuple[int, ...], ...] = ((),)
    thread_copies: tuple[int, ...] = ()
    kv_nodes: tuple[int, ...] = ()
    page_bytes: int = 0
    huge_page_bytes: int = 0


def place(facts: HostFacts, options: EngineOptions, weight_bytes: int) -> Placement:
    """Decides the placement of an engine.

    Args:
        facts: of this host.
        options: threads, pin, numa and kv_bytes are looked at.
        weight_bytes: of one copy, packed.

    Raises:
        RequestError: more threads were asked for than there are CPUs.
        CapacityError: copies were asked for and do not fit; the message has the numbers.
    """
    threads, threads_why = _threads(facts, options)
    nodes = _memory_nodes(facts.numa)
    many = len(nodes) > 1 and options.numa is not Numa.OFF
    seats = _seats(facts)
    home = _home_nodes(facts.numa, nodes, seats) if many else {}
    if many:
        seats = _seats_by_node(seats, home, nodes, threads, len(facts.cpu.physical_cores))
    pinning, pinning_why = _pinning(facts, options, threads, many=many)
    cpus = _thread_cpus(facts, seats, home, threads, pinning)
    thread_nodes = tuple(home[own[0]] for own in cpus) if many else ()
    weights, weights_why, weight_nodes = _weights(facts, options, nodes, thread_nodes, weight_bytes, many=many)
    copies = {own[0]: index for index, own in enumerate(weight_nodes)} if weights is WeightsIn.COPIES else {}
    return Placement(
        threads=threads,
        threads_why=threads_why,
        pinning=pinning,
        pinning_why=pinning_why,
        thread_cpus=cpus,
        thread_nodes=thread_nodes,
        weights=weights,
        weights_why=weights_why,
        weight_nodes=weight_nodes,
        thread_copies=tuple(copies[node] for node in thread_nodes) if copies else (),
        # Any thread may read any page, since pieces of attention are taken as threads come free.
        kv_nodes=(tuple(sorted(set(thread_nodes))) or tuple(nodes)) if many else (),
        page_bytes=facts.memory.page_bytes,
        huge_page_bytes=facts.memory.transparent_page_bytes,
    )


def _threads(facts: HostFacts, options: EngineOptions) -> tuple[int, str]:
    if options.threads is not None:
        if options.threads > len(facts.cpu.affinity):
            raise RequestError(
                f"{options.threads} threads were asked for; this process may run on {len(facts.cpu.affinity)} CPUs",
                parameter="threads",
            )
        return options.threads, "asked for"
    cores = f"{len(facts.cpu.physical_cores)} physical cores in the affinity mask"
    if facts.quota.cpus is None:
        return engine_threads(facts), f"{cores}, no CPU quota"
    quota = f"a quota of {facts.quota.cpus:g} CPUs ({facts.quota.cpu_source})"
    return engine_threads(facts), f"the smaller of {cores} and {quota}, rounded down"


def _memory_nodes(nodes: Sequence[NumaNode]) -> dict[int, NumaNode]:
    """Nodes that this process may have memory on, by id."""
    return {node.node_id: node for node in nodes if node.memory_bytes > 0 and node.memory_allowed}


def _home_nodes(nodes: Sequence[NumaNode], with_memory: Mapping[int, NumaNode], cpus: Sequence[int]) -> dict[int, int]:
    """CPU to the node whose memory is nearest: its own, or the closest one when its own has none."""
    order = [node.node_id for node in nodes]
    home = dict.fromkeys(cpus, min(with_memory))  # where sysfs names no node
    for node in nodes:
        far = dict(zip(order, node.distances, strict=False))
        if node.node_id in with_memory:
            far[node.node_id] = 0
        nearest = min(with_memory, key=lambda other: (far.get(other, _FARTHEST), other))
        home.update(dict.fromkeys(node.cpus, nearest))
    return home


def _seats(facts: HostFacts) -> list[int]:
    """CPUs in the order in which threads take them: one of each core first, then their siblings."""
    cores = facts.cpu.physical_cores
    return [*cores, *(cpu for cpu in facts.cpu.affinity if cpu not in set(cores))]


def _seats_by_node(
    seats: Sequence[int], home: Mapping[int, int], nodes: Mapping[int, NumaNode], threads: int, cores: int
) -> list[int]:
    """The seats of one node alone when its cores are enough; else of all nodes in turn, whole cores first."""
    by_node: dict[int, list[int]] = {}
    for cpu in seats[:cores]:
        by_node.setdefault(home[cpu], []).append(cpu)
    enough = [node for node, own in by_node.items() if len(own) >= threads]
    if enough:
        # Of two engines that start one after the other, the second finds the other node emptier.
        return by_node[min(enough, key=lambda node: (-nodes[node].available_bytes, node))]
    result: list[int] = []
    for part in (seats[:cores], seats[cores:]):
        queues: dict[int, list[int]] = {}
        for cpu in part:
            queues.setdefault(home[cpu], []).append(cpu)
        for turn in range(len(part)):
            result += [own[turn] for _, own in sorted(queues.items()) if turn < len(own)]
    return result


def _pinning(facts: HostFacts, options: EngineOptions, threads: int, *, many: bool) -> tuple[Pinning, str]:
    cores = len(facts.cpu.physical_cores)
    if options.pin is not None:
        return (Pinning.CORE if options.pin else Pinning.NONE), "asked for"
    if facts.quota.cpus is None and threads == cores:
        return Pinning.CORE, "every core is this engine's"
    reason = "a CPU quota" if facts.quota.cpus is not None else f"{threads} threads for {cores} cores"
    if threads <= cores and (many or cores < len(facts.cpu.affinity)):
        return Pinning.CORES, f"{reason}: others may be on these cores, and the kernel finds the free ones"
    return Pinning.NONE, f"{reason}: the kernel finds the free CPUs"


def _thread_cpus(
    facts: HostFacts, seats: Sequence[int], home: Mapping[int, int], threads: int, pinning: Pinning
) -> tuple[tuple[int, ...], ...]:
    if pinning is Pinning.NONE:
        return ()
    if pinning is Pinning.CORE:
        return tuple((cpu,) for cpu in seats[:threads])
    cores = set(facts.cpu.physical_cores)
    return tuple(
        tuple(sorted(other for other in seats if other in cores and home.get(other) == home.get(cpu)))
        for cpu in seats[:threads]
    )


def _weights(
    facts: HostFacts,
    options: EngineOptions,
    nodes: Mapping[int, NumaNode],
    thread_nodes: Sequence[int],
    weight_bytes: int,
    *,
    many: bool,
) -> tuple[WeightsIn, str, tuple[tuple[int, ...], ...]]:
    """Which way, why, and the nodes of each copy."""
    if not many:
        return WeightsIn.LOCAL, "one NUMA node" if len(nodes) <= 1 else "NUMA placement is off", ((),)
    everywhere = (tuple(nodes),)
    if not thread_nodes:
        return WeightsIn.INTERLEAVED, "threads are not kept on a node and may be on any", everywhere
    if options.numa is Numa.INTERLEAVE:
        return WeightsIn.INTERLEAVED, "asked for", everywhere
    used = [nodes[node] for node in sorted(set(thread_nodes))]
    short = _falls_short(facts, options, used, weight_bytes)
    if short and options.numa is Numa.COPIES:
        raise CapacityError(f"one copy of the weights per NUMA node does not fit: {short}", hint="use --numa auto")
    if short:
        return WeightsIn.INTERLEAVED, f"memory does not allow them {_on_nodes(used)}: {short}", everywhere
    where = tuple((node.node_id,) for node in used)
    free = ", ".join(f"{node.available_bytes:,} on node {node.node_id}" for node in used)
    why = f"{weight_bytes:,} bytes {_on_nodes(used)}; available: {free}"
    return (WeightsIn.LOCAL if len(used) == 1 else WeightsIn.COPIES), why, where


def _on_nodes(used: Sequence[NumaNode]) -> str:
    return f"on node {used[0].node_id}, where all threads are" if len(used) == 1 else f"on each of {len(used)} nodes"


def _falls_short(facts: HostFacts, options: EngineOptions, used: Sequence[NumaNode], weight_bytes: int) -> str:
    """What keeps the weights from every node in use; empty when nothing does.

    Beside a second copy, what is asked for the KV cache stays free, or half of the memory where nothing is asked:
    sequences that find no room cost more than remote reads do. A single copy only has to fit.
    """
    if len(used) > 1:
        total, free = len(used) * weight_bytes, facts.memory.available_bytes
        kv = free // 2 if options.kv_bytes is None else options.kv_bytes
        if total + kv > free:
            return f"{total:,} bytes and {kv:,} for the KV cache are more than the {free:,} available"
    for node in used:
        kv = node.available_bytes // 2 if options.kv_bytes is None else options.kv_bytes // len(used)
        kv = kv if len(used) > 1 else 0
        if weight_bytes + kv > node.available_bytes:
            return (
                f"node {node.node_id} has {node.available_bytes:,} bytes for {weight_bytes:,} of weights "
                f"and {kv:,} of KV cache"
            )
    return ""
