from __future__ import annotations

import pytest

from scheduling_books import check_books
from scripted_runner import ScriptedRunner, expected_output
from tokenmill.scheduling.limits import SchedulerLimits
from tokenmill.scheduling.page_ledger import PageLedger
from tokenmill.scheduling.scheduler import Scheduler
from tokenmill.vocabulary.generation import GenerationRequest, SamplingParams, TokenEvent

SHARED = [i % 90 for i in range(70)]  # four full pages and a part


class Bench:
    """A scheduler and a runner that checks every page; `ask` runs one request to its end."""

    def __init__(self, *, pages: int = 32, cached_pages: int | None = None, step_tokens: int = 64) -> None:
        limits = SchedulerLimits(160, pages, 4, step_tokens, 16, cached_pages=cached_pages)
        self.scheduler = Scheduler(limits)
        self.runner = ScriptedRunner(pages)
        self.computed = 0
        self.clock = 0.0

    def submit(self, prompt: list[int], count: int = 4, scope: str = "") -> int:
        request = GenerationRequest(tuple(prompt), SamplingParams(), count, cache_scope=scope)
        return self.scheduler.add(request, self.clock)

    def drain(self) -> dict[int, list[TokenEvent]]:
        events: dict[int, list[TokenEvent]] = {}
        self.computed = 0
        while (plan := self.scheduler.plan(self.clock)) is not None:
            self.clock += 0.01
            self.computed += plan.token_count
            for item in self.scheduler.commit(self.runner.run(plan), self.clock):
                events.setdefault(item.sequence_id, []).extend(item.events)
            check_books(self.scheduler)
        return events

    def ask(self, prompt: list[int], count: int = 4, scope: str = "") -> int:
        """The number of cached tokens."""
        events = self.drain_one(prompt, count, scope)
        assert [event.token_id for event in events] == expected_output(prompt, count)
        assert all(event.cached_prompt_tokens == 0 for event in events[1:])
        return events[0].cached_prompt_tokens

    def drain_one(self, prompt: list[int], count: int, scope: str) -> list[TokenEvent]:
        sequence_id = self.submit(prompt, count, scope)
        return self.drain()[sequence_id]


def test_a_shared_beginning_is_computed_once() -> None:
    bench = Bench()
    assert bench.ask([*SHARED, 1, 2, 3]) == 0
    assert bench.computed == 73 + 3
    assert bench.ask([*SHARED, 4, 5, 6]) == 64
    assert bench.computed == 9 + 3
    state = bench.scheduler.state
    assert (state.prompt_tokens, state.cached_prompt_tokens) == (146, 64)
    assert state.free_pages == 32


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    bench = Bench()
    assert bench.ask(SHARED[:64]) == 0
    assert bench.ask(SHARED[:64]) == 48
    assert bench.ask(SHARED[:65]) == 64


def test_a_conversation_goes_on_from_its_own_answer() -> None:
    bench = Bench()
    bench.ask(SHARED, 20)
    said = [*SHARED, *expected_output(SHARED, 20)]
    assert bench.ask([*said, 7, 7, 7]) == 80  # of 70 + 20 tokens, the last one never computed


def test_chains_differ_where_an_earlier_page_differs() -> None:
    bench = Bench()
    bench.ask(SHARED)
    assert bench.ask([5, *SHARED[1:]]) == 0


def test_scopes_do_not_share() -> None:
    bench = Bench()
    bench.ask(SHARED, scope="a")
    assert bench.ask(SHARED, scope="b") == 0
    assert bench.ask(SHARED, scope="a") == 64


def test_a_wave_of_equal_prompts_computes_them_once() -> None:
    bench = Bench()
    ids = [bench.submit([*SHARED, i], 3) for i in range(4)]
    events = bench.drain()
    for i, sequence_id in enumerate(ids):
        assert [event.token_id for event in events[sequence_id]] == expected_output([*SHARED, i], 3)
    assert bench.computed == 71 + 3 * 7 + 4 * 2


def test_equal_pages_computed_side_by_side_become_one() -> None:
    bench = Bench(step_tokens=128)
    prompts = [[*SHARED[:20], *[i] * 40] for i in range(2)]  # too little in common for one to wait for the other
    for prompt in prompts:
        bench.submit(prompt, 8)
    bench.drain()
    assert bench.scheduler.state.cached_pages == 2 * 4 - 1  # 60 + 7 tokens each, the first page in common


def test_memory_never_exceeds_the_budget_also_for_one_long_prompt() -> None:
    bench = Bench(pages=10)
    long = [i % 89 for i in range(150)]
    for i in range(8):
        assert bench.ask([i, *long], 4) == 0
    assert bench.scheduler.state.cached_pages <= 10


def test_the_least_recently_used_goes_first_and_of_a_chain_its_end() -> None:
    bench = Bench(pages=12)
    first, second = [1] * 80, [2] * 80  # five pages each, of which each reply keeps five
    bench.ask(first, 2)
    bench.ask(second, 2)
    bench.ask([3] * 60, 2)  # takes four pages, of which two were free
    assert bench.ask(second, 2) == 64
    assert 0 < bench.ask(first, 2) < 64


def test_a_limit_of_cached_pages_is_kept_and_zero_switches_off() -> None:
    bench = Bench(cached_pages=3)
    bench.ask(SHARED)
    assert bench.scheduler.state.cached_pages == 3
    assert bench.ask(SHARED) == 48
    bench = Bench(cached_pages=0)
    bench.ask(SHARED)
    assert bench.ask(SHARED) == 0
    assert bench.scheduler.state.cached_pages == 0


def test_ledger_counts_holders() -> None:
    ledger = PageLedger(2)
    (page,) = ledger.allocate(1)
    ledger.share(page)
    ledger.release((page,), kept={page})
    assert (ledger.holders(page), ledger.idle_count) == (1, 0)
    ledger.release((page,), kept={page})
    assert (ledger.holders(page), ledger.idle_count, ledger.free_count) == (0, 1, 1)
    ledger.share(page)
    assert ledger.idle_count == 0
    with pytest.raises(ValueError, match="free and cannot be shared"):
        ledger.share(1 - page)
    ledger.release((page,), kept={page})
    assert ledger.reclaim() == page
    with pytest.raises(KeyError):
        ledger.reclaim()
