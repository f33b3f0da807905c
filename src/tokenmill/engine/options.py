"""What a user may choose about an engine, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.vocabulary.host_facts import Numa

if TYPE_CHECKING:
    from tokenmill.engine.placement import Placement


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Choices; None lets the engine choose from what the host gives.

    Attributes:
        threads: compute threads; by default physical cores within the affinity mask and the CPU quota.
        kernel_set: forces one; the environment variable TOKENMILL_KERNELS forces it over this.
        context_length: most tokens of a sequence; by default the model's own, or less when memory cannot hold it.
        max_sequences: most sequences computed at once; more wait.
        prefill_tokens: most prompt tokens of one step. More makes prompts faster and running answers less even.
        kv_bytes: memory for the KV cache; by default what max_sequences full contexts need, if that much is free.
        queue_limit: most sequences that wait; one more is refused.
        itl_target_s: how long running answers may wait for a token while prompts are computed; by default a few times
            what a step without prompts takes.
        prefix_cache: whether beginnings that prompts have in common are kept and computed once.
        record_path: a new file for a record of all that the scheduler is told and decides (token ids in it).
        pin: whether each thread keeps to one core; by default when the threads have all cores and no quota.
        numa: where weights and KV pages go on several NUMA nodes.
        lock_memory: whether weights and KV cache are kept in memory (mlock); refused when the limit is too low.
    """

    threads: int | None = None
    kernel_set: str | None = None
    context_length: int | None = None
    max_sequences: int = 16
    prefill_tokens: int = 256
    kv_bytes: int | None = None
    queue_limit: int = 256
    pin: bool | None = None
    itl_target_s: float | None = None
    prefix_cache: bool = True
    record_path: Path | None = None
    numa: Numa = Numa.AUTO
    lock_memory: bool = False


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What weights or KV pages are made of, as the kernel says.

    Attributes:
        reserved_bytes: in huge pages that the administrator reserved (vm.nr_hugepages).
        transparent_bytes: in transparent huge pages now; KV pages get theirs as they are first used.
        node_bytes: by NUMA node, from a sample of the pages; empty where nothing was placed.
        why_not_more: why there are no reserved pages, or why a NUMA policy was refused; empty otherwise.
    """

    reserved_bytes: int = 0
    transparent_bytes: int = 0
    node_bytes: Mapping[int, int] = field(default_factory=dict)
    why_not_more: str = ""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is running, for `explain`, metrics and reports. Bytes are memory of this process.

    Attributes:
        name: the model file's name without its ending.
        architecture: as in the file.
        trained_context_length: what the model can do at most; context_length may be less.
        file_bytes: size of the model file, all parts.
        pinned_cpus: the CPU of each thread; empty when not pinned.
        weight_bytes: of all copies.
        huge_page_bytes: of weights and KV together, in huge pages as far as known.
        placement: what was decided about threads and memory; None where nothing was.
        weight_memory: what the weights lie in.
        kv_memory: what the KV pages lie in.
        locked_bytes: kept in memory by mlock.
    """

    name: str
    architecture: str
    vocab_size: int
    context_length: int
    trained_context_length: int
    kernel_set: str
    threads: int
    pinned_cpus: tuple[int, ...]
    max_sequences: int
    queue_limit: int
    file_bytes: int
    weight_bytes: int
    kv_pages: int
    kv_bytes: int
    huge_page_bytes: int
    load_s: float
    placement: Placement | None = None
    weight_memory: MemoryUse = MemoryUse()
    kv_memory: MemoryUse = MemoryUse()
    locked_bytes: int = 0
