from __future__ import annotations

import os
from pathlib import Path

import pytest
from host_tree import HostTree

from tokenmill.host import read_host_facts
from tokenmill.host.kernel_files import parse_cpu_list
from tokenmill.vocabulary.host_facts import NumaNode, engine_threads


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


def two_node_64_core(tree: HostTree) -> HostTree:
    """Two packages of 32 cores with SMT: siblings are n and n+64; node ids 0 and 2."""
    tree.cpus("0-127").memory(512 << 20, 500 << 20)
    for core in range(64):
        tree.core((core, core + 64), core_id=core % 32, package=core // 32)
    tree.write("/sys/devices/system/node/online", "0,2")
    tree.write("/sys/devices/system/node/node0/cpulist", "0-31,64-95")
    tree.write("/sys/devices/system/node/node0/meminfo", f"Node 0 MemTotal:  {256 << 20} kB")
    tree.write("/sys/devices/system/node/node2/cpulist", "32-63,96-127")
    return tree.write("/sys/devices/system/node/node2/meminfo", f"Node 2 MemTotal:  {256 << 20} kB")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-3,8", (0, 1, 2, 3, 8)), ("5", (5,)), ("", ()), ("3-1", None), ("a", None), ("1,,2", (1, 2)), (None, None)],
)
def test_parse_cpu_list(text: str | None, expected: tuple[int, ...] | None) -> None:
    assert parse_cpu_list(text) == expected


def test_an_empty_tree_still_answers(tree: HostTree) -> None:
    facts = read_host_facts(tree.root)
    assert facts.cpu.affinity == (0,)
    assert facts.cpu.physical_cores == (0,)
    assert facts.cpu.model_name == "unknown"
    assert facts.memory.total_bytes == 0
    assert facts.memory.transparent_huge_pages == "unknown"
    assert facts.numa == (NumaNode(0, (0,), 0),)
    assert engine_threads(facts) == 1


def test_features_are_passed_through(tree: HostTree) -> None:
    assert read_host_facts(tree.root, ["avx2", "fma"]).cpu.features == ("avx2", "fma")


def test_smt_siblings_count_once(tree: HostTree) -> None:
    tree.cpus("0-7")
    for core in range(4):
        tree.core((2 * core, 2 * core + 1), core_id=core)
    facts = read_host_facts(tree.root)
    assert facts.cpu.physical_cores == (0, 2, 4, 6)
    assert engine_threads(facts) == 4


def test_a_mask_with_only_second_siblings(tree: HostTree) -> None:
    tree.cpus("0-7", allowed="1,3,5")
    for core in range(4):
        tree.core((2 * core, 2 * core + 1), core_id=core)
    assert read_host_facts(tree.root).cpu.physical_cores == (1, 3, 5)


def test_two_nodes_64_cores(tree: HostTree) -> None:
    facts = read_host_facts(two_node_64_core(tree).root)
    assert facts.cpu.physical_cores == tuple(range(64))
    assert engine_threads(facts) == 64
    assert [node.node_id for node in facts.numa] == [0, 2]
    assert facts.numa[1].cpus == (*range(32, 64), *range(96, 128))
    assert facts.numa[1].memory_bytes == 256 << 30


def test_core_ids_repeat_in_every_package_without_sibling_lists(tree: HostTree) -> None:
    tree.cpus("0-3")
    for cpu in range(4):
        tree.write(f"/sys/devices/system/cpu/cpu{cpu}/topology/core_id", cpu % 2)
        tree.write(f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", cpu // 2)
    assert read_host_facts(tree.root).cpu.physical_cores == (0, 1, 2, 3)


def test_unknown_core_id_is_a_core_of_its_own(tree: HostTree) -> None:
    tree.cpus("0-1")
    for cpu in range(2):
        tree.write(f"/sys/devices/system/cpu/cpu{cpu}/topology/core_id", -1)
    assert read_host_facts(tree.root).cpu.physical_cores == (0, 1)


def test_offline_cpus_are_left_out(tree: HostTree) -> None:
    tree.cpus("0-1,4-5", allowed="0-7")
    facts = read_host_facts(tree.root)
    assert facts.cpu.affinity == (0, 1, 4, 5)
    assert engine_threads(facts) == 4


def test_cpuset_of_the_group_narrows_the_mask(tree: HostTree) -> None:
    tree.cpus("0-7").cgroup_v2("/a").write("/sys/fs/cgroup/a/cpuset.cpus.effective", "2-3")
    assert read_host_facts(tree.root).cpu.affinity == (2, 3)


def test_a_cpuset_that_contradicts_the_mask_is_ignored(tree: HostTree) -> None:
    tree.cpus("0-3").cgroup_v2("/a").write("/sys/fs/cgroup/a/cpuset.cpus.effective", "8-9")
    assert read_host_facts(tree.root).cpu.affinity == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("quota", "threads"),
    [("350000 100000", 3), ("399999 100000", 3), ("400000 100000", 4), ("50000 100000", 1), ("900000 100000", 4)],
)
def test_fractional_quota_rounds_down_and_never_below_one(tree: HostTree, quota: str, threads: int) -> None:
    tree.cpus("0-3").cgroup_v2("/a").write("/sys/fs/cgroup/a/cpu.max", quota)
    assert engine_threads(read_host_facts(tree.root)) == threads


def test_quota_binds_before_affinity_and_the_reverse(tree: HostTree) -> None:
    two_node_64_core(tree).cgroup_v2("/pod/main").write("/sys/fs/cgroup/pod/cpu.max", "1600000 100000")
    assert engine_threads(read_host_facts(tree.root)) == 16
    tree.cpus("0-127", allowed="0-7,64-71")
    assert engine_threads(read_host_facts(tree.root)) == 8


def test_memoryless_and_cpuless_nodes(tree: HostTree) -> None:
    tree.cpus("0-3")
    tree.write("/sys/devices/system/node/node0/cpulist", "0-1")
    tree.write("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 1024 kB")
    tree.write("/sys/devices/system/node/node1/cpulist", "2-3")
    tree.write("/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 0 kB")
    tree.write("/sys/devices/system/node/node7/cpulist", "")
    tree.write("/sys/devices/system/node/node7/meminfo", "Node 7 MemTotal: 2048 kB")
    assert read_host_facts(tree.root).numa == (
        NumaNode(0, (0, 1), 1 << 20, available_bytes=1 << 20),
        NumaNode(1, (2, 3), 0),
        NumaNode(7, (), 2 << 20, available_bytes=2 << 20),
    )


def test_numa_leaves_out_offline_nodes_and_cpus(tree: HostTree) -> None:
    tree.cpus("0-1").write("/sys/devices/system/node/online", "0")
    tree.write("/sys/devices/system/node/node0/cpulist", "0-3").write("/sys/devices/system/node/node1/cpulist", "")
    assert read_host_facts(tree.root).numa == (NumaNode(0, (0, 1), 0),)


def test_available_memory_respects_the_group(tree: HostTree) -> None:
    tree.cpus("0").memory(64 << 20, 32 << 20).cgroup_v2("/a").write("/sys/fs/cgroup/a/memory.max", 2 << 30)
    tree.write("/sys/fs/cgroup/a/memory.current", 1 << 30)
    facts = read_host_facts(tree.root)
    assert facts.memory.total_bytes == 64 << 30
    assert facts.memory.available_bytes == 1 << 30


def test_old_meminfo_without_available(tree: HostTree) -> None:
    tree.write("/proc/meminfo", "MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 20 kB\nCached: 30 kB\nSwapCached: 7 kB")
    assert read_host_facts(tree.root).memory.available_bytes == 60 * 1024


@pytest.mark.parametrize("mode", ["always", "madvise", "never"])
def test_huge_page_mode(tree: HostTree, mode: str) -> None:
    line = "always madvise never".replace(mode, f"[{mode}]")
    tree.write("/sys/kernel/mm/transparent_hugepage/enabled", line)
    assert read_host_facts(tree.root).memory.transparent_huge_pages == mode


def test_cache_sizes(tree: HostTree) -> None:
    tree.cpus("0")
    caches = [(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2048K"), (3, "Unified", "105M")]
    for index, (level, kind, size) in enumerate(caches):
        base = f"/sys/devices/system/cpu/cpu0/cache/index{index}"
        tree.write(f"{base}/level", level).write(f"{base}/type", kind).write(f"{base}/size", size)
    cpu = read_host_facts(tree.root).cpu
    assert (cpu.l1d_bytes, cpu.l2_bytes, cpu.l3_bytes) == (48 << 10, 2 << 20, 105 << 20)


def test_arm_names_come_from_implementer_and_part(tree: HostTree) -> None:
    tree.cpus("0-1", cpuinfo="processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\nFeatures\t: asimd sve")
    cpu = read_host_facts(tree.root).cpu
    assert (cpu.model_name, cpu.architecture) == ("Arm Neoverse V1", "aarch64")


def test_unknown_arm_part_is_named_by_its_numbers(tree: HostTree) -> None:
    tree.cpus("0", cpuinfo="CPU implementer\t: 0x99\nCPU part\t: 0xabc")
    assert read_host_facts(tree.root).cpu.model_name == "CPU implementer 0x99 part 0xabc"


def test_model_name_white_space(tree: HostTree) -> None:
    tree.cpus("0")
    assert read_host_facts(tree.root).cpu.model_name == "Test CPU @ 2.0GHz"


def test_this_machine() -> None:
    facts = read_host_facts()
    assert facts.cpu.affinity == tuple(sorted(os.sched_getaffinity(0)))
    assert set(facts.cpu.physical_cores) <= set(facts.cpu.affinity)
    assert 1 <= engine_threads(facts) <= len(facts.cpu.affinity)
    assert 0 < facts.memory.available_bytes <= facts.memory.total_bytes
    assert facts.memory.page_bytes == os.sysconf("SC_PAGE_SIZE")
