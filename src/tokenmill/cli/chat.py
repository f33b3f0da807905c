"""What `tokenmill chat` does: a conversation that remembers, within the model's context."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tokenmill.cli.answering import describe_speed, loaded_engine, new_seed, stream_answer, to_document, write_text
from tokenmill.engine.engine import Engine
from tokenmill.engine.options import EngineOptions
from tokenmill.vocabulary.errors import RequestError
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, SamplingParams

_HELP = "/exit ends, /clear starts over, Ctrl-C stops an answer."
_SHARE_FOR_ANSWER = 4  # at least a quarter of the context is kept free for the answer
Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How to answer each turn. `seed` None draws a new one for every answer."""

    system: str | None
    sampling: SamplingParams
    seed: int | None
    max_tokens: int | None


class Conversation:
    """The turns so far, cut at the front when they no longer fit."""

    def __init__(self, engine: Engine, system: str | None, max_tokens: int | None) -> None:
        self._engine = engine
        self._system = [] if system is None else [{"role": "system", "content": system}]
        self._turns: list[Message] = []
        most = engine.info.context_length // _SHARE_FOR_ANSWER
        self._room = most if max_tokens is None else min(most, max_tokens)

    def clear(self) -> None:
        """Forgets everything but the system message."""
        self._turns.clear()

    def ask(self, text: str) -> tuple[list[int], int]:
        """Adds a user turn; returns the prompt's token ids and how many old turns were forgotten to make room.

        Raises:
            RequestError: this turn alone does not fit the context; it is not added.
        """
        self._turns.append({"role": "user", "content": text})
        forgotten = 0
        while True:
            tokens = self._engine.encode_chat(self._system + self._turns)
            if len(tokens) + self._room <= self._engine.info.context_length:
                return tokens, forgotten
            if len(self._turns) <= 1:
                self._turns.pop()
                limit = self._engine.info.context_length
                raise RequestError(f"that is {len(tokens)} tokens; the context has {limit}", hint="say it shorter")
            forgotten += 2
            del self._turns[:2]  # a question with its answer, so that roles keep alternating

    def answered(self, text: str) -> None:
        """Adds the model's turn, also one that was stopped."""
        self._turns.append({"role": "assistant", "content": text})


def run(model: str, chat: ChatOptions, options: EngineOptions, *, as_json: bool) -> None:
    """Loads the model and talks until /exit or the end of the input.

    Raises:
        TokenmillError: the model cannot be had, or has no chat template.
        KeyboardInterrupt: Ctrl-C while no answer was running.
    """
    with loaded_engine(model, options) as engine:
        conversation = Conversation(engine, chat.system, chat.max_tokens)
        engine.encode_chat([{"role": "user", "content": ""}])  # no chat template: say so before the first question
        if not as_json:
            sys.stderr.write(f"{engine.info.name}: {engine.info.context_length} tokens of context. {_HELP}\n")
        for text in _inputs(prompted=not as_json and sys.stdin.isatty()):
            if text in ("/exit", "/quit"):
                return
            if text == "/clear":
                conversation.clear()
            elif text.startswith("/"):
                sys.stderr.write(f"{_HELP}\n")
            elif text:
                _answer(engine, conversation, chat, text, as_json=as_json)


def _inputs(*, prompted: bool) -> Iterator[str]:
    """Lines from the user; on a terminal with a prompt and line editing."""
    if not prompted:
        for line in sys.stdin:
            yield line.strip()
        return
    import readline  # noqa: F401 - importing it gives input() editing and history

    while True:
        try:
            yield input("> ").strip()
        except EOFError:
            sys.stdout.write("\n")
            return


def _answer(engine: Engine, conversation: Conversation, chat: ChatOptions, text: str, *, as_json: bool) -> None:
    try:
        tokens, forgotten = conversation.ask(text)
    except RequestError as error:
        sys.stderr.write(f"{error}\n")
        return
    if forgotten:
        sys.stderr.write(f"[the context is full: the oldest {forgotten} messages are forgotten]\n")
    sampling = replace(chat.sampling, seed=new_seed(chat.seed))
    request = GenerationRequest(prompt_tokens=tuple(tokens), sampling=sampling, max_tokens=chat.max_tokens)
    answer = stream_answer(engine, request, (lambda _: None) if as_json else write_text, chat=True)
    conversation.answered(answer.text)
    if as_json:
        sys.stdout.write(json.dumps(to_document(answer), ensure_ascii=False) + "\n")
        sys.stdout.flush()
        return
    end = "" if answer.finish_reason is FinishReason.STOP else " …"
    sys.stdout.write(f"{end}\n")
    sys.stdout.flush()
    sys.stderr.write(f"[{describe_speed(answer)}]\n")
