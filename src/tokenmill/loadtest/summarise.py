"""Records of requests to a LoadReport."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from tokenmill.loadtest.client import RequestRecord
from tokenmill.vocabulary.load_report import LoadReport, Percentiles


def percentiles(values: Sequence[float]) -> Percentiles:
    """Nearest-rank percentiles: each is a value that was seen. NaN where there is none.

    With n values, p99 is the maximum until n reaches 100.
    """
    ordered = sorted(values)

    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan

    return Percentiles(count=len(ordered), p50=rank(0.5), p90=rank(0.9), p99=rank(0.99), maximum=rank(1.0))


def summarise(
    records: Sequence[RequestRecord],
    *,
    model: str,
    kernel_set: str,
    threads: int,
    users: int,
    server_peak_rss_bytes: int | None,
) -> LoadReport:
    """Summarises one run.

    Latencies are over the requests that succeeded; the rate is their output tokens over the time from the first start
    to the last end, so that ramp-up and tail count as they did.

    Args:
        records: all requests of the run, failed ones too; at least one.
        model: the model's name.
        kernel_set: as the server states it.
        threads: as the server states it.
        users: concurrent users of the closed loop.
        server_peak_rss_bytes: the server's VmHWM where it could be read.
    """
    good = [record for record in records if record.ok]
    started = min(record.started_s for record in records)
    duration = max(record.ended_s for record in records) - started
    output_tokens = sum(record.output_tokens for record in good)
    gaps = [later - earlier for record in good for earlier, later in pairwise(record.content_s)]
    return LoadReport(
        model=model,
        kernel_set=kernel_set,
        threads=threads,
        users=users,
        requests=len(records),
        failed=len(records) - len(good),
        duration_s=duration,
        prompt_tokens=sum(record.prompt_tokens for record in good),
        output_tokens=output_tokens,
        ttft=percentiles([record.content_s[0] - record.started_s for record in good if record.content_s]),
        inter_token=percentiles(gaps),
        time_to_last_token=percentiles([record.ended_s - record.started_s for record in good]),
        output_tokens_per_s=output_tokens / duration if duration > 0 else 0.0,
        server_peak_rss_bytes=server_peak_rss_bytes,
    )
