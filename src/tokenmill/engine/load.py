"""From a file's path to the parts of an engine. What can be refused is refused before anything large is read."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from tokenmill.engine.kv_budget import kv_budget
from tokenmill.engine.memory_use import check_lock_limit, describe_memory
from tokenmill.engine.model_runner import ModelRunner, allocate_kv, lock_memory, memory_use, open_model
from tokenmill.engine.options import EngineOptions, ModelInfo
from tokenmill.engine.placement import Pinning, place
from tokenmill.engine.self_test import tested_kernel_set
from tokenmill.host import read_host_facts
from tokenmill.models import plan_model
from tokenmill.scheduling.batch_plan import PAGE_TOKENS
from tokenmill.scheduling.limits import SchedulerLimits
from tokenmill.text.chat_template import ChatTemplate
from tokenmill.text.tokenizer import Tokenizer
from tokenmill.vocabulary.errors import CapacityError, ModelFileError, RequestError, TemplateError
from tokenmill.vocabulary.host_facts import HostFacts
from tokenmill.vocabulary.layer_plan import ModelPlan
from tokenmill.vocabulary.model_file import ModelFile
from tokenmill.weights.pack import load_weights, plan_tensor_names
from tokenmill.weights.progress import Progress, SilentProgress
from tokenmill.weights.read_gguf import read_gguf

logger = logging.getLogger(__name__)

KERNELS_VARIABLE = "TOKENMILL_KERNELS"


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What an Engine is made of."""

    info: ModelInfo
    runner: ModelRunner
    limits: SchedulerLimits
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None


def load_parts(path: Path, options: EngineOptions, progress: Progress | None = None) -> EngineParts:
    """Reads, checks and loads a model. Errors as in Engine.load."""
    begin = time.monotonic()
    _check_options(options)
    model_file = read_gguf(path)
    plan = plan_model(model_file)
    tokenizer = _tokenizer(model_file, plan)
    facts = read_host_facts()
    weight_bytes = _packed_weight_bytes(model_file, plan)
    placement = place(facts, options, weight_bytes)
    _check_weights_fit(model_file, facts)
    if options.lock_memory:
        check_lock_limit(facts.memory, weight_bytes * len(placement.weight_nodes))
    kernel_set = tested_kernel_set(os.environ.get(KERNELS_VARIABLE) or options.kernel_set)

    model = open_model(plan, kernel_set=kernel_set, placement=placement, weight_bytes=weight_bytes)
    load_weights(model, model_file, plan, progress or SilentProgress())
    budget = kv_budget(
        bytes_per_page=model.kv_bytes_per_page,
        free_bytes=read_host_facts().memory.available_bytes,
        trained_context=plan.context_length,
        asked_context=options.context_length,
        asked_bytes=options.kv_bytes,
        max_sequences=options.max_sequences,
    )
    locked = model.weight_bytes + budget.pages * model.kv_bytes_per_page if options.lock_memory else 0
    check_lock_limit(facts.memory, locked)
    kv_bytes = allocate_kv(model, budget.pages)
    if options.lock_memory:
        locked = lock_memory(model, locked)
    weight_memory, kv_memory = memory_use(model.weight_memory()), memory_use(model.kv_memory())
    logger.info(
        "Memory: %s",
        describe_memory(
            model.weight_bytes,
            weight_memory,
            kv_bytes,
            kv_memory,
            mode=facts.memory.transparent_huge_pages,
            locked_bytes=locked,
        ),
    )
    info = ModelInfo(
        name=path.name.removesuffix(".gguf"),
        architecture=plan.architecture,
        vocab_size=plan.vocab_size,
        context_length=budget.context_length,
        trained_context_length=plan.context_length,
        kernel_set=kernel_set,
        threads=placement.threads,
        pinned_cpus=tuple(own[0] for own in placement.thread_cpus) if placement.pinning is Pinning.CORE else (),
        max_sequences=options.max_sequences,
        queue_limit=options.queue_limit,
        file_bytes=model_file.file_bytes,
        weight_bytes=model.weight_bytes,
        kv_pages=budget.pages,
        kv_bytes=kv_bytes,
        huge_page_bytes=sum(use.reserved_bytes + use.transparent_bytes for use in (weight_memory, kv_memory)),
        load_s=time.monotonic() - begin,
        placement=placement,
        weight_memory=weight_memory,
        kv_memory=kv_memory,
        locked_bytes=locked,
    )
    limits = SchedulerLimits(
        context_length=budget.context_length,
        page_count=budget.pages,
        max_sequences=options.max_sequences,
        step_tokens=options.prefill_tokens + options.max_sequences,
        queue_limit=options.queue_limit,
        itl_target_s=options.itl_target_s,
        kv_bytes_per_token=model.kv_bytes_per_page // PAGE_TOKENS,
        cached_pages=None if options.prefix_cache else 0,
    )
    return EngineParts(info, ModelRunner(model), limits, tokenizer, _chat_template(model_file))


def _check_options(options: EngineOptions) -> None:
    least = {"threads": 1, "max_sequences": 1, "prefill_tokens": 1, "queue_limit": 0, "kv_bytes": 1}
    for name, low in least.items():
        value = getattr(options, name)
        if value is not None and value < low:
            raise RequestError(f"{name} is {value}; it must be at least {low}", parameter=name)
    if options.itl_target_s is not None and not options.itl_target_s > 0:
        raise RequestError(f"itl_target_s is {options.itl_target_s}; it must be above 0", parameter="itl_target_s")


def _tokenizer(model_file: ModelFile, plan: ModelPlan) -> Tokenizer:
    tokenizer = Tokenizer.from_metadata(model_file.metadata)
    if tokenizer.vocab_size != plan.vocab_size:
        raise ModelFileError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the embedding {plan.vocab_size}",
            where=str(model_file.path),
        )
    return tokenizer


def _packed_weight_bytes(model_file: ModelFile, plan: ModelPlan) -> int:
    """What one copy of the weights will take at most: packing adds up to two per cent to the file's bytes."""
    used = (model_file.tensors[name].nbytes for name in set(plan_tensor_names(plan)) if name in model_file.tensors)
    return sum(used) * 102 // 100


def _check_weights_fit(model_file: ModelFile, facts: HostFacts) -> None:
    """Better a refusal now than the kernel's, half-way through the file."""
    free = facts.memory.available_bytes + facts.memory.reserved_free_bytes
    if model_file.file_bytes > free:
        raise CapacityError(
            f"the weights need about {model_file.file_bytes:,} bytes, but {free:,} are free",
            where=str(model_file.path),
            hint="use a smaller model or a smaller quantization, or give the container more memory",
        )


def _chat_template(model_file: ModelFile) -> ChatTemplate | None:
    """The template; a broken one is told now and refuses chats later, while completions work."""
    template = ChatTemplate.from_metadata(model_file.metadata)
    if template is not None:
        try:
            template.check()
        except TemplateError as error:
            logger.warning("The chat template of this model cannot be used: %s", error)
    return template
