"""tokenmill's engine as a worker of `make bench-rivals`: the steps that the server runs, without the server."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from worker import serve

from tokenmill import _native
from tokenmill.engine.load import load_parts
from tokenmill.engine.model_runner import sampler_config
from tokenmill.engine.options import EngineOptions
from tokenmill.vocabulary.generation import SamplingParams

PAGE_TOKENS = 16
GREEDY = sampler_config(SamplingParams(temperature=0.0))


class Tokenmill:
    """One model, its KV pages dealt out to sequences once: sequence i has the i-th share."""

    def load(
        self, *, path: str, threads: int, sequences: int, context: int, settings: dict[str, Any]
    ) -> dict[str, Any]:
        """See worker.Program; there is nothing to set."""
        parts = load_parts(
            Path(path),
            EngineOptions(threads=threads, context_length=context, max_sequences=sequences, **settings),
        )
        self.model = parts.runner.model
        self.pages = -(-context // PAGE_TOKENS)
        self.prompt: list[int] = []
        self.batch = 0
        return {"version": version("tokenmill"), "settings": {"kernel set": parts.info.kernel_set}}

    def step(self, tokens: list[list[int]], position: int, *, logits_from: int | None = None) -> _native.StepResult:
        """One step of `tokens` per sequence at one position: draws greedily, or gives the logits from a row on."""
        flat = np.array([token for row in tokens for token in row], np.int32)
        starts = np.cumsum([0, *(len(row) for row in tokens)], dtype=np.int32)
        used = -(-(position + max(len(row) for row in tokens)) // PAGE_TOKENS)
        table = np.concatenate([np.arange(used, dtype=np.int32) + np.int32(i * self.pages) for i in range(len(tokens))])
        draws = logits_from is None
        result = self.model.step(
            flat,
            starts,
            np.full(len(tokens), position, np.int32),
            table,
            np.arange(len(tokens) + 1, dtype=np.int32) * np.int32(used),
            starts[1:] - np.int32(1) if draws else np.arange(logits_from, len(flat), dtype=np.int32),
            [GREEDY] * len(tokens) if draws else None,
            [None] * len(tokens) if draws else [],
            return_logits=not draws,
        )
        if result.nonfinite.any():
            raise RuntimeError("a value of the step is not finite")
        return result

    def prefill(self, *, prompts: list[list[int]]) -> dict[str, Any]:
        """All prompts in one step, as the scheduler would cut it for this budget."""
        begin = time.perf_counter()
        self.step(prompts, 0)
        return {"seconds": time.perf_counter() - begin}

    def begin_decode(self, *, prompt: list[int], batch: int) -> dict[str, Any]:
        """Every sequence's own pages are filled."""
        self.prompt, self.batch = prompt, batch
        chunk = max(1, 512 // batch)
        for at in range(0, len(prompt), chunk):
            self.step([prompt[at : at + chunk]] * batch, at)
        return {}

    def decode(self, *, steps: int) -> dict[str, Any]:
        """Drawing the next token is part of the step, as in the server."""
        tokens = [[self.prompt[-1]]] * self.batch
        times = []
        for i in range(steps):
            begin = time.perf_counter()
            result = self.step(tokens, len(self.prompt) + i)
            times.append(time.perf_counter() - begin)
            tokens = [[token] for token in result.token_ids.tolist()]
        return {"seconds": sum(times), "steps": times}

    def choices(self, *, tokens: list[int], first: int) -> dict[str, Any]:
        """See worker.Program."""
        logits = self.step([tokens], 0, logits_from=first).logits
        if logits is None:
            raise RuntimeError("the step gave no logits")
        return {"choices": logits.argmax(axis=1).tolist()}


if __name__ == "__main__":
    serve(Tokenmill())
