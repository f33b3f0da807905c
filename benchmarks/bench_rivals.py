"""Times tokenmill and a rival in turn on the same files: medians, ratios, and how near to the machine's limits each is.

Both programs are loaded at the same time and take turns, case by case, so that whatever else the machine does meets
both alike. The rival runs in an environment of its own (`make bench-rivals` builds it) and with its best settings,
found out first, for each case apart. Before anything is timed, both must choose the same next tokens for a text.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from make_model import PRESETS, make_model
from rich.console import Console
from rich.table import Table

from tokenmill import _native
from tokenmill.engine.bench.limits import cold_bytes, measure_limits, open_bench, rates_of
from tokenmill.engine.bench.model_work import Chunk, step_work
from tokenmill.engine.bench.roofline import least_time
from tokenmill.engine.bench.session import Session
from tokenmill.engine.bench.spread import spread_of
from tokenmill.engine.options import EngineOptions
from tokenmill.engine.placement import place
from tokenmill.models import plan_model
from tokenmill.text.tokenizer import Tokenizer
from tokenmill.vocabulary.bench_report import Figure, Limit, Row
from tokenmill.weights.builtin_models import DEFAULT_MODEL
from tokenmill.weights.fetch import fetch
from tokenmill.weights.read_gguf import read_gguf

HERE = Path(__file__).resolve().parent
TEXT = HERE.parent / "README.md"
PROMPT_TOKENS = 48
CHECKED_TOKENS = 32
EXAMPLES = """examples:
  bench_rivals.py --only smollm2 --rounds 5                      the small model alone
  bench_rivals.py --only 7b-q4_0 --json out.json                 a 3.8 GB file is made first and kept
  bench_rivals.py --rival openvino --rival-python venv/bin/python
"""
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "llama_cpp": [{"flash_attention": fa, "repack": repack} for fa in (True, False) for repack in (True, False)],
    "openvino": [{}],
}


@dataclass(frozen=True, slots=True)
class Case:
    """Prefill of one prompt of `tokens`, or decode of `batch` sequences after a prompt of `tokens`."""

    kind: str
    tokens: int
    batch: int = 1

    def label(self) -> str:
        """For people."""
        if self.kind == "prefill":
            return f"prefill {self.tokens}"
        context = f", context {self.tokens}" if self.tokens != PROMPT_TOKENS else ""
        return f"decode {self.batch}{context}"


@dataclass(frozen=True, slots=True)
class Subject:
    """A model and what is measured on it.

    Attributes:
        preset: of make_model.py, with changed fields; empty: a model that `pull` knows.
        agreement: share of next tokens that must be the rival's. Random weights give flat logits, which the rounding
            of either program tips over now and then.
    """

    name: str
    cases: tuple[Case, ...]
    preset: str = ""
    weight_type: str = ""
    layers: int = 0
    agreement: float = 0.9

    def path(self, folder: Path) -> Path:
        """The file; makes it where it has to be made."""
        if not self.preset:
            return fetch(self.name)
        path = folder / f"{self.name}.gguf"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.unlink(missing_ok=True)
            shape = PRESETS[self.preset]
            shape = dataclasses.replace(shape, layers=self.layers or shape.layers)
            make_model(part, shape, self.weight_type, fetch(DEFAULT_MODEL), 1)
            part.rename(path)
        return path


def _cases(prefill: Sequence[int], decode: Sequence[int], context: int = 0) -> tuple[Case, ...]:
    long = (Case("decode", context, 1),) if context else ()
    return (
        *(Case("prefill", tokens) for tokens in prefill),
        *(Case("decode", PROMPT_TOKENS, batch) for batch in decode),
        *long,
    )


CURVE = tuple(range(1, 17))
SUBJECTS = (
    Subject(DEFAULT_MODEL, _cases((128, 512), CURVE)),
    Subject("qwen2.5-coder-0.5b", _cases((128, 512), CURVE, context=8192)),
    Subject("7b-q4_0", _cases((128, 512), (1, 16)), "7b", "Q4_0", agreement=0.5),
    Subject("7b-q4_k_m", _cases((128, 512), (1, 16)), "7b", "Q4_K_M", agreement=0.5),
    Subject("7b-8-layers-q8_0", _cases((128,), (1, 16)), "7b", "Q8_0", 8, agreement=0.5),
    Subject("7b-8-layers-q5_k", _cases((128,), (1, 16)), "7b", "Q5_K", 8, agreement=0.5),
)


class Worker:
    """A program in a process of its own (rivals/worker.py)."""

    def __init__(self, python: Path, script: str, log: Path) -> None:
        self._log = log
        self._process = subprocess.Popen(
            [python, HERE / "rivals" / f"{script}_worker.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("ab"),
            text=True,
        )

    def __call__(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Runs one command. Raises RuntimeError with the program's own words."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the worker has no pipes")
        self._process.stdin.write(json.dumps({"do": command, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"the worker ended; see {self._log}"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()


@dataclass
class Run:
    """What a whole run shares."""

    rival: str
    pythons: dict[str, Path]
    threads: int
    rounds: int
    log: Path

    @contextmanager
    def loaded(self, script: str, path: Path, cases: Sequence[Case], settings: dict[str, Any]) -> Iterator[Worker]:
        """A worker with the model loaded, for these cases."""
        worker = Worker(self.pythons[script], script, self.log)
        try:
            worker(
                "load",
                path=str(path),
                threads=self.threads,
                sequences=max(case.batch for case in cases),
                context=max(case.tokens for case in cases) + 64,
                settings=settings,
            )
            yield worker
        finally:
            worker.close()


def steps_of(case: Case) -> int:
    """Decode steps of one turn: enough to be a median, few enough for large models."""
    return 8 if case.batch < 8 else 5


def turn(worker: Worker, case: Case, prompt: list[int]) -> float:
    """Tokens per second of one turn."""
    if case.kind == "prefill":
        return case.tokens / float(worker("prefill", prompts=[prompt])["seconds"])
    return case.batch / median(worker("decode", steps=steps_of(case))["steps"])


def begin(worker: Worker, case: Case, prompt: list[int]) -> None:
    """What comes before the first turn, untimed."""
    if case.kind == "decode":
        worker("begin_decode", prompt=prompt, batch=case.batch)
        worker("decode", steps=1)
    else:
        worker("prefill", prompts=[prompt[:16]])


def prompt_of(case: Case, text: Sequence[int]) -> list[int]:
    """The case's prompt: a text, repeated as often as it takes."""
    return [text[i % len(text)] for i in range(case.tokens)]


def best_settings(run: Run, path: Path, cases: Sequence[Case], text: Sequence[int]) -> dict[Case, dict[str, Any]]:
    """The rival's fastest setting for each case, by one turn each (two where it is quick)."""
    fastest: dict[Case, tuple[float, dict[str, Any]]] = {}
    asked = [
        case for case in cases if case.kind == "prefill" or case.batch in (1, 4, 16) or case.tokens > PROMPT_TOKENS
    ]
    for settings in SETTINGS[run.rival]:
        with run.loaded(run.rival, path, cases, settings) as worker:
            for case in asked:
                begin(worker, case, prompt_of(case, text))
                rate = max(turn(worker, case, prompt_of(case, text)) for _ in range(2))
                if case not in fastest or rate > fastest[case][0]:
                    fastest[case] = (rate, settings)
    # Batches between those that were tried take the setting of the nearest one below.
    chosen = {case: settings for case, (_, settings) in fastest.items()}
    for case in cases:
        if case not in chosen:
            nearest = max(b.batch for b in asked if b.kind == "decode" and b.batch <= case.batch)
            chosen[case] = chosen[Case("decode", PROMPT_TOKENS, nearest)]
    return chosen


def agreement(ours: Worker, rival: Worker, text: Sequence[int]) -> float:
    """Share of positions of a text after which both have the same largest logit."""
    tokens = list(text[: PROMPT_TOKENS + CHECKED_TOKENS])
    first = len(tokens) - CHECKED_TOKENS
    pairs = zip(
        ours("choices", tokens=tokens, first=first)["choices"],
        rival("choices", tokens=tokens, first=first)["choices"],
        strict=True,
    )
    return sum(a == b for a, b in pairs) / CHECKED_TOKENS


def measure(
    run: Run, subject: Subject, path: Path, text: Sequence[int]
) -> Iterator[tuple[Case, list[float], list[float], str]]:
    """For each case: tokens/s of every turn, ours and the rival's, and the rival's settings."""
    chosen = best_settings(run, path, subject.cases, text)
    groups: dict[str, list[Case]] = {}
    for case in subject.cases:
        groups.setdefault(json.dumps(chosen[case]), []).append(case)
    for settings, cases in groups.items():
        with ExitStack() as stack:
            ours = stack.enter_context(run.loaded("tokenmill", path, subject.cases, {}))
            rival = stack.enter_context(run.loaded(run.rival, path, subject.cases, json.loads(settings)))
            same = agreement(ours, rival, text)
            if same < subject.agreement:
                raise SystemExit(
                    f"{subject.name}: only {same:.0%} of the next tokens are the rival's; nothing was timed"
                )
            for case in cases:
                prompt = prompt_of(case, text)
                begin(ours, case, prompt)
                begin(rival, case, prompt)
                rates: tuple[list[float], list[float]] = ([], [])
                for _ in range(run.rounds):
                    rates[0].append(turn(ours, case, prompt))
                    rates[1].append(turn(rival, case, prompt))
                yield case, rates[0], rates[1], settings


def work_of(case: Case) -> list[Chunk]:
    """What one step, or one prompt, has to compute."""
    if case.kind == "prefill":
        return [Chunk(case.tokens, 0)]
    return [Chunk(1, case.tokens)] * case.batch


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [subject.name for subject in SUBJECTS]
    parser.add_argument("--rival", choices=SETTINGS, default="llama_cpp", help="(%(default)s)")
    parser.add_argument("--rival-python", type=Path, help="its environment's python; default: what make builds")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"a model; repeat. Of: {', '.join(names)}")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each program and case (%(default)s)")
    parser.add_argument("--threads", type=int, help="of both programs; default: as the engine chooses")
    parser.add_argument("--models", type=Path, default=Path("build/bench-models"), help="where made files are kept")
    parser.add_argument("--json", type=Path, help="write everything there")
    arguments = parser.parse_args()
    unknown = set(arguments.only or ()) - set(names)
    if unknown:
        parser.error(f"--only: no model is called {', '.join(sorted(unknown))}; there are {', '.join(names)}")

    console = Console() if sys.stdout.isatty() else Console(width=140)
    session = Session(_native.cpu_features())
    placement = place(session.facts, EngineOptions(threads=arguments.threads), 0)
    python = arguments.rival_python or Path("build") / "rivals" / arguments.rival / "bin" / "python"
    log = Path("build") / "bench_rivals.log"
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    run = Run(
        arguments.rival,
        {arguments.rival: python, "tokenmill": Path(sys.executable)},
        placement.threads,
        arguments.rounds,
        log,
    )
    kernel_set = _native.select_kernel_set(None)
    table = Table(title=f"tokenmill ({kernel_set}) and {arguments.rival}, {placement.threads} threads, tokens/s")
    for column in (
        "model",
        "case",
        "tokenmill",
        "of the limit",
        arguments.rival,
        "of the limit",
        "ratio",
        "its settings",
    ):
        table.add_column(column, justify="left" if column in ("model", "case", "its settings") else "right")
    limits: tuple[Limit, ...] = ()
    for subject in SUBJECTS:
        if arguments.only and subject.name not in arguments.only:
            continue
        path = subject.path(arguments.models)
        model_file = read_gguf(path)
        plan = plan_model(model_file)
        text = Tokenizer.from_metadata(model_file.metadata).encode(
            TEXT.read_text(encoding="utf-8"), add_special=False, parse_special=False
        )
        with console.status(f"{subject.name}: the machine's limits"):
            bench = open_bench(kernel_set, placement)
            limits = measure_limits(bench, cold_bytes(session.facts), 0.3)
            del bench
        rates = rates_of(limits)
        with console.status(f"{subject.name}: settings of {arguments.rival}, then turns"):
            for case, ours, rival, settings in measure(run, subject, path, text):
                least = least_time(step_work(model_file, plan, work_of(case)), rates)
                amount = case.tokens if case.kind == "prefill" else case.batch
                most = amount / least.seconds if least else 0.0
                shown = " ".join(f"{key}={value}" for key, value in json.loads(settings).items())
                table.add_row(
                    subject.name,
                    case.label(),
                    f"{median(ours):.1f}",
                    f"{median(ours) / most:.0%}" if most else "",
                    f"{median(rival):.1f}",
                    f"{median(rival) / most:.0%}" if most else "",
                    f"{median(ours) / median(rival):.2f}",
                    shown,
                )
                for engine, values in (("tokenmill", ours), (arguments.rival, rival)):
                    session.rows.append(
                        Row(
                            f"{subject.name}, {case.label()}",
                            {"engine": engine, "settings": shown if engine != "tokenmill" else ""},
                            spread_of([amount / value for value in values]),
                            (Figure("rate", median(values), "tokens/s", "derived", "tokens / median time"),),
                        )
                    )
                console.log(f"{subject.name}, {case.label()}: {median(ours):.1f} to {median(rival):.1f} tokens/s")
    console.print(table)
    for limit in limits:
        console.print(f"limit {limit.name}: {limit.rate / 1e9:.1f} G{limit.unit} ({limit.how})")
    report = session.report("rivals", kernel_set=kernel_set, threads=placement.threads, limits=limits)
    if report.load.busy:
        console.print(report.load.busy)
    if arguments.json:
        arguments.json.write_text(json.dumps(dataclasses.asdict(report), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
