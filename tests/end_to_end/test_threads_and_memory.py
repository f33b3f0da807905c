"""Threads and memory on the machine as it is: real control groups, a real idle server, real limits of locked memory."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tokenmill.engine.engine import Engine
from tokenmill.engine.options import EngineOptions
from tokenmill.host import read_host_facts
from tokenmill.vocabulary.errors import CapacityError

TOKENMILL = [sys.executable, "-c", "from tokenmill.cli.entry import run; run()"]
CAP_IPC_LOCK = 14
PR_CAPBSET_DROP = 24


def tokenmill(*arguments: str, before: Callable[[], None]) -> subprocess.CompletedProcess[str]:
    """Runs a command in a process that first calls `before`."""
    return subprocess.run(
        [*TOKENMILL, *arguments], capture_output=True, text=True, timeout=120, check=False, preexec_fn=before
    )


def explained(before: Callable[[], None]) -> dict[str, Any]:
    result = tokenmill("explain", "--json", before=before)
    assert result.returncode == 0, result.stderr
    machine: dict[str, Any] = json.loads(result.stdout)["machine"]
    return machine


def cpu_controller() -> tuple[int, Path]:
    """The version that controls CPU time here, and the group that this process is in. Raises OSError without one."""
    groups = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines())
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        before, after = (part.split() for part in line.split(" - "))
        names = after[2].split(",")
        if after[0] == "cgroup" and "cpu" in names:
            listed = next(group for controllers, group in groups.items() if "cpu" in controllers.split(","))
            return 1, Path(before[4]) / listed.lstrip("/")
        if after[0] == "cgroup2" and "cpu" in (Path(before[4]) / "cgroup.controllers").read_text("utf-8").split():
            return 2, Path(before[4]) / groups[""].lstrip("/")
    raise OSError(errno.ENOENT, "no control group of this machine controls CPU time")


@contextmanager
def nested_groups(quota_us: int) -> Iterator[tuple[Path, Path]]:
    """A group with a quota, and one without below it. Raises OSError where this process may not make them."""
    version, own = cpu_controller()
    outer = own / f"tokenmill-test-{os.getpid()}"
    inner = outer / "inner"
    limit = outer / ("cpu.cfs_quota_us" if version == 1 else "cpu.max")
    try:
        outer.mkdir()
        if not limit.exists():
            raise OSError(errno.EPERM, f"the group above does not hand its CPU controller down: no {limit}")
        limit.write_text(f"{quota_us}" if version == 1 else f"{quota_us} 100000", "utf-8")
        inner.mkdir()
        yield inner / "cgroup.procs", limit
    finally:
        for group in (inner, outer):
            if group.is_dir():
                group.rmdir()


def test_a_real_quota_of_an_ancestor() -> None:
    """One thread under a quota of 1.5 CPUs. Where no group may be made, the affinity mask binds the same way."""
    try:
        with nested_groups(150_000) as (processes, limit):
            machine = explained(lambda: Path(processes).write_text(str(os.getpid()), "utf-8"))
            assert machine["host"]["quota"]["cpus"] == 1.5
            assert machine["host"]["quota"]["cpu_source"] == str(limit)
            assert str(limit) in machine["threads_why"]
    except OSError as refusal:
        # A container's usual answers: a read-only mount, no permission, no controller, a group with processes in it.
        assert refusal.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.EBUSY), refusal  # noqa: PT017
        cpu = min(os.sched_getaffinity(0))
        machine = explained(lambda: os.sched_setaffinity(0, {cpu}))
        assert machine["host"]["cpu"]["affinity"] == [cpu]
    assert machine["threads"] == 1


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_idle_server_sleeps(default_model_path: Path) -> None:
    """Under 2 % of one CPU, after it has answered something."""
    command = [*TOKENMILL, "serve", str(default_model_path), "--port", "0", "--context", "256", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout
            url = json.loads(server.stdout.readline())["url"]
            body = json.dumps({"prompt": "Hello", "max_tokens": 4}).encode()
            request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert answer.status == 200
            time.sleep(0.5)
            before = cpu_seconds(server.pid)
            time.sleep(3)
            used = cpu_seconds(server.pid) - before
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    assert used < 0.02 * 3, f"an idle server used {used:.2f} s of CPU time in 3 s"


def without_the_right_to_lock() -> None:
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)  # fails for those who have not the right anyway
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))


def test_locking_past_the_limit_is_refused_with_numbers(default_model_path: Path) -> None:
    result = tokenmill(
        "generate", str(default_model_path), "-p", "x", "--lock-memory", before=without_the_right_to_lock
    )
    assert result.returncode == 1
    assert "RLIMIT_MEMLOCK allows 1,048,576" in " ".join(result.stderr.split())
    assert "ulimit -l" in result.stderr
    explain = tokenmill("explain", str(default_model_path), "--lock-memory", before=without_the_right_to_lock)
    assert explain.returncode == 1
    assert "RLIMIT_MEMLOCK allows 1,048,576" in " ".join(explain.stderr.split())


def test_locked_memory_is_what_the_kernel_counts(default_model_path: Path) -> None:
    options = EngineOptions(context_length=64, max_sequences=1, threads=1, lock_memory=True)
    limit = read_host_facts().memory.lock_limit_bytes
    if limit is not None and limit < 100 << 20:
        with pytest.raises(CapacityError, match="RLIMIT_MEMLOCK"):
            Engine.load(default_model_path, options)
        return
    with Engine.load(default_model_path, options) as engine:
        info = engine.info
        assert info.locked_bytes >= info.weight_bytes + info.kv_bytes
        reserved = info.weight_memory.reserved_bytes + info.kv_memory.reserved_bytes  # never swapped, not counted
        status = Path("/proc/self/status").read_text("utf-8")
        locked = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmLck:"))
        assert locked + reserved >= info.weight_bytes + info.kv_bytes


def test_the_engine_says_what_it_placed(default_model_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tokenmill.engine.load")
    with Engine.load(default_model_path, EngineOptions(context_length=64, max_sequences=1)) as engine:
        placement = engine.info.placement
        assert placement is not None
        assert placement.threads == engine.info.threads
        assert placement.page_bytes == os.sysconf("SC_PAGE_SIZE")
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Memory: ")]
    assert len(lines) == 1
    assert "in huge pages" in lines[0]
