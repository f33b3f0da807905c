"""What `tokenmill explain` finds out: which code runs here and why, and what a model becomes on this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill import _native
from tokenmill.engine.memory_use import check_lock_limit
from tokenmill.engine.options import EngineOptions
from tokenmill.engine.placement import Placement, place
from tokenmill.engine.self_test import selected_kernel_set
from tokenmill.host import read_host_facts
from tokenmill.models import plan_model
from tokenmill.vocabulary.host_facts import HostFacts
from tokenmill.vocabulary.layer_plan import ModelPlan
from tokenmill.vocabulary.model_file import ModelFile, TensorInfo
from tokenmill.weights.formats import FORMAT_BY_NAME
from tokenmill.weights.read_gguf import read_gguf

_FP16_BYTES = 2
_FLOAT_FORMATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """One CPU feature.

    Does the CPU have it, may programs use it, which sets of this build are compiled for it, and does the chosen set use
    it? `why` is empty when it is used.
    """

    name: str
    detected: bool
    usable: bool
    compiled: tuple[str, ...]
    chosen: bool
    why: str


@dataclass(frozen=True, slots=True)
class KernelSetFacts:
    """One compiled set; `why` says what stands in its way, or why it is the one."""

    name: str
    rank: int
    usable: bool
    chosen: bool
    missing: tuple[str, ...]
    borrowed: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class MachineExplanation:
    """This machine as the engine sees it. `self_test_failures` is empty when the chosen set equals the reference."""

    host: HostFacts
    features: tuple[FeatureFacts, ...]
    kernel_sets: tuple[KernelSetFacts, ...]
    kernel_set: str
    self_test_failures: tuple[str, ...]
    self_test_s: float
    threads: int
    threads_why: str
    placement: Placement  # of threads; that of a model's memory needs the model


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """One tensor: what reads it, its bytes in the file, and its bytes in memory as the chosen set packs it."""

    name: str
    format: str
    shape: tuple[int, ...]
    kernel: str
    file_bytes: int
    packed_bytes: int


@dataclass(frozen=True, slots=True)
class ModelExplanation:
    """A model on this machine. Bytes are computed from the file's header: nothing has been loaded."""

    path: Path
    architecture: str
    parameters: int
    layers: int
    context_length: int
    vocab_size: int
    tensors: tuple[TensorFacts, ...]
    file_bytes: int
    weight_bytes: int
    kv_bytes_per_token: int
    kv_bytes_of_context: int
    fits: bool
    placement: Placement


def explain_machine(forced: str | None, options: EngineOptions | None = None) -> MachineExplanation:
    """Reads the host, chooses the kernel set as the engine does, and tests it against the reference.

    Args:
        forced: the value of TOKENMILL_KERNELS; None or empty leaves the choice to the ranking.
        options: of the engine that would run; None means the defaults.

    Raises:
        KernelSetError: no set can run here, or the forced one cannot.
    """
    cpu, compiled = _native.cpu_report(), _native.kernel_sets()
    host = read_host_facts(features=cpu["usable"])
    chosen = selected_kernel_set(forced)
    start = time.perf_counter()
    failures = _native.self_test(chosen)
    seconds = time.perf_counter() - start
    placement = place(host, options or EngineOptions(), weight_bytes=0)
    return MachineExplanation(
        host=host,
        features=feature_facts(cpu, compiled, chosen),
        kernel_sets=kernel_set_facts(cpu, compiled, chosen, forced),
        kernel_set=chosen,
        self_test_failures=tuple(failures),
        self_test_s=seconds,
        threads=placement.threads,
        threads_why=placement.threads_why,
        placement=placement,
    )


def explain_model(path: Path, machine: MachineExplanation, options: EngineOptions | None = None) -> ModelExplanation:
    """Reads a model's header and says what each tensor becomes.

    Raises:
        ModelFileError, UnsupportedModelError: as reading and planning the model do.
        CapacityError: what the options ask for (copies, locked memory) cannot be had.
    """
    file = read_gguf(path)
    plan = plan_model(file)
    panel_rows = next(int(s["panel_rows"]) for s in _native.kernel_sets() if s["name"] == machine.kernel_set)
    tensors = _tensor_facts(file, plan, machine.kernel_set, panel_rows)
    weight_bytes = sum(tensor.packed_bytes for tensor in tensors)
    attention = [layer.attention for layer in plan.layers]
    kv_bytes = sum(2 * _FP16_BYTES * layer.kv_head_count * layer.head_dim for layer in attention)
    placement = place(machine.host, options or EngineOptions(), weight_bytes)
    if options is not None and options.lock_memory:
        locked = weight_bytes * len(placement.weight_nodes) + kv_bytes * plan.context_length
        check_lock_limit(machine.host.memory, locked)
    return ModelExplanation(
        path=file.path,
        architecture=plan.architecture,
        parameters=sum(math.prod(tensor.shape) for tensor in file.tensors.values()),
        layers=len(plan.layers),
        context_length=plan.context_length,
        vocab_size=plan.vocab_size,
        tensors=tensors,
        file_bytes=file.file_bytes,
        weight_bytes=weight_bytes,
        kv_bytes_per_token=kv_bytes,
        kv_bytes_of_context=kv_bytes * plan.context_length,
        fits=weight_bytes + kv_bytes * plan.context_length <= machine.host.memory.available_bytes,
        placement=placement,
    )


def feature_facts(
    cpu: Mapping[str, Any], compiled: Sequence[Mapping[str, Any]], chosen: str
) -> tuple[FeatureFacts, ...]:
    """Each feature of this architecture, from what _native.cpu_report and _native.kernel_sets give."""
    facts = []
    for name in cpu["known"]:
        users = tuple(str(entry["name"]) for entry in compiled if name in entry["required"])
        if name not in cpu["reported"]:
            why = "this CPU does not have it"
        elif name not in cpu["usable"]:
            why = _registers_not_saved(cpu)
        elif not users:
            why = "no set of this build is compiled for it"
        else:
            why = "" if chosen in users else f"{chosen} does without it"
        facts.append(
            FeatureFacts(
                name=name,
                detected=name in cpu["reported"],
                usable=name in cpu["usable"],
                compiled=users,
                chosen=chosen in users,
                why=why,
            )
        )
    return tuple(facts)


def kernel_set_facts(
    cpu: Mapping[str, Any], compiled: Sequence[Mapping[str, Any]], chosen: str, forced: str | None
) -> tuple[KernelSetFacts, ...]:
    """Each compiled set, best first, from what _native.cpu_report and _native.kernel_sets give."""
    facts = []
    rank_of_chosen = next(int(entry["rank"]) for entry in compiled if entry["name"] == chosen)
    for entry in compiled:
        missing = tuple(entry["missing"])
        if entry["name"] == chosen:
            why = "forced by TOKENMILL_KERNELS" if forced else "the highest rank that this CPU can run"
        elif missing:
            why = _why_unusable(cpu, missing)
        elif int(entry["rank"]) > rank_of_chosen:
            why = f"usable, but TOKENMILL_KERNELS forces {chosen}"
        else:
            why = f"usable; {chosen} ranks higher"
        facts.append(
            KernelSetFacts(
                name=str(entry["name"]),
                rank=int(entry["rank"]),
                usable=bool(entry["usable"]),
                chosen=entry["name"] == chosen,
                missing=missing,
                borrowed=tuple(entry["borrowed"]),
                why=why,
            )
        )
    return tuple(facts)


def _why_unusable(cpu: Mapping[str, Any], missing: Sequence[str]) -> str:
    absent = [name for name in missing if name not in cpu["reported"]]
    hidden = [name for name in missing if name in cpu["reported"]]
    reasons = [f"this CPU lacks {_join(absent)}"] if absent else []
    if hidden:
        reasons.append(f"this CPU has {_join(hidden)}, but {_registers_not_saved(cpu)}")
    return "; ".join(reasons)


def _registers_not_saved(cpu: Mapping[str, Any]) -> str:
    return f"the operating system or hypervisor does not enable its registers (XCR0 is {cpu['xcr0']:#x})"


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _tensor_facts(file: ModelFile, plan: ModelPlan, kernel_set: str, panel_rows: int) -> tuple[TensorFacts, ...]:
    return tuple(
        TensorFacts(
            name=tensor.name,
            format=tensor.format,
            shape=tensor.shape,
            kernel=_kernel_of(tensor, plan, kernel_set),
            file_bytes=tensor.nbytes,
            packed_bytes=_packed_bytes(tensor, panel_rows),
        )
        for tensor in file.tensors.values()
    )


def _kernel_of(tensor: TensorInfo, plan: ModelPlan, kernel_set: str) -> str:
    """What reads the tensor during a step."""
    if len(tensor.shape) == 1:
        return f"{kernel_set} row functions, fp32"
    arithmetic = "fp32 activations" if tensor.format in _FLOAT_FORMATS else "int8 activations"
    kernel = f"{kernel_set} matmul {tensor.format}, {arithmetic}"
    if tensor.name != plan.token_embedding:
        return kernel
    return f"row look-up; {kernel}" if plan.output.weight == tensor.name else "row look-up"


def _packed_bytes(tensor: TensorInfo, panel_rows: int) -> int:
    """Vectors are kept as fp32; a matrix keeps its blocks, with its rows filled up to whole panels."""
    if len(tensor.shape) == 1:
        return 4 * tensor.shape[0]
    rows, columns = tensor.shape[0], tensor.shape[-1]
    layout = FORMAT_BY_NAME[tensor.format]
    padded = -(-rows // panel_rows) * panel_rows
    return padded * (columns // layout.block_elements) * layout.block_bytes
