"""OpenVINO GenAI as a worker of `make bench-rivals`: its continuous-batching pipeline on the GGUF file."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai
from worker import serve


class OpenVino:
    """The pipeline has no single step: a step's time is the difference of runs that end a few tokens apart."""

    def load(
        self, *, path: str, threads: int, sequences: int, context: int, settings: dict[str, Any]
    ) -> dict[str, Any]:
        """See worker.Program; settings are properties of the CPU plugin. No prefix is kept: turns repeat prompts."""
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.max_num_seqs = max(sequences, 32)
        scheduler.max_num_batched_tokens = max(context, 512)
        properties = {"INFERENCE_NUM_THREADS": threads, **settings}
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(path, scheduler, "CPU", properties)
        self.prompt: list[int] = []
        self.batch = 0
        return {"version": f"OpenVINO GenAI {openvino_genai.__version__}", "settings": settings}

    def generate(self, prompts: list[list[int]], count: int) -> tuple[float, list[list[int]]]:
        """Seconds and the new tokens of each prompt, `count` of them."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = count
        config.do_sample = False
        config.ignore_eos = True
        inputs = [ov.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
        begin = time.perf_counter()
        results = self.pipeline.generate(inputs, [config] * len(inputs))
        seconds = time.perf_counter() - begin
        return seconds, [list(result.m_generation_ids[0]) for result in results]

    def prefill(self, *, prompts: list[list[int]]) -> dict[str, Any]:
        """One new token of each prompt: that is the prompt's computation."""
        return {"seconds": self.generate(prompts, 1)[0]}

    def begin_decode(self, *, prompt: list[int], batch: int) -> dict[str, Any]:
        """See worker.Program."""
        self.prompt, self.batch = prompt, batch
        return {}

    def decode(self, *, steps: int) -> dict[str, Any]:
        """`steps` more tokens than one: the difference is decode alone."""
        prompts = [self.prompt] * self.batch
        short = self.generate(prompts, 1)[0]
        whole = self.generate(prompts, steps + 1)[0]
        step = max(whole - short, 1e-9) / steps
        return {"seconds": step * steps, "steps": [step] * steps}

    def choices(self, *, tokens: list[int], first: int) -> dict[str, Any]:
        """The next token of every beginning of the text."""
        prompts = [tokens[: i + 1] for i in range(first, len(tokens))]
        return {"choices": [new[0] for new in self.generate(prompts, 1)[1]]}


if __name__ == "__main__":
    serve(OpenVino())
