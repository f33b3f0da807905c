"""What a user may choose about an engine, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is running, for `explain`, metrics and reports. Bytes are memory of this process.

    Attributes:
        name: the model file's name without its ending.
        architecture: as in the file.
        trained_context_length: what the model can do at most; context_length may be less.
        file_bytes: size of the model file, all parts.
        pinned_cpus: the CPU of each thread; empty when not pinned.
        huge_page_bytes: of weights and KV together, in huge pages as far as known.
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
