"""`make demo`: pulls the default model, serves it, sends it concurrent chats, prints latencies, rate and cost."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tokenmill.cli.output import human_bytes, human_seconds, to_jsonable
from tokenmill.host import read_host_facts
from tokenmill.loadtest.client import RequestRecord, stream_chat
from tokenmill.loadtest.closed_loop import run_closed_loop
from tokenmill.loadtest.summarise import summarise
from tokenmill.planner.cost import DerivedCost, comparable_instances, derive_costs, load_prices
from tokenmill.vocabulary.host_facts import HostFacts
from tokenmill.vocabulary.load_report import LoadReport, Percentiles
from tokenmill.weights.builtin_models import DEFAULT_MODEL

READY_WITHIN_S = 120.0
STOPPED_WITHIN_S = 40.0
PARAMETERS = {"max_tokens": 64, "temperature": 0.0}
_FONT_LINK = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # a picture should not fetch fonts from elsewhere
PROMPTS = (
    "Explain in two sentences why the sky is blue.",
    "Write a short poem about a water mill.",
    "What is the difference between a list and a tuple in Python?",
    "Give me three tips for a good night's sleep.",
    "Translate to French: The train leaves at seven in the morning.",
    "Summarize: A mill grinds grain into flour. It was driven by water or wind for centuries, and later by steam.",
    "Who was Charles Babbage and what did he call the arithmetic unit of his engine?",
    "List five uses of a small language model on a server without a GPU.",
)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the running server says about itself, and what the kernel says about its memory."""

    model: str
    kernel_set: str
    threads: int
    peak_rss_bytes: int | None


@dataclass(frozen=True, slots=True)
class Result:
    """What the demo leaves behind as JSON."""

    report: LoadReport
    host: HostFacts
    costs: tuple[DerivedCost, ...]
    price_source: str
    prices_as_of: str

    @classmethod
    def of(cls, report: LoadReport) -> Result:
        host, prices = read_host_facts(), load_prices()
        instances = comparable_instances(prices, platform.machine(), len(host.cpu.affinity))
        costs = derive_costs(instances, report.output_tokens_per_s) if report.output_tokens else ()
        return cls(report, host, costs, prices.source, prices.as_of)


class Server:
    """`tokenmill serve` as a process of its own, so that it is measured as a client would meet it."""

    def __init__(self, model: Path, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}"
        self._log = log
        command = Path(sys.executable).with_name("tokenmill")
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [command, "serve", str(model), "--host", "127.0.0.1", "--port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    async def wait_until_ready(self, session: aiohttp.ClientSession) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise SystemExit(f"The server ended with {self._process.returncode}:\n{self._log.read_text()}")
            try:
                async with session.get(f"{self.base_url}/ready") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.1)
        raise SystemExit(f"The server was not ready within {READY_WITHIN_S:.0f} s:\n{self._log.read_text()}")

    async def facts(self, session: aiohttp.ClientSession) -> ServerFacts:
        async with session.get(f"{self.base_url}/v1/models") as response:
            model = (await response.json())["data"][0]["id"]
        async with session.get(f"{self.base_url}/metrics") as response:
            metrics = await response.text()
        kernel_set = re.search(r'^tokenmill_engine_info\{.*kernel_set="([^"]+)"', metrics, re.MULTILINE)
        threads = re.search(r"^tokenmill_threads (\S+)", metrics, re.MULTILINE)
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        peak = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
        return ServerFacts(
            model=model,
            kernel_set=kernel_set.group(1) if kernel_set else "not stated",
            threads=int(float(threads.group(1))) if threads else 0,
            peak_rss_bytes=int(peak.group(1)) * 1024 if peak else None,
        )

    def stop(self) -> int:
        """SIGTERM, as an orchestrator would; returns the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def pull(model: str) -> Path:
    command = Path(sys.executable).with_name("tokenmill")
    pulled = subprocess.run([command, "pull", model, "--json"], check=True, stdout=subprocess.PIPE, text=True)
    return Path(json.loads(pulled.stdout)["path"])


async def measure(
    server: Server, console: Console, users: int, requests: int
) -> tuple[LoadReport, RequestRecord, Sequence[RequestRecord]]:
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        await server.wait_until_ready(session)
        model = (await server.facts(session)).model
        messages = [{"role": "user", "content": PROMPTS[0]}]
        answer = await stream_chat(session, server.base_url, model, messages, PARAMETERS | {"max_tokens": 160})
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(f"{users} users, {users * requests} chats", total=users * requests)
            records = await run_closed_loop(
                server.base_url,
                model,
                PROMPTS,
                users=users,
                requests_per_user=requests,
                parameters=PARAMETERS,
                on_record=lambda _: progress.advance(task),
            )
        facts = await server.facts(session)
    report = summarise(
        records,
        model=facts.model,
        kernel_set=facts.kernel_set,
        threads=facts.threads,
        users=users,
        server_peak_rss_bytes=facts.peak_rss_bytes,
    )
    return report, answer, records


def result_table(report: LoadReport) -> Table:
    table = Table()
    table.add_column("measured at the client")
    for name in ("p50", "p99", "values"):
        table.add_column(name, justify="right")

    def latency(name: str, values: Percentiles) -> None:
        table.add_row(name, human_seconds(values.p50), human_seconds(values.p99), str(values.count))

    latency("time to first token", report.ttft)
    latency("between tokens", report.inter_token)
    latency("time to last token", report.time_to_last_token)
    table.add_section()
    table.add_row("output tokens/s, all users", f"[bold green]{report.output_tokens_per_s:.1f}[/]")
    table.add_row("output tokens", str(report.output_tokens))
    table.add_section()
    table.add_row("kernel set", report.kernel_set)
    table.add_row("threads", str(report.threads))
    peak = report.server_peak_rss_bytes
    table.add_row("server's peak memory", human_bytes(peak) if peak is not None else "unknown")
    return table


def cost_table(costs: Sequence[DerivedCost]) -> Table:
    table = Table()
    table.add_column("derived for the AWS instance")
    for name in ("vCPU", "USD/hour", "USD per 1M output tokens"):
        table.add_column(name, justify="right")
    for cost in costs:
        item = cost.instance
        price = f"{cost.usd_per_million_output_tokens:.2f}"
        table.add_row(item.instance_type, str(item.vcpus), f"{item.usd_per_hour:.5f}", price)
    return table


def show(console: Console, result: Result, answer: RequestRecord) -> None:
    report = result.report
    console.print(f"[cyan]> {escape(PROMPTS[0])}[/]")
    console.print(f"{escape(answer.text.strip() or answer.error)}\n")
    console.print(
        f"[bold]{report.model}, {report.users} users, {report.requests} chats on {result.host.cpu.model_name}[/]"
    )
    console.print(result_table(report))
    if report.requests < 100:
        console.print("[dim]Of fewer than 100 values, p99 is the largest.[/]")
    console.print("\n[bold]What that rate would cost[/]")
    console.print(cost_table(result.costs))
    console.print(
        "[dim]Derived: this host's rate at that instance's on-demand price (us-east-1, Linux, "
        f"{result.prices_as_of[:10]}): USD/hour / 3600 / tokens/s x 1e6. Nothing is scaled for the CPU.[/]"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--requests", type=int, default=3, help="of each user")
    parser.add_argument("--output", type=Path, default=Path("build/demo"), help="folder for report.json and the log")
    parser.add_argument("--picture", type=Path, help="also save the tables as SVG here (default: in the folder)")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)

    model = pull(arguments.model)
    console.print(f"Serving {model.name}")
    server = Server(model, arguments.output / "server.log")
    try:
        report, answer, records = asyncio.run(measure(server, console, arguments.users, arguments.requests))
    finally:
        exit_code = server.stop()

    result = Result.of(report)
    shown = Console(record=True, width=88, highlight=False)
    show(shown, result, answer)
    picture = arguments.picture or arguments.output / "demo.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(_FONT_LINK.sub("", shown.export_svg(title="make demo")), encoding="utf-8")
    document = json.dumps(to_jsonable(result), indent=2) + "\n"
    (arguments.output / "report.json").write_text(document, encoding="utf-8")
    console.print(f"Report: {arguments.output / 'report.json'}; picture: {picture}")

    for record in (answer, *records):
        if not record.ok:
            console.print(f"[bold red]A request failed:[/] {escape(record.error)}")
    if exit_code != 0:
        console.print(f"[bold red]The server ended with {exit_code}[/]: {arguments.output / 'server.log'}")
    return 1 if report.failed or not answer.ok or exit_code != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
