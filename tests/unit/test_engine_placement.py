"""Where threads and memory go, decided from whole fake machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from host_tree import HostTree

from tokenmill.engine.options import EngineOptions
from tokenmill.engine.placement import Pinning, Placement, WeightsIn, place
from tokenmill.host import read_host_facts
from tokenmill.vocabulary.errors import CapacityError, RequestError
from tokenmill.vocabulary.host_facts import Numa

GIB = 1 << 30
WEIGHTS = 8 * GIB


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


@pytest.fixture
def big(tree: HostTree) -> HostTree:
    """Two packages of 32 cores with SMT, siblings n and n+64, and 256 GiB each; node ids 0 and 2."""
    tree.cpus("0-127").memory(512 << 20, 500 << 20)
    for core in range(64):
        tree.core((core, core + 64), core_id=core % 32, package=core // 32)
    tree.node(0, "0-31,64-95", total_gib=256, free_gib=200, distances="10 21")
    return tree.node(2, "32-63,96-127", total_gib=256, free_gib=250, distances="21 10")


def placed(tree: HostTree, weight_bytes: int = WEIGHTS, **options: Any) -> Placement:
    return place(read_host_facts(tree.root), EngineOptions(**options), weight_bytes)


def node_of_cpu(placement: Placement) -> dict[int, int]:
    return {cpu: node for (cpu,), node in zip(placement.thread_cpus, placement.thread_nodes, strict=True)}


def one_each(*cpus: int) -> tuple[tuple[int, ...], ...]:
    return tuple((cpu,) for cpu in cpus)


def test_one_node_leaves_memory_to_the_first_touch(tree: HostTree) -> None:
    tree.cpus("0-3").memory(16 << 20, 8 << 20)
    placement = placed(tree)
    assert (placement.threads, placement.pinning) == (4, Pinning.CORE)
    assert placement.thread_cpus == one_each(0, 1, 2, 3)
    assert (placement.weights, placement.weight_nodes, placement.kv_nodes) == (WeightsIn.LOCAL, ((),), ())
    assert (placement.thread_nodes, placement.thread_copies) == ((), ())


def test_two_nodes_of_64_cores_with_smt(big: HostTree) -> None:
    placement = placed(big)
    assert placement.threads == 64
    assert sorted(placement.thread_cpus) == list(one_each(*range(64)))  # one CPU of each core, no sibling
    assert node_of_cpu(placement) == {cpu: 0 if cpu < 32 else 2 for cpu in range(64)}
    assert (placement.weights, placement.weight_nodes) == (WeightsIn.COPIES, ((0,), (2,)))
    assert [placement.weight_nodes[copy][0] for copy in placement.thread_copies] == list(placement.thread_nodes)
    assert placement.kv_nodes == (0, 2)
    assert "8,589,934,592 bytes on each of 2 nodes" in placement.weights_why


def test_interleaved_cpu_ids(tree: HostTree) -> None:
    """Even CPUs on node 0, odd ones on node 1, siblings n and n+4, as some firmware counts."""
    tree.cpus("0-7").memory(64 << 20, 60 << 20)
    for core in range(4):
        tree.core((core, core + 4), core_id=core // 2, package=core % 2)
    tree.node(0, "0,2,4,6", total_gib=32, free_gib=30).node(1, "1,3,5,7", total_gib=32, free_gib=30)
    placement = placed(tree, 4 * GIB)
    assert node_of_cpu(placement) == {0: 0, 1: 1, 2: 0, 3: 1}
    assert placement.weights is WeightsIn.COPIES


def test_cores_of_a_node_without_memory_read_the_nearest(tree: HostTree) -> None:
    tree.cpus("0-5").memory(64 << 20, 60 << 20)
    tree.node(0, "0-1", total_gib=32, free_gib=30, distances="10 20 12")
    tree.node(1, "2-3", total_gib=32, free_gib=30, distances="20 10 30")
    tree.node(3, "4-5", total_gib=0, free_gib=0, distances="11 12 10")
    placement = placed(tree, GIB)
    assert node_of_cpu(placement) == {0: 0, 1: 0, 2: 1, 3: 1, 4: 0, 5: 0}
    assert placement.weight_nodes == ((0,), (1,))


def test_a_node_with_memory_alone_gets_no_copy(tree: HostTree) -> None:
    """Memory behind a device shows as a node without CPUs."""
    tree.cpus("0-3").memory(96 << 20, 90 << 20)
    tree.node(0, "0-1", total_gib=32, free_gib=30).node(1, "2-3", total_gib=32, free_gib=30)
    tree.node(2, "", total_gib=32, free_gib=32)
    placement = placed(tree, GIB)
    assert (placement.weight_nodes, placement.kv_nodes) == (((0,), (1,)), (0, 1))


def test_offline_cpus_take_no_thread(big: HostTree) -> None:
    big.cpus("0-15,40-63,64-79,104-127")
    placement = placed(big)
    assert placement.threads == 40
    assert sorted(placement.thread_cpus) == list(one_each(*range(16), *range(40, 64)))


@pytest.mark.parametrize("numa", [Numa.AUTO, Numa.COPIES])
def test_copies_only_when_memory_allows(big: HostTree, numa: Numa) -> None:
    big.node(0, "0-31,64-95", total_gib=256, free_gib=12)
    if numa is Numa.COPIES:
        with pytest.raises(CapacityError, match=r"node 0 has 12,884,901,888 bytes for 8,589,934,592 of weights"):
            placed(big, numa=numa)
        return
    placement = placed(big, numa=numa)
    assert (placement.weights, placement.weight_nodes) == (WeightsIn.INTERLEAVED, ((0, 2),))
    assert placement.thread_copies == ()
    assert "node 0 has 12,884,901,888 bytes for 8,589,934,592 of weights" in placement.weights_why


def test_the_kv_cache_that_was_asked_for_decides(big: HostTree) -> None:
    big.node(0, "0-31,64-95", total_gib=256, free_gib=12)
    assert placed(big, kv_bytes=4 * GIB).weights is WeightsIn.COPIES
    assert placed(big, kv_bytes=16 * GIB).weights is WeightsIn.INTERLEAVED


def test_a_memory_limit_counts_all_copies(big: HostTree) -> None:
    big.cgroup_v2("/pod/main").write("/sys/fs/cgroup/pod/memory.max", 30 * GIB)
    placement = placed(big)
    assert placement.weights is WeightsIn.INTERLEAVED
    assert "17,179,869,184 bytes and 16,106,127,360 for the KV cache" in placement.weights_why


def test_a_quota_that_one_node_can_serve_stays_on_the_emptier_one(big: HostTree) -> None:
    big.cgroup_v2("/pods/a/main").write("/sys/fs/cgroup/pods/a/cpu.max", "1650000 100000")
    placement = placed(big)
    assert (placement.threads, placement.pinning) == (16, Pinning.CORES)
    assert placement.thread_cpus == (tuple(range(32, 64)),) * 16  # node 2's cores, no siblings, none for one alone
    assert (placement.weights, placement.weight_nodes, placement.kv_nodes) == (WeightsIn.LOCAL, ((2,),), (2,))
    assert "/sys/fs/cgroup/pods/a/cpu.max" in placement.threads_why


def test_a_quota_past_one_node_takes_both_evenly(big: HostTree) -> None:
    big.cgroup_v1("/docker/abc").write("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", 4_000_000)
    big.write("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", 100_000)
    big.write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", -1)
    placement = placed(big)
    assert (placement.threads, placement.pinning) == (40, Pinning.CORES)
    assert [placement.thread_nodes.count(node) for node in (0, 2)] == [20, 20]
    assert set(placement.thread_cpus) == {tuple(range(32)), tuple(range(32, 64))}


def test_weights_too_large_for_the_node_of_the_threads(big: HostTree) -> None:
    placement = placed(big, 251 * GIB, threads=32)
    assert (placement.weights, placement.weight_nodes) == (WeightsIn.INTERLEAVED, ((0, 2),))


def test_a_cpuset_of_one_node(big: HostTree) -> None:
    big.cpus("0-127", allowed="32-63,96-127", memory_nodes="2")
    placement = placed(big)
    assert (placement.threads, placement.weights, placement.weight_nodes) == (32, WeightsIn.LOCAL, ((),))
    big.cpus("0-127", allowed="32-63,96-127", memory_nodes="0,2")
    placement = placed(big)
    assert (placement.threads, placement.weights, placement.weight_nodes) == (32, WeightsIn.LOCAL, ((2,),))


def test_what_the_user_says_counts(big: HostTree) -> None:
    assert placed(big, numa=Numa.OFF).weight_nodes == ((),)
    assert placed(big, numa=Numa.OFF).kv_nodes == ()
    assert placed(big, numa=Numa.INTERLEAVE).weight_nodes == ((0, 2),)
    loose = placed(big, pin=False)
    assert (loose.thread_cpus, loose.weights, loose.kv_nodes) == ((), WeightsIn.INTERLEAVED, (0, 2))
    with pytest.raises(RequestError, match="129 threads were asked for"):
        placed(big, threads=129)


def test_more_threads_than_cores_take_siblings_last(tree: HostTree) -> None:
    tree.cpus("0-3").memory(16 << 20, 8 << 20).core((0, 1), core_id=0).core((2, 3), core_id=1)
    assert placed(tree, threads=3, pin=True).thread_cpus == one_each(0, 2, 1)
    assert placed(tree, threads=3).pinning is Pinning.NONE
    one = placed(tree, threads=1)
    assert (one.pinning, one.thread_cpus) == (Pinning.CORES, ((0, 2),))  # a core of its own, whichever is free


@pytest.mark.parametrize(("base", "huge"), [(4 << 10, 2 << 20), (16 << 10, 32 << 20), (64 << 10, 512 << 20)])
def test_page_sizes_are_what_the_kernel_says(tree: HostTree, base: int, huge: int) -> None:
    tree.cpus("0-1").memory(16 << 20, 8 << 20).page_size(base)
    tree.write("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", huge)
    placement = placed(tree)
    assert (placement.page_bytes, placement.huge_page_bytes) == (base, huge)
