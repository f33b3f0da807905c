"""What /metrics shows, in a registry of its own. Each name is written once, here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from tokenmill import __version__
from tokenmill.engine.engine import Engine
from tokenmill.engine.step_report import StepReport
from tokenmill.vocabulary.generation import FinishReason, TokenEvent, Usage

_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 40, 80)
_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5)
_REQUEST_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)


class ServerMetrics:
    """Counters and histograms of one server, and gauges that are read from it when scraped.

    Args:
        active: generation requests that have not been answered to the end.
    """

    def __init__(self, active: Callable[[], int]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a series beside each counter that nobody reads
        registry = CollectorRegistry()
        self.registry = registry
        ProcessCollector(registry=registry)
        requests = Gauge("tokenmill_requests_active", "Requests not answered to the end", registry=registry)
        requests.set_function(active)
        self._finished = Counter(
            "tokenmill_sequences_finished", "Sequences that ended, by reason", ["reason"], registry=registry
        )
        for reason in FinishReason:
            self._finished.labels(reason.value)
        self._refused = Counter(
            "tokenmill_requests_refused",
            "Requests answered with an error, by HTTP status",
            ["status"],
            registry=registry,
        )
        self._prompt_tokens = Counter("tokenmill_prompt_tokens", "Prompt tokens accepted", registry=registry)
        self._output_tokens = Counter("tokenmill_output_tokens", "Tokens generated", registry=registry)
        self._ttft = Histogram(
            "tokenmill_time_to_first_token_seconds",
            "From a sequence's entry into the queue to its first token",
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self._inter_token = Histogram(
            "tokenmill_inter_token_seconds",
            "Between two tokens of a sequence",
            buckets=_TOKEN_BUCKETS,
            registry=registry,
        )
        self._sequence = Histogram(
            "tokenmill_sequence_seconds",
            "From a sequence's entry into the queue to its last token",
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self._step = Histogram("tokenmill_step_seconds", "One engine step", buckets=_TOKEN_BUCKETS, registry=registry)
        self._phase = Counter(
            "tokenmill_step_phase_seconds", "Time within engine steps, by phase", ["phase"], registry=registry
        )
        self._rows = Counter(
            "tokenmill_step_rows", "Tokens computed, by kind (prefill or decode)", ["kind"], registry=registry
        )

    def attach(self, engine: Engine) -> None:
        """Shows an engine's state from now on, and counts its steps."""
        self.registry.register(_EngineCollector(engine))
        engine.observe_steps(self._observe_step)

    def count_refusal(self, status: int) -> None:
        """A request was answered with an error."""
        self._refused.labels(str(status)).inc()

    def meter(self, submitted_s: float) -> SequenceMeter:
        """For one sequence; feed it each token event."""
        return SequenceMeter(submitted_s, self._ttft, self._inter_token, self._sequence)

    def count_sequence(self, usage: Usage, reason: FinishReason) -> None:
        """A sequence ended."""
        self._finished.labels(reason.value).inc()
        self._prompt_tokens.inc(usage.prompt_tokens)
        self._output_tokens.inc(usage.completion_tokens)

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)

    def _observe_step(self, report: StepReport) -> None:
        self._step.observe(report.seconds)
        for phase, seconds in report.phase_seconds.items():
            self._phase.labels(phase).inc(seconds)
        self._rows.labels("prefill").inc(report.prefill_tokens)
        self._rows.labels("decode").inc(report.decode_tokens)


class SequenceMeter:
    """Latencies of one sequence, from the engine's own times (no network, no event-loop delay in them)."""

    def __init__(self, submitted_s: float, first: Histogram, between: Histogram, whole: Histogram) -> None:
        self._submitted_s = submitted_s
        self._last_s: float | None = None
        self._first = first
        self._between = between
        self._whole = whole

    def __call__(self, event: TokenEvent) -> None:
        """Takes the next event."""
        if event.token_id is not None:
            if self._last_s is None:
                self._first.observe(event.time_s - self._submitted_s)
            else:
                self._between.observe(event.time_s - self._last_s)
            self._last_s = event.time_s
        if event.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
            self._whole.observe(event.time_s - self._submitted_s)


class _EngineCollector(Collector):
    """Reads the engine at scrape time, so that gauges cannot go stale."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        info, state = self._engine.info, self._engine.state
        gauge = GaugeMetricFamily
        yield gauge("tokenmill_sequences_running", "Sequences in the batch", state.running)
        yield gauge("tokenmill_sequences_waiting", "Sequences in the queue", state.waiting)
        yield gauge("tokenmill_kv_pages_used", "KV pages held by sequences", state.page_count - state.free_pages)
        yield gauge("tokenmill_kv_pages", "KV pages, 16 tokens each", state.page_count)
        yield gauge("tokenmill_kv_bytes", "Memory of all KV pages", info.kv_bytes)
        yield gauge("tokenmill_weight_bytes", "Memory of the packed weights", info.weight_bytes)
        yield gauge("tokenmill_threads", "Compute threads", info.threads)
        yield CounterMetricFamily("tokenmill_preemptions", "Sequences pushed out for lack of pages", state.preemptions)
        yield InfoMetricFamily(
            "tokenmill_engine",
            "What is running",
            {
                "version": __version__,
                "model": info.name,
                "architecture": info.architecture,
                "kernel_set": info.kernel_set,
                "context_length": str(info.context_length),
            },
        )
