"""Refuses a request that native code could not carry out: past this point a bad value would be an engine failure."""

from __future__ import annotations

import math

from tokenmill.vocabulary.errors import RequestError
from tokenmill.vocabulary.generation import GenerationRequest, SamplingParams

MAX_LOGPROBS = 20
MAX_PRIORITY = 100
_MAX_SEED = 2**64 - 1


def check_request(request: GenerationRequest, vocab_size: int) -> None:
    """Checks token ids, service and sampling parameters (lengths are the scheduler's business).

    Raises:
        RequestError: names the parameter, the value seen and the range wanted.
    """
    prompt = request.prompt_tokens
    if prompt and not (min(prompt) >= 0 and max(prompt) < vocab_size):
        raise RequestError(f"the prompt has token ids outside 0…{vocab_size - 1}", parameter="prompt")
    if any(not stop for stop in request.stop_strings):
        raise RequestError("a stop string is empty", parameter="stop")
    _in_range("priority", request.priority, -MAX_PRIORITY, MAX_PRIORITY)
    if request.max_tokens_per_s is not None:
        _in_range("max_tokens_per_s", request.max_tokens_per_s, 0.01, 1e6)
    if request.first_token_within_s is not None:
        _in_range("first_token_within_s", request.first_token_within_s, 0.0, 1e6)
    _check_sampling(request.sampling, vocab_size)


def _check_sampling(s: SamplingParams, vocab_size: int) -> None:
    _in_range("temperature", s.temperature, 0.0, 1e6)
    _in_range("top_k", s.top_k, 0, 2**31 - 1)
    _in_range("top_p", s.top_p, 0.0, 1.0)
    _in_range("min_p", s.min_p, 0.0, 1.0)
    _in_range("repetition_penalty", s.repetition_penalty, 1e-6, 1e6)
    _in_range("presence_penalty", s.presence_penalty, -1e6, 1e6)
    _in_range("frequency_penalty", s.frequency_penalty, -1e6, 1e6)
    _in_range("seed", s.seed, 0, _MAX_SEED)
    if s.logprobs is not None:
        _in_range("logprobs", s.logprobs, 0, MAX_LOGPROBS)
    for token_id, bias in s.logit_bias.items():
        if not 0 <= token_id < vocab_size:
            raise RequestError(f"logit_bias names token {token_id}, outside 0…{vocab_size - 1}", parameter="logit_bias")
        _in_range("logit_bias", bias, -1e6, 1e6)


def _in_range(name: str, value: float, low: float, high: float) -> None:
    if math.isnan(value) or not low <= value <= high:
        raise RequestError(f"{name} is {value}; it must be from {low:g} to {high:g}", parameter=name)
