"""Random batches for as long as wanted: every logit of a fast set against the reference's hashes.

    python tests/numerics/soak.py --minutes 10 --json build/soak.json [--seed 1]

Each round opens a tiny model on one kernel set with some number of threads, and plays sequences that join, wait, leave
half-way, lose their pages and begin again, or begin behind a prefix on another one's pages, in steps of random chunks,
order and rows whose logits are wanted. Pages are few, handed out in random order and used again at once. A round
follows from (seed, number) alone: --seed S --round N plays it again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from numerics.batch_driver import PAGE_TOKENS, Script, digest_of, open_tiny, play_alone
from numerics.logit_hashes import UNIFORM
from numerics.mixed_models import MODELS
from tiny_models import TinyModel
from tokenmill import __version__, _native

POOL: Mapping[str, TinyModel] = {**MODELS, **UNIFORM}
SCRIPTS = 8
LONGEST = 530
MOST_RUNNING = 32
MOST_ROWS = 700
CHUNKS = (1, 1, 1, 7, 16, 64, 512)
THREADS = (1, 2, 2, 3, 5)
MOST_SHOWN = 20


@dataclasses.dataclass
class Live:
    """One sequence that runs: which script, how far, on which pages."""

    number: int
    position: int = 0
    pages: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Round:
    """What a round did. `mismatches` say script, position and step."""

    number: int
    model: str
    kernel_set: str
    threads: int
    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    mismatches: list[str] = dataclasses.field(default_factory=list)


class Expected:
    """The reference's digests of a model's scripts, computed once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[list[Script], list[list[str]]]] = {}

    def of(self, name: str) -> tuple[list[Script], list[list[str]]]:
        if name not in self._known:
            model = POOL[name]
            rng = np.random.default_rng(list(name.encode()))
            lengths = [LONGEST, 257, *(int(length) for length in rng.integers(1, 150, SCRIPTS - 2))]
            scripts = [Script(rng.integers(0, model.vocab, each, dtype=np.int32), each) for each in lengths]
            pages = -(-LONGEST // PAGE_TOKENS)
            reference = open_tiny(model, "reference", 2)
            reference.allocate_kv(pages)
            self._known[name] = scripts, [play_alone(reference, script, pages).digests for script in scripts]
        return self._known[name]


class Player:
    """Plays one round."""

    def __init__(self, seed: int, number: int, expected: Expected) -> None:
        self._rng = rng = np.random.default_rng([seed, number])
        usable = [str(entry["name"]) for entry in _native.kernel_sets() if entry["usable"]]
        fast = [name for name in usable if name != "reference"]
        names = list(POOL)
        self.round = Round(number, names[number % len(names)], str(rng.choice(fast)), int(rng.choice(THREADS)))
        self._scripts, self._digests = expected.of(self.round.model)
        self._model = open_tiny(POOL[self.round.model], self.round.kernel_set, self.round.threads)
        page_count = int(rng.integers(-(-LONGEST // PAGE_TOKENS), 160))
        self._model.allocate_kv(page_count)
        self._free = [int(page) for page in rng.permutation(page_count)]
        self._running: list[Live] = []
        self._waiting: list[int] = []
        self._users: Counter[int] = Counter()  # sequences on each page

    def play(self, joins: int) -> Round:
        """Until `joins` sequences have joined and ended."""
        counts = self.round.counts
        while counts["joined"] < joins or self._running or self._waiting:
            if counts["joined"] < joins and self._rng.random() < 0.5:
                self._waiting.append(int(self._rng.integers(len(self._scripts))))
                counts["joined"] += 1
            while self._waiting and len(self._running) < MOST_RUNNING:
                self._running.append(self._join(self._waiting.pop(0)))
            for sequence in list(self._running):
                if self._rng.random() < 0.01:
                    self._drop(sequence, again=self._rng.random() < 0.5)
            batch = self._choose_batch()
            if batch:
                self._step(batch)
            for sequence in [each for each in self._running if each.position == self._length(each)]:
                self._drop(sequence, again=False, ended=True)
        return self.round

    def _length(self, sequence: Live) -> int:
        return len(self._scripts[sequence.number].tokens)

    def _join(self, number: int) -> Live:
        """From the start, or behind full pages of another sequence of the same script."""
        full = (len(self._scripts[number].tokens) - 1) // PAGE_TOKENS  # one token at least is computed anew
        donors = [each for each in self._running if each.number == number]
        if not donors or self._rng.random() < 0.3:
            return Live(number)
        donor = donors[int(self._rng.integers(len(donors)))]
        pages = donor.pages[: min(full, donor.position // PAGE_TOKENS)]
        self._users.update(pages)
        self.round.counts["shared_prefixes"] += bool(pages)
        return Live(number, len(pages) * PAGE_TOKENS, list(pages))

    def _drop(self, sequence: Live, *, again: bool, ended: bool = False) -> None:
        """Takes the pages away; they go to the front or the back, as they are."""
        self._running.remove(sequence)
        self._users.subtract(sequence.pages)
        freed = [page for page in sequence.pages if not self._users[page]]
        self._free = [*freed, *self._free] if self._rng.random() < 0.5 else [*self._free, *freed]
        self.round.counts["ended" if ended else "preempted" if again else "cancelled"] += 1
        if again:
            self._waiting.append(sequence.number)

    def _choose_batch(self) -> list[tuple[Live, int]]:
        """Some of the running sequences in any order, each with its number of tokens and the pages for them."""
        batch: list[tuple[Live, int]] = []
        rows = 0
        for index in self._rng.permutation(len(self._running)):
            sequence = self._running[index]
            count = min(int(self._rng.choice(CHUNKS)), self._length(sequence) - sequence.position, MOST_ROWS - rows)
            if count > 0 and self._rng.random() < 0.9 and self._grow(sequence, sequence.position + count):
                batch.append((sequence, count))
                rows += count
        if not batch and self._running:  # nobody can grow: the youngest gives its pages
            self._drop(self._running[-1], again=True)
        return batch

    def _grow(self, sequence: Live, tokens: int) -> bool:
        need = -(-tokens // PAGE_TOKENS) - len(sequence.pages)
        if need > len(self._free):
            return False
        taken = [self._free.pop() for _ in range(need)]
        self._users.update(taken)
        if taken:
            self._model.zero_pages(np.array(taken, np.int32))
        sequence.pages += taken
        return True

    def _step(self, batch: Sequence[tuple[Live, int]]) -> None:
        parts = [self._scripts[each.number].tokens[each.position :][:count] for each, count in batch]
        places = [(each.number, each.position + i) for each, count in batch for i in range(count)]
        share = self._rng.choice((0.1, 0.5, 1.0))
        wanted = np.flatnonzero(self._rng.random(len(places)) < share).astype(np.int32)
        if not len(wanted):
            wanted = np.array([len(places) - 1], np.int32)
        result = self._model.step(
            np.concatenate(parts),
            np.cumsum([0, *(count for _, count in batch)], dtype=np.int32),
            np.array([each.position for each, _ in batch], np.int32),
            np.concatenate([np.array(each.pages, np.int32) for each, _ in batch]),
            np.cumsum([0, *(len(each.pages) for each, _ in batch)], dtype=np.int32),
            wanted,
            None,
            [None] * len(wanted),
            return_logits=True,
        )
        assert result.logits is not None
        counts = self.round.counts
        counts["steps"] += 1
        counts["rows"] += len(places)
        counts["logits_compared"] += len(wanted)
        for row, logits in zip(wanted, result.logits, strict=True):
            number, position = places[row]
            if digest_of(logits) != self._digests[number][position]:
                counts["mismatches"] += 1
                self.round.mismatches.append(f"script {number}, position {position}, step {counts['steps']}")
        for each, count in batch:
            each.position += count


def rounds(seed: int, expected: Expected, joins: int = 40) -> Iterator[Round]:
    """Round after round, without end."""
    number = 0
    while True:
        yield Player(seed, number, expected).play(joins)
        number += 1


def report(seed: int, played: Sequence[Round], seconds: float) -> dict[str, Any]:
    """One JSON document of what a soak did."""
    totals: Counter[str] = Counter()
    cases: dict[tuple[str, str, int], Counter[str]] = {}
    for each in played:
        totals += each.counts
        case = cases.setdefault((each.model, each.kernel_set, each.threads), Counter())
        case += each.counts
        case["rounds"] += 1
    failures = [
        {"round": each.number, "model": each.model, "kernel_set": each.kernel_set, "threads": each.threads}
        | {"mismatches": each.mismatches[:MOST_SHOWN]}
        for each in played
        if each.mismatches
    ]
    return {
        "tokenmill": __version__,
        "seed": seed,
        "seconds": round(seconds, 1),
        "rounds": len(played),
        "cpu_features": _native.cpu_features(),
        "totals": {"mismatches": 0, **totals},
        "failures": failures[:MOST_SHOWN],
        "cases": [
            {"model": model, "kernel_set": kernel_set, "threads": threads, **counts}
            for (model, kernel_set, threads), counts in sorted(cases.items())
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--round", type=int, help="play this round alone")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write what was done")
    arguments = parser.parse_args()
    expected, begin = Expected(), time.monotonic()
    played: list[Round] = []
    if arguments.round is not None:
        played.append(Player(arguments.seed, arguments.round, expected).play(40))
    else:
        for each in rounds(arguments.seed, expected):
            played.append(each)
            if time.monotonic() - begin > 60 * arguments.minutes:
                break
    document = report(arguments.seed, played, time.monotonic() - begin)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: document[key] for key in ("seed", "seconds", "rounds", "totals", "failures")}))
    sys.exit(1 if document["failures"] else 0)


if __name__ == "__main__":
    main()
