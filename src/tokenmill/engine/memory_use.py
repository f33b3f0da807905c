"""What weights and KV pages lie in, and whether they may be locked: facts into values and one line for the log."""

from __future__ import annotations

from tokenmill.engine.options import MemoryUse
from tokenmill.vocabulary.errors import CapacityError
from tokenmill.vocabulary.host_facts import MemoryFacts


def describe_memory(
    weight_bytes: int, weights: MemoryUse, kv_bytes: int, kv: MemoryUse, *, mode: str, locked_bytes: int
) -> str:
    """One line: what was got, and why not more. `mode` is that of transparent huge pages."""
    granted = mode in ("always", "madvise")
    parts = [f"weights: {_pages(weight_bytes, weights)}"]
    if granted and not kv.reserved_bytes and not locked_bytes:
        parts.append(f"KV cache: {kv_bytes:,} bytes, in huge pages as they are first used")
    else:
        parts.append(f"KV cache: {_pages(kv_bytes, kv)}")
    if not granted and not (weights.reserved_bytes and kv.reserved_bytes):
        parts.append(f"transparent huge pages are not granted (/sys/kernel/mm/transparent_hugepage/enabled: {mode})")
    parts += dict.fromkeys(use.why_not_more for use in (weights, kv) if use.why_not_more)
    if locked_bytes:
        parts.append(f"{locked_bytes:,} bytes locked")
    return "; ".join(parts)


def _pages(total: int, use: MemoryUse) -> str:
    huge = min(total, use.reserved_bytes + use.transparent_bytes)  # the last page may hold more
    text = f"{huge:,} of {total:,} bytes in huge pages"
    text += f" ({min(total, use.reserved_bytes):,} of them reserved ones)" if use.reserved_bytes else ""
    if use.node_bytes:
        text += ", " + ", ".join(f"about {size:,} on node {node}" for node, size in use.node_bytes.items())
    return text


def check_lock_limit(memory: MemoryFacts, wanted_bytes: int) -> None:
    """Refuses what mlock would refuse.

    Raises:
        CapacityError: RLIMIT_MEMLOCK is lower than what is to be locked; the message has both numbers.
    """
    limit = memory.lock_limit_bytes
    if limit is not None and wanted_bytes > limit:
        raise lock_refused(wanted_bytes, f"RLIMIT_MEMLOCK allows {limit:,}")


def lock_refused(wanted_bytes: int, reason: str) -> CapacityError:
    """The error for memory that cannot be locked."""
    return CapacityError(
        f"{wanted_bytes:,} bytes of weights and KV cache are to be locked in memory, but {reason}",
        hint="raise the limit (ulimit -l; systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1), "
        "give CAP_IPC_LOCK, ask for less (--context, --kv-memory), or leave out --lock-memory",
    )
