"""An engine without a model: a real scheduler, loop, tokenizer and template around the scripted runner."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scripted_runner import VOCAB, ScriptedRunner, expected_output, next_token
from tokenmill.engine.engine import Engine
from tokenmill.engine.options import ModelInfo
from tokenmill.scheduling.batch_plan import SequenceStep
from tokenmill.scheduling.limits import SchedulerLimits
from tokenmill.text.chat_template import ChatTemplate
from tokenmill.text.tokenizer import Tokenizer

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _byte_characters() -> list[str]:
    """The 256 bytes as byte-level BPE writes them, the printable ones first: the runner's tokens are all visible."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return [*map(chr, printable), *(chr(256 + i) for i in range(len(rest)))]


def scripted_tokenizer() -> Tokenizer:
    """One token a byte, and the control tokens of ChatML; <|im_end|> stops."""
    tokens = (*_byte_characters(), "<|im_start|>", "<|im_end|>")
    return Tokenizer.from_metadata(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": (1,) * 256 + (3, 3),
            "tokenizer.ggml.merges": (),
            "tokenizer.ggml.eos_token_id": 257,
            "tokenizer.ggml.add_bos_token": False,
        }
    )


def scripted_engine(
    *,
    context_length: int = 1024,
    max_sequences: int = 4,
    queue_limit: int = 4,
    step_s: float = 0.0,
    fail_when: Callable[[SequenceStep], str] | None = None,
    choose: Callable[[Sequence[int], int], int] = next_token,
) -> Engine:
    """Ready at once. Its pages hold max_sequences full contexts."""
    tokenizer = scripted_tokenizer()
    pages = max_sequences * -(-context_length // 16)
    info = ModelInfo(
        name="scripted",
        architecture="none",
        vocab_size=tokenizer.vocab_size,
        context_length=context_length,
        trained_context_length=context_length,
        kernel_set="scripted",
        threads=1,
        pinned_cpus=(),
        max_sequences=max_sequences,
        queue_limit=queue_limit,
        file_bytes=0,
        weight_bytes=0,
        kv_pages=pages,
        kv_bytes=0,
        huge_page_bytes=0,
        load_s=0.0,
    )
    limits = SchedulerLimits(context_length, pages, max_sequences, max_sequences + 64, queue_limit)
    runner = ScriptedRunner(pages, step_s=step_s, fail_when=fail_when, choose=choose)
    return Engine(info, runner, limits, tokenizer, ChatTemplate(TEMPLATE))


def expected_text(engine: Engine, prompt: Sequence[int], count: int, seed: int = 0) -> str:
    """What a sequence that runs alone says."""
    return engine.tokenizer.decode(expected_output(prompt, count, seed))


__all__ = ["VOCAB", "expected_text", "scripted_engine", "scripted_tokenizer"]
