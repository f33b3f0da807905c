"""Whole-model logits over real text as hashes: for a model of every weight format, for long contexts, for real files.

The hashes of the reference set are committed (tests/golden/logits/, made by tests/golden/make_logit_goldens.py), so
that a machine on which the reference is not run, or another architecture, can be held to them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from numerics.batch_driver import PAGE_TOKENS, Played, Script, play
from tiny_models import BLOCKS, TinyModel, tiny_tensors
from tokenmill import _native
from tokenmill.models import plan_model
from tokenmill.weights.pack import load_weights
from tokenmill.weights.progress import SilentProgress
from tokenmill.weights.read_gguf import read_gguf

TESTS = Path(__file__).parents[1]
GOLDENS = TESTS / "golden" / "logits"
TEXT = (TESTS / "data" / "real_text.txt").read_bytes()
POSITIONS = 640
NEIGHBOURS = 31

# One model for each format, all its matrices in it. Rows fill no whole panel. Where the format allows it, neither K
# is a multiple of 256, and float formats get a K that fills no group of 32.
UNIFORM: dict[str, TinyModel] = {}
for _name, (_block, _) in BLOCKS.items():
    if _block == 256:
        _shape = TinyModel("qwen3", embedding=256, heads=8, kv_heads=2, head_dim=32, hidden=256)
    elif _block == 32:
        _shape = TinyModel("qwen2", embedding=160, heads=5, kv_heads=1, head_dim=32, hidden=224)
    else:
        _shape = TinyModel("llama", embedding=72, heads=3, kv_heads=3, head_dim=24, hidden=100)
    UNIFORM[_name] = dataclasses.replace(_shape, vocab=301, default_format=_name, seed=len(UNIFORM) + 1)

LONG = TinyModel("llama", layers=2, heads=2, kv_heads=1, hidden=64, embedding=32, windows=(0, 700), context=8192)
LONG_POSITIONS = 4200


def sha256_of(data: bytes | str) -> str:
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()


def text_script(positions: int = POSITIONS, *, prompt: int | None = None) -> Script:
    """The bytes of the text as tokens, as a tiny model's tokenizer would give them."""
    tokens = np.frombuffer(TEXT[:positions], np.uint8).astype(np.int32)
    return Script(tokens, positions if prompt is None else prompt)


def weights_hash(model: TinyModel) -> str:
    """Tells other weights (NumPy may change its random streams) from other logits."""
    return sha256_of(b"".join(tensor.data for tensor in tiny_tensors(model).values()))


def logits_hash(played: Played) -> str:
    """One hash of the logits after every position."""
    assert not played.nonfinite
    return sha256_of("".join(played.digests))


def neighbours(script: Script, vocab: int, chunk: int) -> list[Script]:
    """Random sequences that join in the first steps, prompt first, and decode until the script has ended."""
    rng = np.random.default_rng(chunk)
    steps = -(-script.prompt // chunk) + len(script.tokens) - script.prompt
    prompts = [int(length) for length in rng.integers(1, 60, NEIGHBOURS)]
    return [
        Script(rng.integers(0, vocab, prompt + steps, dtype=np.int32), prompt, start=int(rng.integers(0, 4)))
        for prompt in prompts
    ]


def pages_of(scripts: Sequence[Script]) -> int:
    return sum(-(-len(script.tokens) // PAGE_TOKENS) for script in scripts)


def text_hash(model: _native.Model, script: Script, others: Sequence[Script], chunk: int) -> str:
    """The script's hash, played among the others. The model needs pages_of all of them."""
    scripts = [script, *others]
    return logits_hash(play(model, scripts, chunk=chunk, pages=pages_of(scripts), seed=chunk)[0])


def golden_of(name: str) -> Mapping[str, Any]:
    value: Mapping[str, Any] = json.loads((GOLDENS / f"{name}.json").read_text(encoding="utf-8"))
    return value


# --- real files ---


def open_file(path: Path, kernel_set: str, threads: int, pages: int) -> _native.Model:
    model_file = read_gguf(path)
    plan = plan_model(model_file)
    model = _native.Model(dataclasses.asdict(plan), kernel_set=kernel_set, threads=threads, cpus=None)
    load_weights(model, model_file, plan, SilentProgress())
    model.allocate_kv(pages)
    return model


def real_script(stem: str) -> Script:
    """The first tokens of the text by the model's tokenizer; the divergence goldens hold them."""
    tokens: Sequence[int] = json.loads((TESTS / "golden" / "kl" / f"{stem}.json").read_text())["tokens"]
    chosen: NDArray[np.int32] = np.array(tokens[:POSITIONS], np.int32)
    return Script(chosen, POSITIONS)
