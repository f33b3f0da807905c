"""How a step's prompt tokens are divided among the sequences in prefill: oldest first, as much as the time allows."""

from __future__ import annotations

from collections.abc import Sequence

from tokenmill.scheduling.prefix_cache import PrefixCache
from tokenmill.scheduling.sequence import ScheduledSequence
from tokenmill.scheduling.step_cost import StepCost

# A chunk below this is not worth a step's fixed cost, and something must go on.
LEAST_CHUNK = 16

# A step that no running stream waits for: this long, or this many times its fixed cost where that is more.
_ALONE_S = 0.5
_ALONE_FIXED = 8.0

# A prompt that needs more steps than this gives half of each to those that come after it.
_LONG_STEPS = 4


def slack_alone_s(cost: StepCost) -> float:
    """Time for prompt tokens in a step without decode rows: long enough to be efficient, short enough to answer to."""
    return max(_ALONE_S, _ALONE_FIXED * cost.fixed_s) - cost.fixed_s


def prefill_chunks(
    prefilling: Sequence[ScheduledSequence],
    *,
    slack_s: float,
    token_limit: int,
    cost: StepCost,
    bytes_per_token: int,
    cache: PrefixCache,
    least: int = LEAST_CHUNK,
) -> list[tuple[ScheduledSequence, int]]:
    """Chunks in order of service. Prefixes that are cached by now are attached and not computed.

    Args:
        prefilling: in order of service; each has more than one token to compute.
        slack_s: what prompt tokens may add to the step.
        token_limit: most prompt tokens.
        cost: what they take.
        bytes_per_token: of keys and values.
        cache: where pages are found.
        least: tokens that the first one gets even if they take longer than slack_s; 0 keeps slack_s.
    """
    chunks: list[tuple[ScheduledSequence, int]] = []
    for index, sequence in enumerate(prefilling):
        if token_limit <= 0 or (slack_s <= 0 and (chunks or not least)):
            break
        if cache.shares and _waits_for_prefix(sequence, chunks):
            continue
        found = cache.attach(sequence)
        if sequence.output_length == 0:
            sequence.cached_tokens += found
        fitting = cost.prefill_within(slack_s, sequence.computed, bytes_per_token)
        if index + 1 < len(prefilling) and sequence.remaining > _LONG_STEPS * max(fitting, least):
            fitting = cost.prefill_within(slack_s / 2, sequence.computed, bytes_per_token)
        count = min(sequence.remaining, token_limit, max(fitting, 0 if chunks else least))
        if count <= 0:
            break
        chunks.append((sequence, count))
        token_limit -= count
        slack_s -= cost.prefill_s(count, sequence.computed, bytes_per_token)
    return chunks


def _waits_for_prefix(sequence: ScheduledSequence, chunks: Sequence[tuple[ScheduledSequence, int]]) -> bool:
    """Whether this step computes what is at least half of the prompt for another: the next one will find it cached."""
    if sequence.computed:
        return False
    half = max(LEAST_CHUNK, len(sequence.tokens) // 2)
    for other, count in chunks:
        if other.computed + count >= half and other.tokens[:half] == sequence.tokens[:half]:
            return other.request.cache_scope == sequence.request.cache_scope
    return False
