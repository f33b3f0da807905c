from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tokenmill.cli.answering import Answer, describe_speed, parse_logit_bias, stream_answer, to_document
from tokenmill.cli.chat import ChatOptions, Conversation, _answer
from tokenmill.engine.engine import Engine
from tokenmill.engine.generation import Generation
from tokenmill.engine.text_stream import TokenText
from tokenmill.vocabulary.errors import RequestError, TokenmillError
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, SamplingParams, TokenEvent, Usage


class ScriptedEngine:
    """Answers every request with the same events; a token is the character of its number, a prompt token a word."""

    def __init__(self, events: Sequence[TokenEvent] = (), context_length: int = 40) -> None:
        self.info = SimpleNamespace(name="scripted", context_length=context_length)
        self.tokenizer = SimpleNamespace(token_bytes=lambda token: chr(token).encode(), add_space_prefix=False)
        self.events = events
        self.requests: list[GenerationRequest] = []
        self.cancelled = 0

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return [0 for message in messages for _ in message["content"].split()]

    def submit(self, request: GenerationRequest) -> Generation:
        self.requests.append(request)
        generation = Generation(request, 10.0, self._cancel)
        generation.deliver(self.events)
        return generation

    def _cancel(self) -> None:
        self.cancelled += 1


def as_engine(engine: ScriptedEngine) -> Engine:
    return cast("Engine", engine)


def events(text: str, reason: FinishReason = FinishReason.LENGTH, error: str = "") -> list[TokenEvent]:
    spoken = [TokenEvent(ord(c), 10.5 + 0.25 * i) for i, c in enumerate(text)]
    return [*spoken, TokenEvent(None, 20.0, finish_reason=reason, error=error)]


REQUEST = GenerationRequest(prompt_tokens=(1, 2, 3), sampling=SamplingParams(seed=5))


def test_an_answer_is_written_as_it_comes_and_timed() -> None:
    pieces: list[str] = []
    answer = stream_answer(as_engine(ScriptedEngine(events("abcde"))), REQUEST, pieces.append, chat=True)
    assert "".join(pieces) == answer.text == "abcde"
    assert len(pieces) >= 5
    assert answer.finish_reason is FinishReason.LENGTH
    assert answer.usage == Usage(prompt_tokens=3, completion_tokens=5)
    assert answer.ttft_s == 0.5
    assert answer.tokens_per_s == 4.0
    assert answer.seed == 5


def test_ctrl_c_keeps_what_came_and_ends_the_generation() -> None:
    engine = ScriptedEngine(events("abcde"))
    seen: list[str] = []

    def write(text: str) -> None:
        seen.append(text)
        if len(seen) == 2:
            raise KeyboardInterrupt

    answer = stream_answer(as_engine(engine), REQUEST, write, chat=True)
    assert answer.text == "ab"
    assert answer.finish_reason is FinishReason.CANCELLED
    assert engine.cancelled >= 1


def test_an_engine_that_fails_is_an_error() -> None:
    engine = ScriptedEngine(events("a", FinishReason.ERROR, "a value is not finite"))
    with pytest.raises(TokenmillError, match="not finite"):
        stream_answer(as_engine(engine), REQUEST, lambda _: None, chat=False)


def test_no_token_has_no_times() -> None:
    answer = stream_answer(
        as_engine(ScriptedEngine(events("", FinishReason.STOP))), REQUEST, lambda _: None, chat=False
    )
    assert (answer.ttft_s, answer.tokens_per_s) == (None, None)
    assert describe_speed(answer) == "3 + 0 tokens"


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        (FinishReason.STOP, "20.0 tokens/s"),
        (FinishReason.LENGTH, "cut at the limit of tokens"),
        (FinishReason.CANCELLED, "stopped"),
    ],
)
def test_speed_in_words(reason: FinishReason, end: str) -> None:
    line = describe_speed(Answer("x", reason, Usage(7, 9), 1, 0.05, 20.0))
    assert line.startswith("7 + 9 tokens, first after 50.0 ms, then 20.0 tokens/s")
    assert line.endswith(end)


def test_logprobs_in_the_document() -> None:
    token = TokenText(5, b"\xff", -0.5, (TokenText(5, b"\xff", -0.5), TokenText(6, b"b", -1.5)))
    document = to_document(Answer("x", FinishReason.STOP, Usage(1, 1), 1, None, None, (token,)))
    assert document["logprobs"][0]["text"] == "\ufffd"
    assert [entry["token_id"] for entry in document["logprobs"][0]["top"]] == [5, 6]
    json.dumps(document)


def test_logit_bias() -> None:
    assert parse_logit_bias(["5=-100", "7=1.5"]) == {5: -100.0, 7: 1.5}
    assert parse_logit_bias(None) == {}


@pytest.mark.parametrize("item", ["5", "=1", "a=1", "5=x", ""])
def test_a_malformed_logit_bias_is_misuse(item: str) -> None:
    with pytest.raises(RequestError, match="token id and a number"):
        parse_logit_bias([item])


def test_a_conversation_remembers() -> None:
    talk = Conversation(as_engine(ScriptedEngine()), "be brief", None)
    assert talk.ask("one two") == ([0] * 4, 0)
    talk.answered("three")
    assert talk.ask("four") == ([0] * 6, 0)


def test_a_full_context_forgets_whole_turns_from_the_front() -> None:
    talk = Conversation(as_engine(ScriptedEngine(context_length=40)), "system", None)
    for _ in range(2):
        talk.ask("a " * 10)
        talk.answered("b")
    tokens, forgotten = talk.ask("c " * 10)
    assert forgotten == 2
    assert len(tokens) == 1 + 11 + 10


def test_a_turn_that_cannot_fit_is_refused_and_forgotten() -> None:
    talk = Conversation(as_engine(ScriptedEngine(context_length=40)), None, None)
    with pytest.raises(RequestError, match="50 tokens; the context has 40"):
        talk.ask("a " * 50)
    assert talk.ask("hello")[0] == [0]


def test_each_answer_draws_a_seed_of_its_own_unless_one_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    def seeds(seed: int | None) -> list[int]:
        engine = ScriptedEngine(events("ok", FinishReason.STOP))
        talk = Conversation(as_engine(engine), None, None)
        chat = ChatOptions(None, SamplingParams(temperature=0.5), seed, 16)
        for _ in range(3):
            _answer(as_engine(engine), talk, chat, "hi", as_json=True)
        assert all(request.max_tokens == 16 for request in engine.requests)
        return [request.sampling.seed for request in engine.requests]

    assert seeds(9) == [9, 9, 9]
    assert len(set(seeds(None))) == 3
    lines: list[Any] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == ["ok"] * 6
