"""The native module: kernels, decoder, sampler. Every call that computes releases the GIL.

Only engine/model_runner, engine/self_test, engine/bench/, weights/pack and cli/explain import it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

def cpu_features() -> list[str]:
    """Features of this CPU that a kernel set could use, by the names of native/contract/cpu_feature.h."""

def cpu_report() -> dict[str, Any]:
    """{"known", "reported", "usable": [str], "xcr0"}.

    Features of this architecture that a set may require, those that the CPU says it has, those whose registers the
    operating system saves too, and x86's XCR0 (0 elsewhere).
    """

def kernel_sets() -> list[dict[str, Any]]:
    """Compiled sets, best first.

    Each {"name", "rank", "required": [str], "missing": [str], "usable", "panel_rows", "borrowed": [str]}; borrowed
    functions are the reference set's own.
    """

def select_kernel_set(forced: str | None) -> str:
    """The name of the best usable set, or `forced`. Raises ValueError naming the choices and what is missing."""

def self_test(kernel_set: str) -> list[str]:
    """Compares the set with the reference on every function and format; returns failures (none: all equal). < 0.5 s."""

def fp_environment_is_default() -> bool:
    """Whether this thread rounds to nearest with denormals kept (a -ffast-math library may have changed it)."""

def quantize_activations(
    kernel_set: str, x: NDArray[np.float32]
) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.int16]]:
    """For tests: (q [rows,k], scale [rows,k/32], half_sums [rows,k/32,2])."""

def dequantize(format_name: str, data: bytes, k: int) -> NDArray[np.float32]:
    """Rows of file blocks to float32 [rows, k], equal to the gguf package. Raises ValueError on a size mismatch."""

def matmul(
    kernel_set: str, format_name: str, weights: bytes, rows: int, x: NDArray[np.float32], threads: int
) -> NDArray[np.float32]:
    """For tests: packs `weights` ([rows][k] file blocks), then x [tokens, k] -> [tokens, rows]."""

class SamplerConfig:
    """Sampling parameters of one row; fields as in vocabulary.SamplingParams (logprobs: -1 is off)."""

    def __init__(
        self,
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        repetition_penalty: float,
        presence_penalty: float,
        frequency_penalty: float,
        logit_bias: Sequence[tuple[int, float]],
        seed: int,
        logprobs: int,
    ) -> None: ...

class StepResult:
    """What a step gave. Row r belongs to the r-th entry of `sample_rows`."""

    token_ids: NDArray[np.int32]  # [rows], or [0] without samplers; -1 where the sequence had a non-finite value
    logprobs: NDArray[np.float32]  # [rows]; NaN where not asked for
    top_ids: list[NDArray[np.int32]]  # per row, largest first
    top_logprobs: list[NDArray[np.float32]]
    nonfinite: NDArray[np.bool_]  # [sequences]: a non-finite value was met while computing this sequence
    logits: NDArray[np.float32] | None  # [rows, vocab] when return_logits
    phase_seconds: dict[str, float]  # wall time of the step by phase: matmul, attention, other, sampling

class MemoryReport:
    """What memory was got, as the kernel says now."""

    pool_bytes: int  # in huge pages that vm.nr_hugepages reserved
    transparent_bytes: int  # in transparent huge pages, from /proc/self/smaps
    pool_refusal: str  # why there are no reserved pages; empty when there are, or the kernel has none
    policy_refusal: str  # the kernel's word against the NUMA policy; empty when it took it
    node_bytes: dict[int, int]  # by NUMA node, a sample scaled up; empty where no policy was asked for

class Model:
    """Weights, KV pages and threads of one model. Not thread-safe: one engine thread drives it."""

    def __init__(
        self,
        plan: Mapping[str, Any],  # dataclasses.asdict(ModelPlan)
        *,
        kernel_set: str,
        threads: int,
        cpus: Sequence[Sequence[int]] | None,  # for each thread the CPUs it may run on; None: any
        thread_copies: Sequence[int] = (),  # for each thread the copy of the weights that it reads; (): the first
        weight_nodes: Sequence[Sequence[int]] = ...,  # for each copy its NUMA nodes: none: first touch; many: in turn
        kv_nodes: Sequence[int] = (),
        expected_weight_bytes: int = 0,  # of one copy; 0 where unknown
    ) -> None:
        """Raises ValueError for a plan that is inconsistent or that native code does not support (named)."""

    def load_tensor(self, name: str, format_name: str, rows: int, k: int, fd: int, offset: int, nbytes: int) -> int:
        """Reads and packs one tensor (1-D tensors: rows=1, F32/F16/BF16, kept as F32). Returns its packed bytes.

        Raises ValueError (sizes), OSError (read), RuntimeError (NaN/Inf scale: names row and block), MemoryError.
        """

    def finish_loading(self) -> None:
        """Checks that every tensor of the plan is there in its shape; else raises ValueError naming the first."""

    def allocate_kv(self, pages: int) -> int:
        """Allocates the KV pages (16 tokens each, all layers); returns the bytes. Raises MemoryError."""

    @property
    def kv_bytes_per_page(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    def weight_memory(self) -> MemoryReport: ...
    def kv_memory(self) -> MemoryReport: ...
    def lock_memory(self) -> int:
        """Keeps weights and KV pages in memory (mlock); returns their bytes. Raises OSError."""

    def zero_pages(self, pages: NDArray[np.int32]) -> None:
        """Zeroes pages before they are handed out."""

    def step(
        self,
        tokens: NDArray[np.int32],  # [T], sequences one after another
        starts: NDArray[np.int32],  # [S+1], offsets of each sequence's tokens in `tokens`
        positions: NDArray[np.int32],  # [S], absolute position of each sequence's first token of this step
        page_table: NDArray[np.int32],  # [P], page numbers, sequences one after another
        page_starts: NDArray[np.int32],  # [S+1]
        sample_rows: NDArray[
            np.int32
        ],  # [R], ascending rows of `tokens` after which a token is drawn (or logits are wanted)
        samplers: Sequence[SamplerConfig] | None,  # [R]; None: no drawing, logits only
        # [R] (prompt and output tokens, prompt length) where penalties need it
        histories: Sequence[tuple[NDArray[np.int32], int] | None],
        *,
        return_logits: bool = False,
    ) -> StepResult:
        """Runs one ragged batch: prefill chunks and decode rows mixed.

        Position t of a sequence is stored in its page t // 16, slot t % 16, which must be in its page table. No two
        sequences may write to one page in one step. The token drawn after position t uses RNG(seed, t + 1).

        Raises ValueError on anything out of range, TypeError for arrays that are not contiguous int32, MemoryError
        when the buffers of the step do not fit, and RuntimeError while another thread is inside the model.
        """

def row_functions() -> list[str]:
    """Names that KernelBench.time_rows takes."""

class KernelBench:
    """Times the functions of one kernel set on threads of its own. Times are seconds of single runs, after a warm-up.

    Each measurement makes at least `repeats` runs (1 to 1000), and as many more as fit into `seconds` (0 to 60).
    Raises ValueError for what is out of range, MemoryError when buffers do not fit.
    """

    def __init__(
        self, kernel_set: str, *, threads: int, cpus: Sequence[Sequence[int]] | None, nodes: Sequence[int]
    ) -> None:
        """`cpus` as for Model; memory lies on `nodes`, page by page when there are several (none: first touch)."""

    def read(
        self, nbytes: int, streams: Sequence[int], *, repeats: int, seconds: float
    ) -> list[tuple[int, list[float]]]:
        """Reads memory with 1, 2, 4, 8 or 16 streams a thread: for each, the bytes of a run and the times."""

    def peaks(self, *, repeats: int, seconds: float) -> list[tuple[str, str, int, list[float]]]:
        """The set's peak loops: quantity, instructions, multiply-adds of a run, times. Empty for `reference`."""

    def prepare_matmul(self, format_name: str, rows: int, k: int, *, most_tokens: int, cold_bytes: int) -> int:
        """Packs random weights, in as many copies as fill cold_bytes; returns the bytes of one. Drops the last case."""

    def check_matmul(self, tokens: int) -> str:
        """Empty when the product has the reference's bits; else where it differs."""

    def time_matmul(self, tokens: int, *, repeats: int, seconds: float) -> list[float]: ...
    def prepare_attention(
        self, *, context: int, tokens: int, kv_heads: int, group: int, head_dim: int, cold_bytes: int
    ) -> dict[str, int]:
        """The last `tokens` of a sequence of `context` keys, all heads. Returns kv_bytes, multiply_adds, query_keys."""

    def check_attention(self) -> str:
        """Empty when one KV head's output has the reference's bits; else where it differs."""

    def time_attention(self, *, repeats: int, seconds: float) -> list[float]: ...
    def time_rows(self, name: str, width: int, *, repeats: int, seconds: float) -> tuple[int, list[float]]:
        """A row function on 8 rows of `width` floats (a multiple of 128), one thread: elements of a run, times."""
