"""The result of any benchmark: one JSON shape, so that two runs can be compared whatever was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenmill.vocabulary.host_facts import HostFacts
from tokenmill.vocabulary.load_report import Provenance

SCHEMA_VERSION = 1
Parameter = str | int | float


@dataclass(frozen=True, slots=True)
class Spread:
    """Repeated measurements of one thing, in seconds.

    Attributes:
        low: lower end of the interval that holds the true median with 95 % confidence (order statistics of the
            repeats, so no shape of the noise is assumed; with fewer than six repeats: their minimum).
        high: its upper end.
    """

    median: float
    minimum: float
    maximum: float
    low: float
    high: float
    repeats: int


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a row. `formula` says how a derived one came from measured ones."""

    name: str
    value: float
    unit: str
    source: Provenance
    formula: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """What the machine reaches at most in one respect, measured in the same run: bytes or multiply-adds per second.

    Other programs can only make a repeat slower, so the fastest one is nearest to the limit.

    Attributes:
        name: "read", "int8", "fp32", or another that rows name.
        how: the loop or the instructions that reached it.
        amount: of one repeat, in `unit` times seconds.
        rate: amount / time.minimum.
    """

    name: str
    how: str
    unit: str
    amount: float
    rate: float
    time: Spread
    source: Provenance = "measured"


@dataclass(frozen=True, slots=True)
class Row:
    """One measured case. Name and parameters together are its identity when runs are compared.

    Attributes:
        time: of the same work in every run with this name and these parameters: less is better.
        figures: rates and the like.
        limit: the Limit that binds here; empty when none is known.
        fraction: of the time that the limit allows by `time.median`; None when no limit is known.
        phases: share of the time by part, where it is known.
    """

    name: str
    parameters: Mapping[str, Parameter]
    time: Spread
    figures: tuple[Figure, ...] = ()
    limit: str = ""
    fraction: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    source: Provenance = "measured"

    def figure(self, name: str) -> Figure | None:
        """The figure of that name, or None."""
        return next((figure for figure in self.figures if figure.name == name), None)

    @property
    def identity(self) -> tuple[str, tuple[tuple[str, Parameter], ...]]:
        """What a row of another run must equal to be the same case."""
        return self.name, tuple(sorted(self.parameters.items()))


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """What else the machine did during the run.

    Attributes:
        load_before: the one-minute load average when the run began; None where it cannot be read.
        others_cpus: CPUs that other processes kept busy, on average; None where it cannot be read.
        steal: share of CPU time that the hypervisor gave to other guests; None where it cannot be read.
        busy: one sentence when the figures must be taken with care; else empty.
    """

    load_before: float | None
    others_cpus: float | None
    steal: float | None
    busy: str


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The model that was measured."""

    name: str
    architecture: str
    weight_bytes: int
    layers: int
    parameters: int
    formats: Mapping[str, int]  # bytes by weight format


@dataclass(frozen=True, slots=True)
class BenchReport:
    """One run of a benchmark. `created` is UTC, ISO 8601. `complete` is false when the run was interrupted."""

    benchmark: str
    created: str
    version: str
    engine: str
    kernel_set: str
    threads: int
    host: HostFacts
    load: MachineLoad
    limits: tuple[Limit, ...]
    rows: tuple[Row, ...]
    model: ModelFacts | None = None
    notes: tuple[str, ...] = ()
    complete: bool = True
    schema_version: int = SCHEMA_VERSION

    def limit(self, name: str) -> Limit | None:
        """The limit of that name, or None."""
        return next((limit for limit in self.limits if limit.name == name), None)
