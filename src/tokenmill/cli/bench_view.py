"""Shows a benchmark's report to a person."""

from __future__ import annotations

from itertools import groupby

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tokenmill.cli.output import facts_table, human_bytes, printable
from tokenmill.vocabulary.bench_report import BenchReport, Limit, Row


def show_report(console: Console, report: BenchReport) -> None:
    """Facts, limits, then one table for each kind of row."""
    facts = facts_table(f"bench {report.benchmark}, {report.engine} {report.version}")
    facts.add_row("CPU", report.host.cpu.model_name)
    facts.add_row("kernel set", f"{report.kernel_set}, {report.threads} threads")
    if report.model is not None:
        model = report.model
        formats = ", ".join(f"{name} {human_bytes(size)}" for name, size in model.formats.items())
        facts.add_row("model", f"{escape(printable(model.name))}: {model.parameters / 1e6:.1f} M parameters; {formats}")
    for limit in report.limits:
        facts.add_row(f"limit {limit.name}", describe_limit(limit))
    if report.load.busy:
        facts.add_row("[bold red]busy[/]", report.load.busy)
    console.print(facts)
    for _, rows in groupby(report.rows, key=_table_key):
        console.print(_table(list(rows)))
    for note in report.notes:
        console.print(f"  {note}", style="dim")
    if not report.complete:
        console.print("  interrupted: the rest was not measured", style="bold red")


def describe_limit(limit: Limit) -> str:
    """A limit's rate and where it comes from, such as "28.2 GB/s (median 27.9 of 9 runs): 8 streams a thread"."""
    unit = "GB/s" if limit.unit == "bytes/s" else "GMAC/s"
    median = limit.amount / limit.time.median / 1e9
    return f"{limit.rate / 1e9:.1f} {unit} (median {median:.1f} of {limit.time.repeats} runs): {limit.how}"


def _table_key(row: Row) -> tuple[object, ...]:
    """Rows of one table have the same columns."""
    return tuple(row.parameters), tuple(figure.name for figure in row.figures), tuple(row.phases)


def _table(rows: list[Row]) -> Table:
    first = rows[0]
    varying = [key for key in first.parameters if len({row.parameters[key] for row in rows}) > 1 or len(rows) == 1]
    fixed = ", ".join(f"{key} {value}" for key, value in first.parameters.items() if key not in varying)
    figures = [figure.name for figure in first.figures if figure.name != "intensity"]  # that is for the plot
    table = Table(title=fixed or None, title_justify="left", title_style="dim", box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for name in varying:
        table.add_column(name)
    for name in ("median", "±", *(figure.unit for figure in first.figures if figure.name in figures)):
        table.add_column(name, justify="right")
    judged = any(row.limit for row in rows)
    if judged:
        table.add_column("of the limit", justify="right")
    if first.phases:
        table.add_column("where the time goes, %")
    for row in rows:
        cells = [row.name, *(str(row.parameters[key]) for key in varying), human_time(row.time.median), _noise(row)]
        cells += [significant(figure.value) for figure in row.figures if figure.name in figures]
        if judged:
            cells.append("-" if row.fraction is None else f"{100 * row.fraction:.0f} % {row.limit}")
        if first.phases:
            cells.append(", ".join(f"{phase} {100 * share:.0f}" for phase, share in row.phases.items()))
        table.add_row(*cells)
    return table


def human_time(seconds: float) -> str:
    """Three significant digits in the unit that suits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{significant(seconds / scale)} {unit}"
    return f"{significant(seconds / 1e-6)} µs"


def significant(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _noise(row: Row) -> str:
    """Half of the confidence interval, relative to the median."""
    return f"{50 * (row.time.high - row.time.low) / row.time.median:.1f} %"
