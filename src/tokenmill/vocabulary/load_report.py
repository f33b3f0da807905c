"""The result of a load run: what was asked, what was seen, and on what. Every figure says how it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Provenance = Literal["measured", "listed", "declared", "modelled", "derived"]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """In seconds, over the values that `count` says."""

    count: int
    p50: float
    p90: float
    p99: float
    maximum: float


@dataclass(frozen=True, slots=True)
class LoadReport:
    """One closed-loop or open-loop run against a server. Times are client-side wall clock, in seconds."""

    model: str
    kernel_set: str
    threads: int
    users: int
    requests: int
    failed: int
    duration_s: float
    prompt_tokens: int
    output_tokens: int
    ttft: Percentiles
    inter_token: Percentiles
    time_to_last_token: Percentiles
    output_tokens_per_s: float
    server_peak_rss_bytes: int | None
    provenance: Provenance = "measured"
    schema_version: int = 1
