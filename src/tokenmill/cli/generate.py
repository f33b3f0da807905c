"""What `tokenmill generate` does: a prompt to token ids, an answer to the terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from tokenmill.cli.answering import describe_speed, loaded_engine, stream_answer, to_document, write_text
from tokenmill.cli.output import print_json
from tokenmill.engine.engine import Engine
from tokenmill.engine.options import EngineOptions
from tokenmill.vocabulary.errors import RequestError
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, SamplingParams


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt and how to answer it. `prompt` None reads standard input; `chat` None asks as the model prefers."""

    prompt: str | None
    system: str | None
    chat: bool | None
    sampling: SamplingParams
    max_tokens: int | None
    stop_strings: tuple[str, ...]
    ignore_eos: bool


def run(model: str, ask: Ask, options: EngineOptions, *, as_json: bool) -> None:
    """Loads the model and answers.

    Raises:
        TokenmillError: the model cannot be had, or the request is refused.
        KeyboardInterrupt: after what came until then has been shown.
    """
    prompt = _read_prompt(ask)
    with loaded_engine(model, options) as engine:
        chat = engine.chat_template is not None if ask.chat is None else ask.chat
        request = GenerationRequest(
            prompt_tokens=tuple(_encode(engine, ask, prompt, chat=chat)),
            sampling=ask.sampling,
            max_tokens=ask.max_tokens,
            stop_strings=ask.stop_strings,
            ignore_eos=ask.ignore_eos,
        )
        answer = stream_answer(engine, request, (lambda _: None) if as_json else write_text, chat=chat)
        info = engine.info
    if as_json:
        print_json({"model": info.name, "kernel_set": info.kernel_set, "threads": info.threads} | to_document(answer))
    else:
        sys.stdout.write("\n")
        sys.stdout.flush()
        sys.stderr.write(f"[{describe_speed(answer)}; {info.kernel_set}, {info.threads} threads]\n")
    if answer.finish_reason is FinishReason.CANCELLED:
        raise KeyboardInterrupt


def _read_prompt(ask: Ask) -> str:
    if ask.prompt is not None:
        return ask.prompt
    if sys.stdin.isatty():
        raise RequestError("there is no prompt", hint='give one with -p "...", or pipe it in')
    return sys.stdin.read()


def _encode(engine: Engine, ask: Ask, prompt: str, *, chat: bool) -> list[int]:
    if not chat:
        if ask.system is not None:
            raise RequestError("--system needs a chat", hint="leave out --raw, or take a model with a chat template")
        return engine.tokenizer.encode(prompt, add_special=True, parse_special=True)
    system = [] if ask.system is None else [{"role": "system", "content": ask.system}]
    return engine.encode_chat([*system, {"role": "user", "content": prompt}])
