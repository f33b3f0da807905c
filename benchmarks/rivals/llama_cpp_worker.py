"""llama.cpp, as the llama-cpp-python package builds it, as a worker of `make bench-rivals`."""

from __future__ import annotations

import ctypes
import time
from importlib.metadata import version
from typing import Any

import llama_cpp
from worker import serve

UBATCH = 512  # llama.cpp's own default: prompt tokens computed at once


class LlamaCpp:
    """One model with one stream of KV cells per sequence, as llama.cpp's own batched benchmark has it."""

    def load(
        self, *, path: str, threads: int, sequences: int, context: int, settings: dict[str, Any]
    ) -> dict[str, Any]:
        """settings: flash_attention (on by `true`), repack (weights in the layout of its fast kernels)."""
        llama_cpp.llama_backend_init()
        # Its log is loud; the callback is kept, or ctypes would free it.
        self.log = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))
        model_params = llama_cpp.llama_model_default_params()
        model_params.use_extra_bufts = settings.get("repack", True)
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), model_params)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = sequences * (-(-context // 256) * 256)
        params.n_batch = max(2048, context)
        params.n_ubatch = UBATCH
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = 1 if settings.get("flash_attention", True) else 0
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp makes no context of this size")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(params.n_batch, 0, 1)
        self.prompt: list[int] = []
        self.streams = 0
        return {"version": f"llama-cpp-python {version('llama-cpp-python')}", "settings": settings}

    def run(self, tokens: list[list[int]], position: int, *, logits_from: int | None = None) -> None:
        """One llama_decode of `tokens` per sequence, logits for last rows or from that row on."""
        count = 0
        for sequence, row in enumerate(tokens):
            for i, token in enumerate(row):
                self.batch.token[count] = token
                self.batch.pos[count] = position + i
                self.batch.n_seq_id[count] = 1
                self.batch.seq_id[count][0] = sequence
                self.batch.logits[count] = i == len(row) - 1 if logits_from is None else i >= logits_from
                count += 1
        self.batch.n_tokens = count
        if llama_cpp.llama_decode(self.context, self.batch) != 0:
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)

    def largest(self, row: int) -> int:
        """The token with the largest logit of an output row."""
        logits = llama_cpp.llama_get_logits_ith(self.context, row)
        values = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float * self.vocab)).contents
        return max(range(self.vocab), key=values.__getitem__)

    def prefill(self, *, prompts: list[list[int]]) -> dict[str, Any]:
        """See worker.Program."""
        llama_cpp.llama_memory_clear(self.memory, True)
        begin = time.perf_counter()
        self.run(prompts, 0)
        return {"seconds": time.perf_counter() - begin}

    def begin_decode(self, *, prompt: list[int], batch: int) -> dict[str, Any]:
        """See worker.Program."""
        llama_cpp.llama_memory_clear(self.memory, True)
        self.prompt, self.streams = prompt, batch
        chunk = max(1, UBATCH // batch)
        for at in range(0, len(prompt), chunk):
            self.run([prompt[at : at + chunk]] * batch, at)
        return {}

    def decode(self, *, steps: int) -> dict[str, Any]:
        """The same token again and again: choosing one in Python would be timed with it."""
        for sequence in range(self.streams):
            llama_cpp.llama_memory_seq_rm(self.memory, sequence, len(self.prompt), -1)
        times = []
        for i in range(steps):
            begin = time.perf_counter()
            self.run([[self.prompt[-1]]] * self.streams, len(self.prompt) + i)
            times.append(time.perf_counter() - begin)
        return {"seconds": sum(times), "steps": times}

    def choices(self, *, tokens: list[int], first: int) -> dict[str, Any]:
        """See worker.Program."""
        llama_cpp.llama_memory_clear(self.memory, True)
        self.run([tokens], 0, logits_from=first)
        return {"choices": [self.largest(row) for row in range(first, len(tokens))]}


if __name__ == "__main__":
    serve(LlamaCpp())
