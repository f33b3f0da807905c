from __future__ import annotations

import pytest

from tokenmill.engine.kv_budget import KvBudget, kv_budget
from tokenmill.vocabulary.errors import CapacityError, RequestError

GIB = 2**30
PAGE = 2**20


def budget(**changes: int | None) -> KvBudget:
    asked: dict[str, int | None] = {
        "bytes_per_page": PAGE,
        "free_bytes": 64 * GIB,
        "trained_context": 4096,
        "asked_context": None,
        "asked_bytes": None,
        "max_sequences": 4,
    }
    return kv_budget(**{**asked, **changes})  # type: ignore[arg-type]


def test_room_for_every_sequence_when_memory_allows() -> None:
    assert budget() == KvBudget(4096, 4 * 256)
    assert budget(asked_context=1000) == KvBudget(1000, 4 * 63)


def test_fewer_pages_when_memory_is_short_but_one_context_fits() -> None:
    assert budget(free_bytes=GIB) == KvBudget(4096, 1024 - 256)
    assert budget(asked_bytes=300 * PAGE) == KvBudget(4096, 300)


def test_the_context_is_shortened_only_when_nobody_asked_for_it() -> None:
    assert budget(asked_bytes=100 * PAGE) == KvBudget(1600, 100)
    with pytest.raises(CapacityError, match="4,096 tokens needs 268,435,456 bytes, but it may have 104,857,600"):
        budget(asked_bytes=100 * PAGE, asked_context=4096)


def test_refused_with_the_numbers_when_no_useful_context_fits() -> None:
    with pytest.raises(CapacityError, match=r"1,024 tokens needs 67,108,864 bytes.*314,572,800 bytes are free"):
        budget(free_bytes=300 * PAGE)
    with pytest.raises(CapacityError, match="may have 0"):
        budget(free_bytes=0)


@pytest.mark.parametrize("context", [1, 4097])
def test_a_context_that_the_model_cannot_have_is_refused(context: int) -> None:
    with pytest.raises(RequestError, match=f"a context of {context} tokens"):
        budget(asked_context=context)


def test_a_short_trained_context_is_kept() -> None:
    assert budget(trained_context=128, max_sequences=2) == KvBudget(128, 16)
