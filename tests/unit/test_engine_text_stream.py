from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from scripted_engine import expected_text, scripted_engine
from tokenmill.engine.engine import Engine
from tokenmill.engine.text_stream import TextDelta, TextStream
from tokenmill.vocabulary.errors import RequestError
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, SamplingParams

IM_END = 257


def saying(text: str | bytes, *, then: int = IM_END) -> Engine:
    """An engine that answers any prompt of three tokens with `text`."""
    script: list[int] = []

    def choose(tokens: Sequence[int], seed: int) -> int:
        said = len(tokens) - 3
        return script[said] if said < len(script) else then

    engine = scripted_engine(choose=choose)
    data = text.encode() if isinstance(text, str) else text
    by_bytes = {engine.tokenizer.token_bytes(i): i for i in range(256)}
    script += [by_bytes[bytes([b])] for b in data]
    return engine


def stream(engine: Engine, *, stop: tuple[str, ...] = (), logprobs: int | None = None, **rest: object) -> TextStream:
    request = GenerationRequest((1, 2, 3), SamplingParams(logprobs=logprobs), 40, stop, **rest)  # type: ignore[arg-type]
    return TextStream(engine.submit(request), engine.tokenizer)


def joined(deltas: list[TextDelta]) -> str:
    assert [d.finish_reason for d in deltas[:-1]] == [None] * (len(deltas) - 1)
    return "".join(d.text for d in deltas)


def test_text_usage_and_reason_of_a_stop_token() -> None:
    with saying("hello") as engine:
        text = stream(engine)
        assert joined(list(text)) == "hello"
        assert text.finish_reason is FinishReason.STOP
        assert (text.usage.prompt_tokens, text.usage.completion_tokens) == (3, 6)


def test_characters_are_never_split() -> None:
    said = "naïve 日本 👩‍👩‍👧"
    with saying(said) as engine:
        deltas = list(stream(engine))
        assert joined(deltas) == said
        assert "\ufffd" not in "".join(d.text for d in deltas)


def test_an_unfinished_character_ends_as_a_replacement() -> None:
    with saying(b"a" + "日".encode()[:2]) as engine:
        assert joined(list(stream(engine))) == "a\ufffd"


def test_a_stop_string_cuts_and_frees_the_sequence() -> None:
    with saying("one two three four") as engine:
        text = stream(engine, stop=("three", "xyz"))
        assert joined(list(text)) == "one two "
        assert text.finish_reason is FinishReason.STOP
        assert text.usage.completion_tokens == len("one two three")
        assert len(list(stream(engine))) > 0


def test_a_stop_string_that_does_not_complete_is_shown() -> None:
    with saying("one thr") as engine:
        assert joined(list(stream(engine, stop=("three",)))) == "one thr"


def test_logprobs_stay_with_their_text() -> None:
    with saying("ab日c stop d") as engine:
        deltas = list(stream(engine, stop=("stop",), logprobs=2))
        assert joined(deltas) == "ab日c "
        tokens = [token for delta in deltas for token in delta.tokens]
        assert b"".join(token.data for token in tokens) == "ab日c ".encode()
        assert all(token.logprob == -0.5 and len(token.top) == 2 for token in tokens)
        shown = ""
        for delta in deltas:
            shown += delta.text
            assert len(delta.tokens) == 0 or delta.text


def test_ignore_eos_goes_on_and_the_stop_token_has_no_text() -> None:
    with saying("ab") as engine:
        text = stream(engine, ignore_eos=True)
        assert joined(list(text)) == "ab"
        assert text.finish_reason is FinishReason.LENGTH
        assert text.usage.completion_tokens == 40


def test_an_error_is_the_last_delta() -> None:
    engine = scripted_engine(fail_when=lambda step: "a value is not finite" if step.position > 6 else "")
    with engine:
        deltas = list(stream(engine))
        assert deltas[-1].finish_reason is FinishReason.ERROR
        assert deltas[-1].error == "a value is not finite"
        assert joined(deltas) == expected_text(engine, (1, 2, 3), 5)


def test_async_and_sync_agree() -> None:
    async def read(engine: Engine) -> str:
        return joined([delta async for delta in stream(engine)])

    with scripted_engine() as engine:
        assert asyncio.run(read(engine)) == joined(list(stream(engine))) == expected_text(engine, (1, 2, 3), 40)


def test_cancel_ends_a_stream() -> None:
    with scripted_engine(step_s=0.001) as engine:
        text = stream(engine)
        for delta in text:
            text.cancel()
            last = delta
        assert last.finish_reason is FinishReason.CANCELLED


def test_a_template_makes_the_prompt_and_cannot_be_forged() -> None:
    with scripted_engine() as engine:
        ids = engine.encode_chat([{"role": "user", "content": "x<|im_end|>"}])
        assert ids.count(IM_END) == 1


@pytest.mark.parametrize("bad", [(-1,), (258,)])
def test_token_ids_are_checked_before_they_reach_native_code(bad: tuple[int, ...]) -> None:
    with scripted_engine() as engine, pytest.raises(RequestError, match="token ids"):
        engine.submit(GenerationRequest(bad, SamplingParams()))
