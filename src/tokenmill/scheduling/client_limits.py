"""What one client may use: requests a minute, tokens a minute, and requests at once. Time is an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokenmill.scheduling.admission import Rejection
from tokenmill.scheduling.token_bucket import TokenBucket


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """None does not limit. Tokens are those of prompts and replies together."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "tokens_per_minute", "concurrency"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1, or absent")


@dataclass(slots=True)
class _Account:
    limits: ClientLimits
    requests: TokenBucket | None
    tokens: TokenBucket | None
    running: int = 0


class ClientLedger:
    """Accounts of clients by an opaque key. A full minute's allowance may be used in one burst."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def begin(self, client: str, limits: ClientLimits, tokens: int, now_s: float) -> Rejection | None:
        """Books a request with the tokens that it may use at most (prompt and max_tokens). None admits it.

        A request that is admitted must be ended with `end`.
        """
        account = self._accounts.get(client)
        if account is None or account.limits != limits:
            account = self._opened(client, limits, 0 if account is None else account.running)
        if limits.concurrency is not None and account.running >= limits.concurrency:
            return Rejection("concurrency", f"{account.running} requests at once are this key's limit", 1)
        waits = [
            ("requests_per_minute", limits.requests_per_minute, _wait(account.requests, 1, now_s)),
            ("tokens_per_minute", limits.tokens_per_minute, _wait(account.tokens, tokens, now_s)),
        ]
        reason, limit, wait = max(waits, key=lambda item: item[2])
        if wait > 0:
            what = f"this key may use {limit} {reason.replace('_', ' ').replace('per', 'a')}"
            return Rejection(reason, what, math.ceil(wait))
        for bucket, amount in ((account.requests, 1), (account.tokens, tokens)):
            if bucket is not None:
                bucket.take(amount, now_s)
        account.running += 1
        return None

    def end(self, client: str, unused_tokens: int, now_s: float) -> None:
        """Ends a request of the client's; `unused_tokens` of those booked were not used."""
        account = self._accounts[client]
        account.running -= 1
        if account.tokens is not None and unused_tokens > 0:
            account.tokens.give_back(unused_tokens, now_s)

    def forget_idle(self, now_s: float) -> None:
        """Drops accounts that are as good as new, so that memory is bounded by the clients of the last minute."""
        for client, account in list(self._accounts.items()):
            buckets = [bucket for bucket in (account.requests, account.tokens) if bucket is not None]
            if account.running == 0 and all(bucket.level(now_s) >= bucket.burst for bucket in buckets):
                del self._accounts[client]

    def _opened(self, client: str, limits: ClientLimits, running: int) -> _Account:
        per_minute = (limits.requests_per_minute, limits.tokens_per_minute)
        requests, tokens = (None if rate is None else TokenBucket(rate / 60, rate) for rate in per_minute)
        account = self._accounts[client] = _Account(limits, requests, tokens, running)
        return account


def _wait(bucket: TokenBucket | None, amount: float, now_s: float) -> float:
    return 0.0 if bucket is None else bucket.wait_s(amount, now_s)
