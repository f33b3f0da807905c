"""Whatever a client sends, the answer is a request that the engine takes, or a 400 that says what is wrong."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenmill.engine.check_request import check_request
from tokenmill.server.protocol import ChatRequest, CompletionRequest, GenerationFields, parse
from tokenmill.vocabulary.errors import RequestError

VOCAB = 300

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([0, 1, -1, 0.5, 2, "auto", "none", "user", "text"])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
good_messages = st.just([{"role": "user", "content": "hello"}])
good = {
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0, 1),
    "top_k": st.integers(-1, 100),
    "min_p": st.floats(0, 1),
    "repetition_penalty": st.floats(0.1, 2),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "logit_bias": st.dictionaries(st.integers(0, 400).map(str), st.floats(-100, 100), max_size=3),
    "seed": st.integers(-(2**63), 2**64 - 1),
    "n": st.integers(1, 20),
    "max_tokens": st.integers(1, 10**9),
    "stop": st.text(max_size=3) | st.lists(st.text(max_size=3), max_size=4),
    "stream": st.booleans(),
    "ignore_eos": st.booleans(),
}


def bodies(kind: type[GenerationFields], required: dict[str, st.SearchStrategy[object]]) -> st.SearchStrategy[object]:
    fields = {name: good.get(name, values) | values for name in kind.model_fields}
    fields |= {name: strategy | values for name, strategy in required.items()}
    mostly_good = st.fixed_dictionaries(required, optional=good)
    anything = st.fixed_dictionaries({}, optional={**fields, "not_a_field": values})
    return mostly_good | anything | values


def check(kind: type[GenerationFields], body: bytes) -> None:
    with contextlib.suppress(RequestError):
        for request in parse(kind, body).generation_requests([[1, 2], [3]]):
            check_request(request, VOCAB)
            assert request.max_tokens is None or request.max_tokens >= 1


@settings(max_examples=300, deadline=None)
@given(bodies(ChatRequest, {"messages": good_messages}))
def test_chat_bodies(body: object) -> None:
    check(ChatRequest, json.dumps(body).encode())


@settings(max_examples=300, deadline=None)
@given(bodies(CompletionRequest, {"prompt": st.text(max_size=5) | st.lists(st.integers(0, 400), max_size=3)}))
def test_completion_bodies(body: object) -> None:
    check(CompletionRequest, json.dumps(body).encode())


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
@example(b'{"messages": [{"role": "user", "content": "\\ud800"}]}')
@example(b"[" * 10_000)
@example(b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}")
@example(b'{"messages": [{"role": "user", "content": "x"}], "seed": ' + b"9" * 5000 + b"}")
@example(b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}')
@example(b'{"messages": [{"role": "user", "content": "x"}], "messages": 1}')
def test_any_bytes(body: bytes) -> None:
    check(ChatRequest, body)


@pytest.mark.parametrize("kind", [ChatRequest, CompletionRequest])
def test_every_refused_field_exists_and_its_absence_is_neutral(kind: type[GenerationFields]) -> None:
    for name, neutral in kind.unsupported.items():
        assert kind.model_fields[name].default is None
        assert None in neutral
