"""Placements of random machines: whatever the topology, quota and memory, nothing is placed where it must not be."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from tokenmill.engine.options import EngineOptions
from tokenmill.engine.placement import Pinning, WeightsIn, place
from tokenmill.vocabulary.errors import CapacityError
from tokenmill.vocabulary.host_facts import CpuFacts, HostFacts, MemoryFacts, Numa, NumaNode, QuotaFacts

GIB = 1 << 30


@st.composite
def machines(draw: Any) -> HostFacts:
    """Cores of 1 to 4 SMT siblings with shuffled ids, on nodes with gaps in their ids, some without memory or CPUs."""
    cores, siblings = draw(st.integers(1, 24)), draw(st.integers(1, 4))
    ids = draw(st.permutations(range(cores * siblings)))
    groups = [sorted(ids[core * siblings : (core + 1) * siblings]) for core in range(cores)]
    node_ids = sorted(draw(st.sets(st.integers(0, 9), min_size=1, max_size=5)))
    home = [draw(st.sampled_from(node_ids)) for _ in groups]
    allowed = draw(st.sets(st.sampled_from(range(cores)), min_size=1))
    affinity = sorted(cpu for core in allowed for cpu in groups[core][: draw(st.integers(1, siblings))])
    nodes = []
    for node in node_ids:
        size = draw(st.sampled_from([0, 4, 64, 256])) * GIB
        nodes.append(
            NumaNode(
                node_id=node,
                cpus=tuple(sorted(cpu for core, own in enumerate(groups) if home[core] == node for cpu in own)),
                memory_bytes=size,
                available_bytes=draw(st.integers(0, size // GIB)) * GIB,
                memory_allowed=draw(st.booleans()),
                distances=tuple(10 if other == node else draw(st.integers(11, 254)) for other in node_ids),
            )
        )
    free = sum(node.available_bytes for node in nodes)
    quota = draw(st.none() | st.floats(0.05, 200))
    return HostFacts(
        cpu=CpuFacts(
            model_name="",
            architecture="x86_64",
            features=(),
            affinity=tuple(affinity),
            physical_cores=tuple(sorted(min(set(own) & set(affinity)) for own in groups if set(own) & set(affinity))),
            l1d_bytes=None,
            l2_bytes=None,
            l3_bytes=None,
        ),
        quota=QuotaFacts(2, quota, "/sys/fs/cgroup/cpu.max", None, "none"),
        memory=MemoryFacts(free, draw(st.integers(0, free)), 4096, "madvise"),
        numa=tuple(nodes),
    )


OPTIONS = st.builds(
    EngineOptions,
    pin=st.sampled_from([None, True, False]),
    numa=st.sampled_from(list(Numa)),
    kv_bytes=st.none() | st.integers(1, 64 * GIB),
)


@settings(max_examples=300, deadline=None)
@given(machines(), OPTIONS, st.integers(1, 80 * GIB))
def test_nothing_is_placed_where_it_must_not_be(facts: HostFacts, options: EngineOptions, weight_bytes: int) -> None:
    cores = set(facts.cpu.physical_cores)
    with_memory = {node.node_id for node in facts.numa if node.memory_bytes > 0 and node.memory_allowed}
    node_of = {cpu: node.node_id for node in facts.numa for cpu in node.cpus}
    try:
        placement = place(facts, options, weight_bytes)
    except CapacityError:
        assert options.numa is Numa.COPIES
        return
    assert placement == place(facts, options, weight_bytes)
    quota = math.inf if facts.quota.cpus is None else facts.quota.cpus
    assert placement.threads == max(1, math.floor(min(len(cores), quota)))

    assert len(placement.thread_cpus) == (0 if placement.pinning is Pinning.NONE else placement.threads)
    for own in placement.thread_cpus:
        assert own
        assert set(own) <= cores  # one CPU of each core, no sibling
    if placement.pinning is Pinning.CORE:
        assert len({own[0] for own in placement.thread_cpus}) == placement.threads
        assert all(len(own) == 1 for own in placement.thread_cpus)

    for own, node in zip(placement.thread_cpus, placement.thread_nodes, strict=bool(placement.thread_nodes)):
        assert node in with_memory
        homes = {node_of.get(cpu) for cpu in own}
        assert homes == {node} or not homes <= with_memory

    placed = {node for copy in placement.weight_nodes for node in copy} | set(placement.kv_nodes)
    assert placed <= with_memory
    if len(with_memory) < 2 or options.numa is Numa.OFF:
        assert (placement.weight_nodes, placement.kv_nodes, placement.thread_nodes) == (((),), (), ())
    if placement.weights is WeightsIn.COPIES:
        used = sorted(set(placement.thread_nodes))
        assert placement.weight_nodes == tuple((node,) for node in used)
        assert [used[copy] for copy in placement.thread_copies] == list(placement.thread_nodes)
        assert len(used) * weight_bytes <= facts.memory.available_bytes
        assert all(weight_bytes <= node.available_bytes for node in facts.numa if node.node_id in used)
    else:
        assert len(placement.weight_nodes) == 1
        assert placement.thread_copies == ()
    assert placement.weights_why
    assert placement.threads_why
    assert placement.pinning_why
