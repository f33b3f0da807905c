"""Make or check the goldens in tests/golden/tokenizer with the reference tokenizer itself.

    pip install llama-cpp-python==0.3.36 tokenmill
    python tests/golden/make_tokenizer_goldens.py smollm2.gguf qwen2.5-coder.gguf            # writes
    python tests/golden/make_tokenizer_goldens.py --check smollm2.gguf qwen2.5-coder.gguf    # compares

It writes `strings.json.gz` (the cases), `<model>.json.gz` (their token ids), `vocabularies.json.gz` (per vocabulary of
the reference and per pre-tokenizer kind: a short digest of the ids of every case) and `facts.json` (stop tokens, and a
digest of the bytes of all tokens). With --check it writes nothing and exits 1 when the reference gives something else.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp

FOLDER = Path(__file__).parent / "tokenizer"
sys.path[:0] = [str(FOLDER)]

from reference_vocabularies import reference_folder, with_pre_tokenizer  # noqa: E402
from strings import Case, make_cases  # noqa: E402

# Kinds that no vocabulary of the reference has, tried on this one.
BASE_FOR_KINDS = "gpt-2"
KINDS = (  # noqa: SIM905
    "default llama3 glm4 dbrx chatglm-bpe minicpm5 stablelm2 hunyuan solar-open grok-2 smollm codeshell exaone "
    "olmo jais trillion deepseek-v3 hunyuan-dense joyai-llm tekken gpt-4o minimax-m2 poro-chat bloom viking "
    "seed-coder bailingmoe deepseek-llm deepseek-coder falcon qwen35"
).split()
VOCABULARIES = (  # noqa: SIM905
    "aquila baichuan command-r deepseek-coder deepseek-llm falcon gpt-2 gpt-neox llama-bpe llama-spm mpt phi-3 "
    "qwen2 qwen35 refact starcoder"
).split()


class Reference:
    """One vocabulary in the reference tokenizer."""

    def __init__(self, path: Path) -> None:
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self._model:
            raise RuntimeError(f"the reference cannot read {path}")
        self._vocabulary = llama_cpp.llama_model_get_vocab(self._model)

    def encode(self, case: Case) -> list[int]:
        data = case.text.encode()
        room = len(data) + 8
        ids = (llama_cpp.llama_token * room)()
        count = llama_cpp.llama_tokenize(
            self._vocabulary, data, len(data), ids, room, case.add_special, case.parse_special
        )
        if count < 0:
            raise RuntimeError("more tokens than bytes")
        return list(ids[:count])

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to a text.

        For a token whose text is not in byte-level notation the reference gives a debugging text; it means itself.
        """
        buffer = ctypes.create_string_buffer(1024)
        count = llama_cpp.llama_token_to_piece(self._vocabulary, token, buffer, len(buffer), 0, False)
        piece = buffer.raw[:count]
        return bytes(llama_cpp.llama_vocab_get_text(self._vocabulary, token)) if b"[UNK_BYTE_0x" in piece else piece

    def stop_ids(self) -> list[int]:
        count = llama_cpp.llama_vocab_n_tokens(self._vocabulary)
        return [token for token in range(count) if llama_cpp.llama_vocab_is_eog(self._vocabulary, token)]

    def pieces_digest(self) -> str:
        """Over the bytes that every token adds to a text."""
        digest = hashlib.sha256()
        for token in range(llama_cpp.llama_vocab_n_tokens(self._vocabulary)):
            piece = self.piece(token)
            digest.update(len(piece).to_bytes(4, "little") + piece)
        return digest.hexdigest()

    def close(self) -> None:
        llama_cpp.llama_model_free(self._model)


def ids_digest(ids: Sequence[int]) -> str:
    """24 bits: enough to see a difference, small enough to keep for every case and vocabulary."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:6]


def make(models: Sequence[Path], references: Path) -> dict[str, Any]:
    """All goldens: file name to JSON value."""
    cases = make_cases()
    goldens: dict[str, Any] = {"strings.json.gz": cases}
    facts: dict[str, Any] = {}
    digests: dict[str, Any] = {}

    def note(name: str, path: Path) -> Reference:
        reference = Reference(path)
        facts[name] = {"stop_ids": reference.stop_ids(), "pieces": reference.pieces_digest()}
        return reference

    for model in models:
        reference = note(model.stem, model)
        goldens[f"{model.stem}.json.gz"] = [reference.encode(case) for case in cases]
        reference.close()
    for name in VOCABULARIES:
        reference = note(name, references / f"ggml-vocab-{name}.gguf")
        digests[name] = "".join(ids_digest(reference.encode(case)) for case in cases)
        reference.close()
    base = (references / f"ggml-vocab-{BASE_FOR_KINDS}.gguf").read_bytes()
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch, "vocabulary.gguf")
            path.write_bytes(with_pre_tokenizer(base, kind))
            reference = Reference(path)
            digests[f"{BASE_FOR_KINDS} as {kind}"] = "".join(ids_digest(reference.encode(case)) for case in cases)
            reference.close()
    goldens["vocabularies.json.gz"] = digests
    goldens["facts.json"] = facts
    return goldens


def encoded(name: str, value: Any) -> bytes:
    """The file's bytes; the same value gives the same bytes."""
    if name.endswith(".gz"):
        return gzip.compress(json.dumps(value, separators=(",", ":")).encode(), 9, mtime=0)
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def decoded(path: Path) -> Any:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="compare with the committed files, write nothing")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "tokenmill")
    arguments = parser.parse_args()
    different = []
    for name, value in make(arguments.models, reference_folder(arguments.cache)).items():
        path = FOLDER / name
        if arguments.check:
            if json.loads(json.dumps(value)) != decoded(path):
                different.append(name)
        else:
            path.write_bytes(encoded(name, value))
    for name in different:
        sys.stdout.write(f"{name}: the reference gives something else today\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
