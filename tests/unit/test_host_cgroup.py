from __future__ import annotations

from pathlib import Path

import pytest
from host_tree import HostTree

from tokenmill.host.cgroup import read_limits

NO_LIMIT_V1 = 9223372036854771712


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


def test_no_files_means_no_limits(tree: HostTree) -> None:
    limits = read_limits(tree.root)
    assert limits.quota.cgroup_version is None
    assert (limits.quota.cpus, limits.quota.cpu_source) == (None, "none")
    assert (limits.quota.memory_bytes, limits.quota.memory_source) == (None, "none")
    assert limits.memory_headroom_bytes is None
    assert limits.cpuset is None


def test_v2_max_is_no_limit(tree: HostTree) -> None:
    tree.cgroup_v2("/app").write("/sys/fs/cgroup/app/cpu.max", "max 100000")
    tree.write("/sys/fs/cgroup/app/memory.max", "max")
    quota = read_limits(tree.root).quota
    assert (quota.cgroup_version, quota.cpus, quota.memory_bytes) == (2, None, None)


def test_v2_quota_without_period_uses_the_default(tree: HostTree) -> None:
    tree.cgroup_v2("/app").write("/sys/fs/cgroup/app/cpu.max", "150000")
    assert read_limits(tree.root).quota.cpus == 1.5


def test_v2_an_ancestor_binds(tree: HostTree) -> None:
    tree.cgroup_v2("/kubepods/pod1/main")
    tree.write("/sys/fs/cgroup/kubepods/cpu.max", "800000 100000")
    tree.write("/sys/fs/cgroup/kubepods/pod1/cpu.max", "250000 100000")
    tree.write("/sys/fs/cgroup/kubepods/pod1/main/cpu.max", "max 100000")
    tree.write("/sys/fs/cgroup/kubepods/memory.max", 8 << 30)
    tree.write("/sys/fs/cgroup/kubepods/pod1/memory.max", 4 << 30)
    tree.write("/sys/fs/cgroup/kubepods/pod1/main/memory.max", 6 << 30)
    quota = read_limits(tree.root).quota
    assert (quota.cpus, quota.cpu_source) == (2.5, "/sys/fs/cgroup/kubepods/pod1/cpu.max")
    assert (quota.memory_bytes, quota.memory_source) == (4 << 30, "/sys/fs/cgroup/kubepods/pod1/memory.max")


def test_v2_memory_high_counts_when_lower(tree: HostTree) -> None:
    tree.cgroup_v2("/app").write("/sys/fs/cgroup/app/memory.max", 4 << 30)
    tree.write("/sys/fs/cgroup/app/memory.high", 3 << 30)
    quota = read_limits(tree.root).quota
    assert (quota.memory_bytes, quota.memory_source) == (3 << 30, "/sys/fs/cgroup/app/memory.high")


def test_v2_namespace_shows_own_group_at_the_mount_point(tree: HostTree) -> None:
    tree.cgroup_v2("/").write("/sys/fs/cgroup/cpu.max", "50000 100000")
    quota = read_limits(tree.root).quota
    assert (quota.cpus, quota.cpu_source) == (0.5, "/sys/fs/cgroup/cpu.max")


def test_v2_path_of_another_namespace_falls_back_to_the_mount_point(tree: HostTree) -> None:
    tree.cgroup_v2("/../other", mount_root="/").write("/sys/fs/cgroup/cpu.max", "300000 100000")
    assert read_limits(tree.root).quota.cpus == 3.0


def test_bind_mounted_group_is_cut_by_the_mount_root(tree: HostTree) -> None:
    tree.cgroup_v2("/docker/abc/inner", mount_root="/docker/abc")
    tree.write("/sys/fs/cgroup/inner/cpu.max", "max 100000")
    tree.write("/sys/fs/cgroup/cpu.max", "100000 50000")
    assert read_limits(tree.root).quota.cpus == 2.0


def test_mount_root_is_compared_by_whole_names(tree: HostTree) -> None:
    tree.cgroup_v2("/docker/abcdef", mount_root="/docker/abc")
    tree.write("/sys/fs/cgroup/def/cpu.max", "100000 100000")
    tree.write("/sys/fs/cgroup/cpu.max", "400000 100000")
    assert read_limits(tree.root).quota.cpus == 4.0


def test_mount_point_with_a_space(tree: HostTree) -> None:
    tree.cgroup_v2("/a", mount_point="/mnt/control\\040groups")
    tree.write("/mnt/control groups/a/cpu.max", "100000 100000")
    assert read_limits(tree.root).quota.cpus == 1.0


def test_v1_quota_and_period(tree: HostTree) -> None:
    tree.cgroup_v1("/docker/abc", mount_root="/docker/abc")
    tree.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", 350000)
    tree.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", 100000)
    quota = read_limits(tree.root).quota
    assert (quota.cgroup_version, quota.cpus) == (1, 3.5)
    assert quota.cpu_source == "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"


def test_v1_minus_one_and_huge_memory_are_no_limit(tree: HostTree) -> None:
    tree.cgroup_v1("/a").write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", -1)
    tree.write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", NO_LIMIT_V1)
    tree.write("/sys/fs/cgroup/memory/a/memory.stat", f"cache 1\nhierarchical_memory_limit {NO_LIMIT_V1}")
    quota = read_limits(tree.root).quota
    assert (quota.cpus, quota.memory_bytes) == (None, None)


def test_v1_hidden_ancestor_shows_in_hierarchical_limit(tree: HostTree) -> None:
    tree.cgroup_v1("/").write("/sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT_V1)
    tree.write("/sys/fs/cgroup/memory/memory.stat", f"hierarchical_memory_limit {2 << 30}\ntotal_inactive_file 0")
    quota = read_limits(tree.root).quota
    assert (quota.memory_bytes, quota.memory_source) == (2 << 30, "/sys/fs/cgroup/memory/memory.stat")


def test_v1_groups_may_differ_by_controller(tree: HostTree) -> None:
    tree.cgroup_v1("/cpu-group", memory_group="/memory-group")
    tree.write("/sys/fs/cgroup/memory/memory-group/memory.limit_in_bytes", 1 << 30)
    tree.write("/sys/fs/cgroup/cpu,cpuacct/cpu-group/cpu.cfs_quota_us", 200000)
    quota = read_limits(tree.root).quota
    assert (quota.cpus, quota.memory_bytes) == (2.0, 1 << 30)


def test_hybrid_takes_each_controller_where_it_lives(tree: HostTree) -> None:
    tree.write("/proc/self/cgroup", "4:memory:/m\n1:name=systemd:/s\n0::/u")
    tree.write(
        "/proc/self/mountinfo",
        "40 22 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "41 22 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
        "42 22 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    )
    tree.write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", 3 << 30)
    tree.write("/sys/fs/cgroup/unified/u/cpu.max", "100000 100000")
    tree.write("/sys/fs/cgroup/unified/u/memory.max", 1 << 20)
    quota = read_limits(tree.root).quota
    assert (quota.cgroup_version, quota.cpus, quota.memory_bytes) == (2, 1.0, 3 << 30)


def test_no_mountinfo_looks_in_the_usual_place(tree: HostTree) -> None:
    tree.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory").write("/sys/fs/cgroup/cpu.max", "200000 100000")
    assert read_limits(tree.root).quota.cpus == 2.0


def test_no_mountinfo_v1(tree: HostTree) -> None:
    tree.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", 100000).write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", 100000)
    quota = read_limits(tree.root).quota
    assert (quota.cgroup_version, quota.cpus) == (1, 1.0)


@pytest.mark.parametrize("text", ["", "many 100000", "0 100000", "100000 0", "-5 100000", "100000 often"])
def test_malformed_quota_is_no_limit(tree: HostTree, text: str) -> None:
    tree.cgroup_v2("/a").write("/sys/fs/cgroup/a/cpu.max", text)
    assert read_limits(tree.root).quota.cpus is None


def test_several_mounts_of_one_hierarchy_give_the_tightest(tree: HostTree) -> None:
    tree.write("/proc/self/cgroup", "0::/pod/main")
    tree.write(
        "/proc/self/mountinfo",
        "30 22 0:26 /pod/main /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        "31 22 0:26 / /host/cgroup rw - cgroup2 cgroup2 rw",
    )
    tree.write("/sys/fs/cgroup/cpu.max", "400000 100000").write("/host/cgroup/pod/cpu.max", "200000 100000")
    quota = read_limits(tree.root).quota
    assert (quota.cpus, quota.cpu_source) == (2.0, "/host/cgroup/pod/cpu.max")


def test_headroom_counts_reclaimable_cache_as_free(tree: HostTree) -> None:
    tree.cgroup_v2("/a").write("/sys/fs/cgroup/a/memory.max", 1000)
    tree.write("/sys/fs/cgroup/a/memory.current", 900).write(
        "/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 300"
    )
    assert read_limits(tree.root).memory_headroom_bytes == 400


def test_headroom_is_the_smallest_of_all_ancestors(tree: HostTree) -> None:
    tree.cgroup_v2("/a/b").write("/sys/fs/cgroup/a/memory.max", 5000).write("/sys/fs/cgroup/a/memory.current", 4950)
    tree.write("/sys/fs/cgroup/a/b/memory.max", 1000).write("/sys/fs/cgroup/a/b/memory.current", 100)
    limits = read_limits(tree.root)
    assert (limits.quota.memory_bytes, limits.memory_headroom_bytes) == (1000, 50)


def test_cpuset_of_the_innermost_group_that_has_one(tree: HostTree) -> None:
    tree.cgroup_v2("/a/b").write("/sys/fs/cgroup/cpuset.cpus.effective", "0-7")
    tree.write("/sys/fs/cgroup/a/cpuset.cpus.effective", "2-3,6").write("/sys/fs/cgroup/a/b/cpuset.cpus", "")
    assert read_limits(tree.root).cpuset == (2, 3, 6)
