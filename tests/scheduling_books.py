"""What must hold of a scheduler's pages at every moment. Looks inside: these are the books that nobody else sees."""

from __future__ import annotations

from collections import Counter

from tokenmill.scheduling.batch_plan import PAGE_TOKENS
from tokenmill.scheduling.scheduler import Scheduler


def check_books(scheduler: Scheduler) -> None:
    """Every page is held by exactly those who list it, shared only when full, and cached chains hang together."""
    cache = scheduler._cache
    ledger = cache._ledger
    running = scheduler._running
    held = Counter(page for sequence in running for page in sequence.pages)
    pages = range(ledger.page_count)
    assert [ledger.holders(page) for page in pages] == [held[page] for page in pages]
    free, idle = set(ledger._free), set(ledger._idle)
    assert len(free) == ledger.free_count
    assert free.isdisjoint(idle)
    assert (free | idle).isdisjoint(held)
    assert ledger.free_count + ledger.idle_count + len(held) == ledger.page_count, "a page is lost"
    assert idle <= cache._keys.keys(), "a page is kept that nobody can find"
    assert free.isdisjoint(cache._keys), "a free page can be found"
    assert ledger.idle_count <= cache._most_idle
    assert {key: page for page, key in cache._keys.items()} == cache._pages
    for parent, _ in cache._pages:
        assert isinstance(parent, str) or parent in cache._keys, "a chain lacks its beginning"
    for sequence in running:
        full = sequence.computed // PAGE_TOKENS
        assert all(held[page] == 1 for page in sequence.pages[full:]), "a page is shared before it is full"
        assert all(page in cache._keys for page in sequence.pages[: sequence.registered])
    assert all(not sequence.pages for sequence in scheduler._waiting)
