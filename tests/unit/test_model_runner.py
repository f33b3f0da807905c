"""The runner between scheduler and native model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from numerics.batch_driver import open_tiny
from tiny_models import TinyModel, tiny_tensors
from tokenmill import _native
from tokenmill.engine import self_test
from tokenmill.engine.check_request import check_request
from tokenmill.engine.model_runner import ModelRunner, sampler_config
from tokenmill.scheduling.batch_plan import BatchPlan, History, SequenceStep
from tokenmill.vocabulary.errors import KernelSetError
from tokenmill.vocabulary.generation import GenerationRequest, SamplingParams

POISON = 9
GREEDY = SamplingParams(temperature=0.0)


@pytest.fixture
def runner() -> ModelRunner:
    shape = TinyModel("llama", tied=False, embedding_scale=100.0, formats={"token_embd": "F32"})
    table = np.frombuffer(tiny_tensors(shape)["token_embd.weight"].data, "<f4").reshape(shape.vocab, -1).copy()
    table[POISON] = 3e38
    model = open_tiny(shape, _native.select_kernel_set(None), 1, {"token_embd.weight": table.tobytes()})
    model.allocate_kv(8)
    return ModelRunner(model)


def test_results_follow_the_plan(runner: ModelRunner) -> None:
    plan = BatchPlan(
        (
            SequenceStep(4, [1, 2, 3], 0, [0], None),
            SequenceStep(5, [1, 2, 3], 0, [1], GREEDY),
            SequenceStep(6, [1, POISON, 3], 0, [2], GREEDY),
            SequenceStep(7, [1, 2, 3], 0, [3], SamplingParams(temperature=0.0, logprobs=2)),
            SequenceStep(8, [1, 2, 3], 0, [4], SamplingParams(temperature=0.0, logprobs=0)),
        ),
        zero_pages=(0, 1, 2, 3, 4),
    )
    answer = runner.run(plan)
    more, plain, bad, two, none = answer.results
    assert [result.sequence_id for result in answer.results] == [4, 5, 6, 7, 8]
    assert (more.token_id, more.error) == (None, "")
    assert plain.token_id is not None
    assert plain.logprob is None
    assert bad.token_id is None
    assert "not finite" in bad.error
    assert two.token_id == plain.token_id == none.token_id
    assert two.top_logprobs[0].token_id == two.token_id
    assert two.top_logprobs[0].logprob == two.logprob == none.logprob
    assert none.top_logprobs == ()
    assert set(answer.phase_seconds) == {"matmul", "attention", "other", "sampling"}


def test_penalties_see_the_growing_history(runner: ModelRunner) -> None:
    """A frequency penalty that nothing outweighs makes every token new."""
    sampling = SamplingParams(temperature=0.0, frequency_penalty=1e6)
    tokens = [1, 2, 3]
    runner.run(BatchPlan((SequenceStep(1, tokens, 0, [0, 1, 2], None),), zero_pages=(0, 1, 2)))
    for _ in range(20):
        step = SequenceStep(1, tokens[-1:], len(tokens) - 1, [0, 1, 2], sampling, History(tokens, 3))
        token = runner.run(BatchPlan((step,))).results[0].token_id
        assert token is not None
        assert token not in tokens[3:]
        tokens.append(token)


def test_a_wrong_plan_is_an_error(runner: ModelRunner) -> None:
    with pytest.raises(ValueError, match="needs 2 pages"):
        runner.run(BatchPlan((SequenceStep(1, [1], 16, [0], None),)))


def test_the_gate_names_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert self_test.tested_kernel_set("reference") == "reference"
    with pytest.raises(KernelSetError, match="no_such_set"):
        self_test.tested_kernel_set("no_such_set")
    monkeypatch.setenv("TOKENMILL_TEST_BREAK_KERNEL", "rms_norm")
    with pytest.raises(KernelSetError, match="rms_norm"):
        self_test.tested_kernel_set(None)


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 5e-324},
        {"temperature": 1e6},
        {"top_k": 2**31 - 1},
        {"top_p": 0.0},
        {"top_p": 1e-60},
        {"min_p": 1.0},
        {"repetition_penalty": 1e-6},
        {"repetition_penalty": 1e6},
        {"frequency_penalty": -1e6, "presence_penalty": 1e6},
        {"seed": 2**64 - 1},
        {"logprobs": 20},
        {"logit_bias": {0: 1e6, 1: -1e6}},
    ],
    ids=str,
)
def test_what_the_engine_lets_through_native_code_takes(changed: dict[str, Any]) -> None:
    sampling = SamplingParams(**changed)
    check_request(GenerationRequest((1,), sampling), vocab_size=256)
    sampler_config(sampling)


def test_parameters_that_native_code_refuses_end_one_sequence(runner: ModelRunner) -> None:
    plan = BatchPlan(
        (
            SequenceStep(4, [1, 2, 3], 0, [0], GREEDY),
            SequenceStep(5, [1, 2, 3], 0, [1], SamplingParams(top_p=2.0)),
        ),
        zero_pages=(0, 1),
    )
    good, bad = runner.run(plan).results
    assert good.token_id is not None
    assert bad.token_id is None
    assert "top_p" in bad.error
