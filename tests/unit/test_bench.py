"""The pure parts of the benchmarks: spread, roofline, work of a step, the report's document, comparison."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from tokenmill.cli.bench_compare import compare, read_report, show
from tokenmill.cli.bench_options import numbers
from tokenmill.cli.bench_view import show_report
from tokenmill.engine.bench.judged_row import judged_row
from tokenmill.engine.bench.limits import drift_notes
from tokenmill.engine.bench.model_work import Chunk, model_facts, step_work, sum_of
from tokenmill.engine.bench.roofline import Work, least_time
from tokenmill.engine.bench.session import Session, machine_load
from tokenmill.engine.bench.spread import spread_of
from tokenmill.host import read_host_facts
from tokenmill.host.load import CpuTimes, read_cpu_times, read_load_average
from tokenmill.vocabulary.bench_report import BenchReport, Limit, MachineLoad, Row
from tokenmill.vocabulary.errors import RequestError
from tokenmill.vocabulary.from_document import from_document
from tokenmill.vocabulary.layer_plan import AttentionPlan, FeedForwardPlan, LayerPlan, LinearPlan, ModelPlan, RopePlan
from tokenmill.vocabulary.model_file import ModelFile, TensorInfo

LIMITS = (
    Limit("read", "8 streams a thread", "bytes/s", 4e9, 2e9, spread_of([2.0, 2.0])),
    Limit("int8", "vpdpbusd zmm", "multiply-adds/s", 1e12, 1e11, spread_of([10.0])),
)


def report(*times: list[float], **changes: object) -> BenchReport:
    rows = tuple(
        judged_row("matmul", {"format": "Q4_0", "tokens": index + 1}, seconds, Work(1e9, {"int8": 1e10}), LIMITS)
        for index, seconds in enumerate(times)
    )
    made = BenchReport(
        benchmark="kernels",
        created="2026-01-01T00:00:00+00:00",
        version="1",
        engine="tokenmill",
        kernel_set="x86_avx2",
        threads=2,
        host=read_host_facts(Path("/nonexistent")),
        load=MachineLoad(0.0, 0.0, 0.0, ""),
        limits=LIMITS,
        rows=rows,
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_few_repeats_have_their_range_as_interval() -> None:
    spread = spread_of([3.0, 1.0, 2.0])
    assert (spread.median, spread.minimum, spread.maximum, spread.low, spread.high) == (2.0, 1.0, 3.0, 1.0, 3.0)


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = random.Random(1)
    held = 0
    for _ in range(2000):
        spread = spread_of([rng.expovariate(1.0) for _ in range(15)])
        held += spread.low <= math.log(2.0) <= spread.high
    assert held / 2000 > 0.94


def test_many_repeats_narrow_the_interval() -> None:
    for count in (1000, 5000):
        spread = spread_of([float(value) for value in range(count)])
        # Normal approximation: half the count less 1.96 standard deviations of sqrt(count) / 2.
        assert spread.low == pytest.approx(count / 2 - 0.98 * count**0.5, abs=2)
        assert spread.high == pytest.approx(count / 2 + 0.98 * count**0.5, abs=2)


@pytest.mark.parametrize(
    ("work", "seconds", "limit"),
    [
        (Work(4e9, {"int8": 1e10}), 2.0, "read"),
        (Work(1e8, {"int8": 1e12}), 10.0, "int8"),
        (Work(1e8, {"int8": 1e11, "fp32": 1e11}), 3.0, "fp32"),
        (Work(1e9, {"int8": 0.0}), 0.5, "read"),
    ],
)
def test_the_roofline_is_the_larger_of_reading_and_computing(work: Work, seconds: float, limit: str) -> None:
    bound = least_time(work, {"read": 2e9, "int8": 1e11, "fp32": 5e10})
    assert bound is not None
    assert bound.seconds == pytest.approx(seconds)
    assert bound.limit == limit


def test_without_a_rate_there_is_no_bound() -> None:
    assert least_time(Work(1e9, {"fp32": 1.0}), {"read": 1e9}) is None
    assert least_time(Work(1e9, {}), {}) is None


def test_a_row_says_what_part_of_its_limit_it_reaches() -> None:
    row = report([1.0]).rows[0]
    assert row.limit == "read"
    assert row.fraction == pytest.approx(0.5)
    figure = row.figure("multiply-adds")
    assert figure is not None
    assert figure.value == pytest.approx(10.0)


def test_a_machine_that_changes_during_the_run_is_named() -> None:
    after = [dataclasses.replace(limit, rate=limit.rate * (0.8 if limit.name == "read" else 1.02)) for limit in LIMITS]
    assert drift_notes(LIMITS, after) == ("the machine changed during the run: limit read was 0.80 x at the end",)
    assert drift_notes(LIMITS, ()) == ()


def test_a_report_survives_its_document() -> None:
    made = report([1.0, 1.1], [2.0])
    assert from_document(BenchReport, json.loads(json.dumps(dataclasses.asdict(made)))) == made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 3}, "rows must be a list"),
        ({"threads": "two"}, "threads must be a whole number"),
        ({"host": None}, "host must be an object"),
        ({"rows": [{"name": "x"}]}, r"rows\[0\].parameters is missing"),
        ({"limits": [{"name": 1}]}, r"limits\[0\].name must be a string"),
    ],
)
def test_a_damaged_document_is_refused_by_name(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_document(BenchReport, dataclasses.asdict(report([1.0])) | change)


def test_compare_tells_differences_from_noise() -> None:
    before = report([1.0, 1.01, 1.02], [1.0, 1.01, 1.02], [1.0, 1.3, 1.6], [1.0])
    after = report([0.5, 0.51, 0.52], [1.5, 1.51, 1.52], [1.2, 1.4, 1.9])
    comparison = compare(before, after, fail_below=0.97)
    assert [ratio.verdict for ratio in comparison.ratios] == ["faster", "slower", "no difference seen"]
    assert [ratio.failed for ratio in comparison.ratios] == [False, True, False]
    assert comparison.ratios[0].ratio == pytest.approx(1.01 / 0.51)
    assert (comparison.only_a, comparison.only_b) == (1, 0)
    assert comparison.failures == comparison.ratios[1:2]


def test_compare_warns_of_what_spoils_it() -> None:
    slower_machine = tuple(dataclasses.replace(limit, rate=limit.rate / 2) for limit in LIMITS)
    busy = MachineLoad(9.0, 1.0, 0.0, "the machine was busy: load 9.0; figures are low")
    warnings = compare(report([1.0]), report([1.0], limits=slower_machine, load=busy)).warnings
    assert any("B: the machine was busy" in warning for warning in warnings)
    assert any("limit read is 0.50 x A's" in warning for warning in warnings)


def test_reports_without_a_common_row_cannot_be_compared() -> None:
    with pytest.raises(RequestError, match="no row in common"):
        compare(report([1.0]), report())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 99}', '{"schema_version": 1}', "\x00"])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "report.json"
    file.write_text(text)
    with pytest.raises(RequestError, match=r"report\.json"):
        read_report(file)


def test_tables_show_what_matters() -> None:
    console = Console(width=140, file=io.StringIO())
    made = report([1.0, 1.1, 1.2], [2.0], complete=False, notes=("a note",))
    show_report(console, made)
    show(console, compare(made, made))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("Q4_0", "8 streams a thread", "vpdpbusd zmm", "45 % read", "interrupted", "a note", "no difference"):
        assert part in text


def test_names_in_a_report_cannot_steer_the_terminal() -> None:
    made = report([1.0])
    rows = (dataclasses.replace(made.rows[0], name="[red]\x1b[2Jmatmul"),)
    console = Console(width=140, file=io.StringIO())
    show(console, compare(dataclasses.replace(made, rows=rows), dataclasses.replace(made, rows=rows)))
    assert r"[red]\x1b[2Jmatmul" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("load", "others", "stolen", "words"),
    [
        (0.2, 0.1, 0.0, ""),
        (3.2, 0.1, 0.0, ""),
        (3.2, 5.0, 0.0, "others used 0.5 CPUs, load 3.2 when the run began"),
        (0.2, 0.0, 1.0, "the hypervisor took 5 %"),
    ],
)
def test_a_busy_machine_is_named(load: float, others: float, stolen: float, words: str) -> None:
    before = CpuTimes(busy=100.0, stolen=0.0, total=1000.0)
    after = CpuTimes(busy=100.0 + 8.0 + others, stolen=stolen, total=1020.0)
    judged = machine_load(load_before=load, before=before, after=after, own_s=8.0, wall_s=10.0, cpus=2)
    assert (words in judged.busy) if words else not judged.busy


def test_what_cannot_be_read_is_not_invented() -> None:
    judged = machine_load(load_before=None, before=None, after=None, own_s=1.0, wall_s=1.0, cpus=1)
    assert judged == MachineLoad(None, None, None, "")
    judged = machine_load(load_before=3.2, before=None, after=None, own_s=1.0, wall_s=1.0, cpus=1)
    assert judged.busy == "the machine was busy: load 3.2 when the run began; figures are low"


def test_load_and_cpu_times_are_read_below_a_root(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    assert read_load_average(tmp_path) is None
    assert read_cpu_times(tmp_path) is None
    (proc / "loadavg").write_text("1.42 1.07 1.56 4/96 2476\n")
    (proc / "stat").write_text("cpu  100 0 300 1000 200 0 0 400 50 0\ncpu0 1 2 3\n")
    assert read_load_average(tmp_path) == 1.42
    times = read_cpu_times(tmp_path)
    assert times is not None
    assert times.busy / times.total == pytest.approx(0.2)
    assert times.stolen / times.total == pytest.approx(0.2)


def test_numbers_on_the_command_line() -> None:
    assert numbers("--tokens", "1,2, 16") == (1, 2, 16)
    assert numbers("--tokens", "") == ()
    for text in ("x", "1,0", "-1", "1.5"):
        with pytest.raises(RequestError, match="--tokens"):
            numbers("--tokens", text)


def test_rows_with_other_parameters_are_other_cases() -> None:
    first = report([1.0]).rows[0]
    other = Row("matmul", dict(first.parameters) | {"tokens": 7}, first.time)
    same = Row("matmul", dict(reversed(list(first.parameters.items()))), first.time)
    assert first.identity != other.identity
    assert first.identity == same.identity


def test_the_work_of_a_step_is_counted() -> None:
    attention = AttentionPlan(
        4, 2, 16, 0.25, *(LinearPlan(name) for name in "qkvo"), RopePlan("half", 16, 1e4), window=6
    )
    ffn = FeedForwardPlan(96, "silu", LinearPlan("gate"), LinearPlan("up"), LinearPlan("down"))
    layer = LayerPlan("norm", attention, "norm", ffn)
    plan = ModelPlan("llama", 288, 64, 100, 1e-5, "embedding", "norm", LinearPlan("embedding"), (layer,))
    shapes = {
        "q": (64, 64),
        "k": (32, 64),
        "v": (32, 64),
        "o": (64, 64),
        "gate": (96, 64),
        "up": (96, 64),
        "down": (64, 96),
    }
    tensors = {
        name: TensorInfo(name, "F16" if name == "o" else "Q8_0", shape, Path(), 0, 100)
        for name, shape in (shapes | {"embedding": (288, 64)}).items()
    }
    file = ModelFile(Path(), {}, tensors, 0)
    in_layer = sum(rows * columns for name, (rows, columns) in shapes.items() if name != "o")

    # Two sequences decode: one sees 5 keys, the other the 6 of its window.
    work = step_work(file, plan, [Chunk(1, 4), Chunk(1, 50)])
    assert work.multiply_adds["int8"] == 2 * (in_layer + 288 * 64)
    assert work.multiply_adds["fp32"] == 2 * 64 * 64 + 2 * 4 * 16 * (5 + 6)
    assert work.nbytes == 8 * 100 + 2 * 2 * 2 * 16 * (5 + 6)

    # A chunk of a prompt whose end is not in it draws nothing: the output matrix is not read.
    chunk = step_work(file, plan, [Chunk(3, 0, drawn=0)])
    assert chunk.multiply_adds["int8"] == 3 * in_layer
    assert chunk.multiply_adds["fp32"] == 3 * 64 * 64 + 2 * 4 * 16 * (1 + 2 + 3)
    assert chunk.nbytes == 7 * 100 + 2 * 2 * 2 * 16 * 3
    assert sum_of([chunk, chunk]).nbytes == 2 * chunk.nbytes
    # Three tokens after 50 others see the window's 6 keys each, 8 different ones together.
    late = step_work(file, plan, [Chunk(3, 50, drawn=0)])
    assert late.nbytes == 7 * 100 + 2 * 2 * 2 * 16 * 8

    facts = model_facts("m", file, plan, 123)
    assert facts.formats == {"Q8_0": 700, "F16": 100}
    assert facts.parameters == in_layer + 64 * 64 + 288 * 64


def test_ctrl_c_keeps_the_rows_before() -> None:
    session = Session(())
    first = report([1.0]).rows[0]

    def rows() -> Iterator[Row]:
        yield first
        raise KeyboardInterrupt

    session.collect(rows(), lambda _: None)
    made = session.report("kernels", kernel_set="x", threads=1, limits=LIMITS)
    assert made.rows == (first,)
    assert not made.complete
