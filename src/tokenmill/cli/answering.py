"""One answer at the terminal: streamed as it comes, timed, and stopped cleanly by Ctrl-C."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tokenmill.cli.output import human_seconds, printable
from tokenmill.cli.progress import shown_progress
from tokenmill.engine.engine import Engine
from tokenmill.engine.options import EngineOptions
from tokenmill.engine.text_stream import TextStream, TokenText
from tokenmill.vocabulary.errors import RequestError, TokenmillError
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, TokenEvent, Usage
from tokenmill.weights.fetch import fetch

_SEED_BITS = 53  # a seed survives JSON readers that keep numbers as doubles


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. Times are the engine's own; `tokens_per_s` is the rate after the first token, None below two."""

    text: str
    finish_reason: FinishReason
    usage: Usage
    seed: int
    ttft_s: float | None
    tokens_per_s: float | None
    logprobs: tuple[TokenText, ...] = ()


@contextmanager
def loaded_engine(model: str, options: EngineOptions) -> Iterator[Engine]:
    """Fetches and loads a model with progress on stderr; closes the engine at the end."""
    with shown_progress() as progress:
        engine = Engine.load(fetch(model, progress), options, progress=progress)
    with engine:
        yield engine


def new_seed(seed: int | None) -> int:
    """The seed that was given, or a fresh one."""
    return secrets.randbits(_SEED_BITS) if seed is None else seed


def parse_logit_bias(items: list[str] | None) -> dict[int, float]:
    """TOKEN_ID=BIAS, as on the command line.

    Raises:
        RequestError: an item has another form.
    """
    biases: dict[int, float] = {}
    for item in items or ():
        token, _, bias = item.partition("=")
        try:
            biases[int(token)] = float(bias)
        except ValueError:
            raise RequestError(
                "is not a token id and a number", where=f"--logit-bias {item}", hint="write it like 50256=-100"
            ) from None
    return biases


def stream_answer(engine: Engine, request: GenerationRequest, write: Callable[[str], None], *, chat: bool) -> Answer:
    """Runs a request and hands its text to `write` piece by piece.

    `chat` says that the text is an answer of its own, not the continuation of the prompt's.
    Ctrl-C ends the answer: what came until then is returned with the finish reason CANCELLED.

    Raises:
        TokenmillError: the request is refused, or the engine fails.
    """
    generation = engine.submit(request)
    times: list[float] = []

    def note(event: TokenEvent) -> None:
        if event.token_id is not None:
            times.append(event.time_s)

    stream = TextStream(generation, engine.tokenizer, at_start=chat, on_event=note)
    text: list[str] = []
    tokens: list[TokenText] = []
    reason = FinishReason.CANCELLED
    try:
        for delta in stream:
            text.append(delta.text)
            tokens.extend(delta.tokens)
            write(delta.text)
            if delta.finish_reason is FinishReason.ERROR:
                raise TokenmillError(f"the generation failed: {delta.error}")
            reason = delta.finish_reason or reason
    except KeyboardInterrupt:
        pass  # the caller sees CANCELLED
    finally:
        stream.cancel()
    seconds = times[-1] - times[0] if len(times) > 1 else 0.0
    return Answer(
        text="".join(text),
        finish_reason=reason,
        usage=stream.usage,
        seed=request.sampling.seed,
        ttft_s=times[0] - generation.submitted_s if times else None,
        tokens_per_s=(len(times) - 1) / seconds if seconds > 0 else None,
        logprobs=tuple(tokens),
    )


def describe_speed(answer: Answer) -> str:
    """One line: token counts, time to first token, rate."""
    parts = [f"{answer.usage.prompt_tokens} + {answer.usage.completion_tokens} tokens"]
    if answer.ttft_s is not None:
        parts.append(f"first after {human_seconds(answer.ttft_s)}")
    if answer.tokens_per_s is not None:
        parts.append(f"then {answer.tokens_per_s:.1f} tokens/s")
    if answer.finish_reason is not FinishReason.STOP:
        reasons = {FinishReason.LENGTH: "cut at the limit of tokens", FinishReason.CANCELLED: "stopped"}
        parts.append(reasons.get(answer.finish_reason, str(answer.finish_reason)))
    return ", ".join(parts)


def write_text(text: str) -> None:
    """Text to stdout at once; on a terminal it may not hold control sequences."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def to_document(answer: Answer) -> dict[str, Any]:
    """The answer as JSON values."""
    document: dict[str, Any] = {
        "text": answer.text,
        "finish_reason": answer.finish_reason.value,
        "prompt_tokens": answer.usage.prompt_tokens,
        "output_tokens": answer.usage.completion_tokens,
        "ttft_s": answer.ttft_s,
        "tokens_per_s": answer.tokens_per_s,
        "seed": answer.seed,
    }
    if answer.logprobs:
        document["logprobs"] = [_logprob(token) for token in answer.logprobs]
    return document


def _logprob(token: TokenText) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "token_id": token.token_id,
        "text": token.data.decode("utf-8", errors="replace"),
        "logprob": token.logprob,
    }
    if token.top:
        entry["top"] = [_logprob(other) for other in token.top]
    return entry
