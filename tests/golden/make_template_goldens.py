"""Make or check tests/golden/chat_template/rendered.json.gz with transformers' own template rendering.

    pip install transformers jinja2 tokenmill
    python tests/golden/make_template_goldens.py smollm2.gguf qwen2.5-coder.gguf           # writes
    python tests/golden/make_template_goldens.py --check smollm2.gguf qwen2.5-coder.gguf   # exit 1 if different

The templates are those of the given models and of llama.cpp's collection, except the ones that print today's date.
What a template refuses or fails on is kept as null.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER / "chat_template"), str(FOLDER.parent.parent / "src")]

from conversations import CONVERSATIONS  # noqa: E402
from reference_vocabularies import reference_folder  # noqa: E402

from tokenmill.weights.read_gguf import read_gguf  # noqa: E402

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def rendered(source: str) -> dict[str, str | None]:
    texts: dict[str, str | None] = {}
    for name, conversation in CONVERSATIONS.items():
        try:
            (texts[name],), _ = render_jinja_template(
                conversations=[conversation["messages"]],
                tools=conversation.get("tools"),
                chat_template=source,
                add_generation_prompt=conversation.get("add_generation_prompt", True),
                **SPECIAL,
            )
        except Exception as error:
            sys.stderr.write(f"{name}: {type(error).__name__}: {str(error)[:100]}\n")
            texts[name] = None
    return texts


def make(models: list[Path], references: Path) -> dict[str, Any]:
    sources = {
        path.name: path.read_text(encoding="utf-8") for path in sorted((references / "templates").glob("*.jinja"))
    }
    sources = {name: source for name, source in sources.items() if "strftime_now" not in source}
    sources |= {model.stem: str(read_gguf(model).metadata["tokenizer.chat_template"]) for model in models}
    return {name: rendered(source) for name, source in sources.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="compare with the committed file, write nothing")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "tokenmill")
    arguments = parser.parse_args()
    value = make(arguments.models, reference_folder(arguments.cache))
    path = FOLDER / "chat_template" / "rendered.json.gz"
    if arguments.check:
        return int(json.loads(gzip.decompress(path.read_bytes())) != value)
    path.write_bytes(gzip.compress(json.dumps(value, separators=(",", ":")).encode(), 9, mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
