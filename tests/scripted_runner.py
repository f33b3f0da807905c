"""A runner without a model: the next token is a fixed function of all tokens before it, as with a real model.

It keeps its own KV "pages", holding the tokens themselves, and checks on every step that the pages a plan names hold
exactly the prefix that the plan claims. A scheduler that loses a page, shares one that is not full or forgets to zero
one is caught here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tokenmill.scheduling.batch_plan import PAGE_TOKENS, BatchPlan, SequenceResult, SequenceStep, StepResults
from tokenmill.vocabulary.generation import TokenLogprob

VOCAB = 97


def next_token(tokens: Sequence[int], seed: int = 0) -> int:
    """What "the model" says after `tokens`."""
    value = 17 + seed
    for token in tokens:
        value = (value * 31 + token + 7) % 1_000_003
    return value % VOCAB


def expected_output(prompt: Sequence[int], count: int, seed: int = 0) -> list[int]:
    """The tokens of a sequence that runs alone."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens, seed))
    return tokens[len(prompt) :]


class ScriptedRunner:
    """Answers plans. `fail_when` names an error for a step, or raises; `step_s` makes a step last."""

    def __init__(
        self,
        page_count: int,
        *,
        step_s: float = 0.0,
        fail_when: Callable[[SequenceStep], str] | None = None,
        choose: Callable[[Sequence[int], int], int] = next_token,
    ) -> None:
        self._pages: list[list[int | None]] = [[-1] * PAGE_TOKENS for _ in range(page_count)]
        self._step_s = step_s
        self._fail_when = fail_when
        self._choose = choose
        self.plans: list[BatchPlan] = []

    def run(self, plan: BatchPlan) -> StepResults:
        if self._step_s:
            time.sleep(self._step_s)
        self.plans.append(plan)
        for page in plan.zero_pages:
            self._pages[page] = [None] * PAGE_TOKENS
        read = {page for step in plan.steps for page in step.pages[: step.position // PAGE_TOKENS]}
        written = [page for step in plan.steps for page in step.pages[step.position // PAGE_TOKENS :]]
        assert len(written) == len(set(written)), "a page is written by two sequences"
        assert read.isdisjoint(written), "a page is written while another sequence reads it"
        assert set(plan.zero_pages) <= set(written), "a page was zeroed for nobody"
        return StepResults(tuple(self._answer(step) for step in plan.steps), {"matmul": 0.5, "other": 0.25})

    def _answer(self, step: SequenceStep) -> SequenceResult:
        assert step.tokens
        for offset, token in enumerate(step.tokens):
            page, slot = divmod(step.position + offset, PAGE_TOKENS)
            assert self._pages[step.pages[page]][slot] is None, "a slot is written twice or was not zeroed"
            self._pages[step.pages[page]][slot] = token
        error = self._fail_when(step) if self._fail_when else ""
        if error:
            return SequenceResult(step.sequence_id, error=error)
        if step.sampling is None:
            return SequenceResult(step.sequence_id)
        end = step.position + len(step.tokens)
        seen = [self._pages[step.pages[t // PAGE_TOKENS]][t % PAGE_TOKENS] for t in range(end)]
        assert all(token is not None and token >= 0 for token in seen), "a position before this step was never computed"
        token = self._choose([t for t in seen if t is not None], step.sampling.seed)
        wanted = step.sampling.logprobs
        top = tuple(TokenLogprob((token + i) % VOCAB, -0.5 - i) for i in range(wanted or 0))
        return SequenceResult(step.sequence_id, token, None if wanted is None else -0.5, top)
