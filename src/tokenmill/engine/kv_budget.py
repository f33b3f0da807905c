"""How many KV pages to have: a decision from numbers alone."""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.scheduling.batch_plan import PAGE_TOKENS
from tokenmill.scheduling.page_ledger import pages_for
from tokenmill.vocabulary.errors import CapacityError, RequestError

# A shorter context than this is of no use to a chat; rather refuse than choose it unasked.
_SHORTEST_UNASKED_CONTEXT = 1024

# Left to the interpreter, activations, logits and the page cache: this much, or a sixteenth of what is free if more.
_RESERVE_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class KvBudget:
    """The context length that sequences get and the pages to allocate."""

    context_length: int
    pages: int


def kv_budget(
    *,
    bytes_per_page: int,
    free_bytes: int,
    trained_context: int,
    asked_context: int | None,
    asked_bytes: int | None,
    max_sequences: int,
) -> KvBudget:
    """Pages for max_sequences full contexts if they fit, else as many as fit, but at least for one.

    Args:
        bytes_per_page: of one page, all layers.
        free_bytes: what this process may still take, with the weights loaded.
        trained_context: the model's own limit.
        asked_context: the user's; it is kept or refused, never shortened.
        asked_bytes: the user's limit for the cache; by default free_bytes less a reserve.
        max_sequences: sequences at once.

    Raises:
        RequestError: asked_context is past the model's own, or below 2.
        CapacityError: memory cannot hold one context; the message has the numbers.
    """
    if asked_context is not None and not 2 <= asked_context <= trained_context:
        raise RequestError(
            f"a context of {asked_context} tokens was asked for; this model can have from 2 to {trained_context}",
            parameter="context_length",
        )
    usable = free_bytes - max(_RESERVE_BYTES, free_bytes // 16) if asked_bytes is None else asked_bytes
    fitting = max(0, usable // bytes_per_page)
    context = trained_context if asked_context is None else asked_context
    least = context if asked_context is not None else min(context, _SHORTEST_UNASKED_CONTEXT)
    if fitting < pages_for(least):
        source = f"{free_bytes:,} bytes are free with the weights loaded" if asked_bytes is None else "asked for"
        raise CapacityError(
            f"a KV cache for one sequence of {least:,} tokens needs {pages_for(least) * bytes_per_page:,} bytes, "
            f"but it may have {max(0, usable):,} ({source})",
            hint="free memory, raise the container's limit, or ask for a shorter context",
        )
    context = min(context, fitting * PAGE_TOKENS)
    return KvBudget(context, min(fitting, pages_for(context) * max_sequences))
