"""Times tokenmill and a rival in turn on the same files: medians, ratios, and how near to the machine's limits each is.

Both programs are loaded at the same time and take turns, case by case, so that whatever else the machine does meets
both alike. The rival runs in an environment of its own (`make bench-rivals` builds it) and with its best settings,
found out first, for each case apart. Before anything is timed, both must choose the same next tokens for a text.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rivals.subjects import PROMPT_TOKENS, SUBJECTS, Case, Subject, subject_of_file

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
from tokenmill.vocabulary.errors import TokenmillError
from tokenmill.weights.read_gguf import read_gguf

HERE = Path(__file__).resolve().parent
TEXT = HERE.parent / "README.md"
CHECKED_TOKENS = 32
EXAMPLES = """examples:
  bench_rivals.py --only smollm2-135m --rounds 5                 the small model alone
  bench_rivals.py --only 7b-q4_0 --json out.json                 a 3.8 GB file is made first and kept
  bench_rivals.py --file model.gguf                              a file of your own
  bench_rivals.py --rival tokenmill --file model.gguf            tokenmill against itself: what noise looks like
"""
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "llama_cpp": [{"flash_attention": fa, "repack": repack} for fa in (True, False) for repack in (True, False)],
    "openvino": [{}],
    "tokenmill": [{}],
}


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
                context=max(PROMPT_TOKENS + CHECKED_TOKENS, *(case.tokens for case in cases)) + 64,
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
    """The rival's fastest setting for each case, by one turn each."""
    fastest: dict[Case, tuple[float, dict[str, Any]]] = {}
    prefills = [case for case in cases if case.kind == "prefill"]
    decodes = [case for case in cases if case.kind == "decode" and (case.batch in (1, 4, 16) or len(cases) == 1)]
    asked = [*prefills[:1], *decodes]
    for settings, kind in itertools.product(SETTINGS[run.rival], ("prefill", "decode")):
        tried = [case for case in asked if case.kind == kind]
        if not tried:
            continue
        with run.loaded(run.rival, path, tried, settings) as worker:
            for case in tried:
                begin(worker, case, prompt_of(case, text))
                rate = turn(worker, case, prompt_of(case, text))
                if case not in fastest or rate > fastest[case][0]:
                    fastest[case] = (rate, settings)
    # Longer prompts take the setting of the shortest, batches in between that of the nearest one below.
    chosen = {case: settings for case, (_, settings) in fastest.items()}
    for case in cases:
        if case not in chosen:
            likes = [other for other in asked if other.kind == case.kind and other.batch <= case.batch]
            chosen[case] = chosen[likes[-1]]
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
    groups: dict[tuple[str, str], list[Case]] = {}  # by kind: sixteen long contexts would need much memory
    for case in subject.cases:
        groups.setdefault((json.dumps(chosen[case]), case.kind), []).append(case)
    for (settings, _), cases in groups.items():
        with ExitStack() as stack:
            ours = stack.enter_context(run.loaded("tokenmill", path, cases, {}))
            rival = stack.enter_context(run.loaded(run.rival, path, cases, json.loads(settings)))
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
    parser.add_argument("--file", type=Path, action="append", default=[], help="a GGUF file, instead of --only; repeat")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each program and case (%(default)s)")
    parser.add_argument("--long", action="store_true", help="long contexts instead (many minutes for a rival)")
    parser.add_argument("--threads", type=int, help="of both programs; default: as the engine chooses")
    parser.add_argument(
        "--models", type=Path, default=Path("build/bench-models"), help="where made files are kept (%(default)s)"
    )
    parser.add_argument("--json", type=Path, help="write everything there")
    arguments = parser.parse_args()
    unknown = set(arguments.only or ()) - set(names)
    if unknown:
        parser.error(f"--only: no model is called {', '.join(sorted(unknown))}; there are {', '.join(names)}")

    console = Console() if sys.stdout.isatty() else Console(width=140)
    session = Session(_native.cpu_features())
    placement = place(session.facts, EngineOptions(threads=arguments.threads), 0)
    own = arguments.rival == "tokenmill"
    built = Path(sys.executable) if own else Path("build") / "rivals" / arguments.rival / "bin" / "python"
    python = arguments.rival_python or built
    if not python.exists():
        parser.error(f"there is no {python}: run `make bench-rivals RIVAL={arguments.rival}`, or give --rival-python")
    log = Path("build") / "bench_rivals.log"
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    run = Run(
        arguments.rival,
        {"tokenmill": Path(sys.executable), arguments.rival: python},
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
    subjects = [subject_of_file(path) for path in arguments.file] or [
        subject for subject in SUBJECTS if not arguments.only or subject.name in arguments.only
    ]
    for known in subjects:
        subject = known
        if arguments.long:
            subject = dataclasses.replace(subject, cases=tuple(Case("decode", n) for n in subject.contexts))
        if not subject.cases:
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
                console.print(f"{subject.name}, {case.label()}: {median(ours):.1f} to {median(rival):.1f} tokens/s")
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
    try:
        sys.exit(main())
    except (TokenmillError, RuntimeError) as error:
        sys.exit(f"bench_rivals: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
