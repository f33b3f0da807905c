"""Makes tests/golden/kl/<model>.json: the text's token ids, and llama.cpp's divergence from the float64 reference.

    python tests/golden/make_kl_goldens.py MODEL.gguf...

Needs llama-cpp-python (whose version is recorded), gguf and NumPy; tokenmill itself need not be built. llama.cpp runs
on the CPU with its defaults (repacking, flash attention off, KV in fp16). Takes a few minutes a model on two cores.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent / "src")]

from numerics import float64_reference as reference  # noqa: E402
from numerics.divergence import Divergence  # noqa: E402
from tokenmill.models import plan_model  # noqa: E402
from tokenmill.weights.read_gguf import read_gguf  # noqa: E402

TEXT = TESTS / "data" / "real_text.txt"
POSITIONS = 2048


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def make(model: Path) -> dict[str, object]:
    rival = llama_cpp.Llama(
        str(model), n_ctx=POSITIONS, n_batch=512, logits_all=True, n_gpu_layers=0, n_threads=2, verbose=False
    )
    tokens = rival.tokenize(TEXT.read_bytes(), add_bos=False, special=False)[:POSITIONS]
    rival.eval(tokens)

    plan, weights = plan_model(read_gguf(model)), reference.Weights(model)
    hidden = reference.hidden_states(plan, weights, np.array(tokens, dtype=np.int32))
    divergence = Divergence()
    for rows in reference.logits(plan, weights, hidden):
        start = divergence.positions
        divergence.add(rows, rival.scores[start : start + len(rows)])
    return {
        "model": model.name,
        "model_sha256": sha256(model),
        "text": TEXT.name,
        "text_sha256": sha256(TEXT),
        "llama_cpp_python": llama_cpp.__version__,
        "llama_cpp_mean_kl": divergence.mean_kl,
        "llama_cpp_top1_agreement": divergence.top1_agreement,
        "decided_positions": divergence.decided_positions,
        "tokens": tokens,
    }


def main() -> None:
    for argument in sys.argv[1:]:
        model = Path(argument)
        golden = make(model)
        target = TESTS / "golden" / "kl" / f"{model.stem}.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(golden) + "\n")
        print(target, {key: value for key, value in golden.items() if key != "tokens"})


if __name__ == "__main__":
    main()
