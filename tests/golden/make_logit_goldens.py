"""Makes tests/golden/logits/: hashes of the reference set's logits over real text.

    python tests/golden/make_logit_goldens.py [--check] [MODEL.gguf...]

Always the tiny models of every weight format and of long contexts (20 s), then each model file given, which the
reference set takes minutes for. --check compares with what is there instead of writing it. A difference is a change of
the contract (docs/numerics.md), or of the tiny models' random weights, whose hashes are there too.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS)]

from numerics import logit_hashes  # noqa: E402
from numerics.batch_driver import Script, open_tiny  # noqa: E402
from tiny_models import TinyModel  # noqa: E402

THREADS = 2
CHUNK = 512


def tiny_golden(model: TinyModel, script: Script) -> dict[str, object]:
    native = open_tiny(model, "reference", THREADS)
    native.allocate_kv(logit_hashes.pages_of([script]))
    return {
        "weights_sha256": logit_hashes.weights_hash(model),
        "positions": len(script.tokens),
        "logits_sha256": logit_hashes.text_hash(native, script, [], CHUNK),
    }


def file_golden(path: Path) -> dict[str, object]:
    script = logit_hashes.real_script(path.stem)
    model = logit_hashes.open_file(path, "reference", THREADS, logit_hashes.pages_of([script]))
    with path.open("rb") as stream:
        model_sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    return {
        "model_sha256": model_sha256,
        "tokens_sha256": logit_hashes.sha256_of(script.tokens.tobytes()),
        "positions": len(script.tokens),
        "logits_sha256": logit_hashes.text_hash(model, script, [], CHUNK),
    }


def main() -> None:
    arguments = sys.argv[1:]
    check = "--check" in arguments
    text = logit_hashes.text_script()
    tiny = {name: tiny_golden(model, text) for name, model in logit_hashes.UNIFORM.items()}
    tiny["long"] = tiny_golden(logit_hashes.LONG, logit_hashes.text_script(logit_hashes.LONG_POSITIONS))
    goldens: dict[str, dict[str, object]] = {
        "tiny": {"text_sha256": logit_hashes.sha256_of(logit_hashes.TEXT), "models": tiny}
    }
    for path in (Path(argument) for argument in arguments if not argument.startswith("-")):
        goldens[path.stem] = file_golden(path)
    logit_hashes.GOLDENS.mkdir(exist_ok=True)
    for name, golden in goldens.items():
        target = logit_hashes.GOLDENS / f"{name}.json"
        if not check:
            target.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
        elif golden != logit_hashes.golden_of(name):
            sys.exit(f"{target} is not what the reference set gives now")
        print(target)


if __name__ == "__main__":
    main()
