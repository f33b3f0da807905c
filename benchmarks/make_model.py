"""Writes a GGUF model of any shape and weight type, with full-entropy random weights of sane scale.

Speed and memory depend on a model's shape and types, not on what it learned: such a file stands for a real one where
the real one is too large to download. Its answers are noise. The tokenizer is copied from a model at hand.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from tokenmill.vocabulary.errors import TokenmillError
from tokenmill.vocabulary.model_file import MetadataValue
from tokenmill.weights.builtin_models import DEFAULT_MODEL
from tokenmill.weights.fetch import fetch
from tokenmill.weights.formats import FORMAT_BY_NAME, FileFormat
from tokenmill.weights.read_gguf import read_gguf

EXAMPLES = """examples:
  make_model.py 7b.gguf --preset qwen2-7b --type Q4_0        a 4.4 GB file like Qwen2-7B's, in a minute or two
  make_model.py 7b.gguf --preset 7b --type Q4_K_M            Llama-2-7B's shape, the usual mix of Q4_K and Q6_K
  make_model.py x.gguf --preset tiny --layers 4 --hidden 512 any field of a preset can be changed
"""


@dataclass(frozen=True)
class Shape:
    """Dimensions of a decoder; `kv_heads` below `heads` is grouped-query attention."""

    architecture: str
    layers: int
    embedding: int
    hidden: int
    heads: int
    kv_heads: int
    vocab: int  # 0: the tokenizer's own
    context: int
    rope_base: float
    tied: bool

    @property
    def head_dim(self) -> int:
        return self.embedding // self.heads


PRESETS = {
    "7b": Shape("llama", 32, 4096, 11008, 32, 32, 32000, 4096, 10000.0, False),
    "qwen2-7b": Shape("qwen2", 28, 3584, 18944, 28, 4, 152064, 32768, 1e6, False),
    "0.5b": Shape("qwen2", 24, 896, 4864, 14, 2, 151936, 32768, 1e6, True),
    "tiny": Shape("llama", 2, 256, 512, 4, 2, 0, 2048, 10000.0, True),
}
MIXES = ("Q4_K_M", "Q5_K_M")
_CHUNK_BYTES = 32 << 20

# Standard deviation of the integers that random bits give, and the mean where a format has a minimum to take it away.
_SPREAD = {"Q4_0": 4.6, "Q4_1": 4.6, "Q5_0": 9.2, "Q5_1": 9.2, "Q8_0": 74.0, "IQ4_NL": 66.0}
_SPREAD |= {"Q4_K": 258.0, "Q5_K": 525.0, "Q6_K": 18.5 * 74}
_MIDDLE = {"Q4_1": -7.5, "Q5_1": -15.5, "Q4_K": 7.5, "Q5_K": 15.5}
_SCALE_AT = {"Q6_K": 208}


def tensor_formats(shape: Shape, weight_type: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Every tensor by name: its shape [rows, columns] and its format.

    Mixes put Q6_K where quantizers of this family do: the output, and value and down projections of the first and last
    eighth of the layers and every third one between. Rows that a format's block does not divide take a smaller block.
    """
    base = {"Q4_K_M": "Q4_K", "Q5_K_M": "Q5_K"}.get(weight_type, weight_type)
    finer = "Q6_K" if weight_type in MIXES else base
    tensors: dict[str, tuple[tuple[int, ...], str]] = {}

    def matrix(name: str, rows: int, columns: int, format_name: str) -> None:
        if columns % FORMAT_BY_NAME[format_name].block_elements:
            format_name = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}.get(format_name, "F16")
        tensors[name] = ((rows, columns), format_name)

    kv_dim = shape.kv_heads * shape.head_dim
    matrix("token_embd.weight", shape.vocab, shape.embedding, base)
    for layer in range(shape.layers):
        eighth = shape.layers // 8
        important = layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2
        name = f"blk.{layer}."
        tensors[name + "attn_norm.weight"] = ((shape.embedding,), "F32")
        matrix(name + "attn_q.weight", shape.embedding, shape.embedding, base)
        matrix(name + "attn_k.weight", kv_dim, shape.embedding, base)
        matrix(name + "attn_v.weight", kv_dim, shape.embedding, finer if important else base)
        matrix(name + "attn_output.weight", shape.embedding, shape.embedding, base)
        if shape.architecture == "qwen2":
            tensors[name + "attn_q.bias"] = ((shape.embedding,), "F32")
            tensors[name + "attn_k.bias"] = ((kv_dim,), "F32")
            tensors[name + "attn_v.bias"] = ((kv_dim,), "F32")
        tensors[name + "ffn_norm.weight"] = ((shape.embedding,), "F32")
        matrix(name + "ffn_gate.weight", shape.hidden, shape.embedding, base)
        matrix(name + "ffn_up.weight", shape.hidden, shape.embedding, base)
        matrix(name + "ffn_down.weight", shape.embedding, shape.hidden, finer if important else base)
    tensors["output_norm.weight"] = ((shape.embedding,), "F32")
    if not shape.tied:
        matrix("output.weight", shape.vocab, shape.embedding, "Q6_K" if base.startswith("Q4") else finer)
    return tensors


def random_rows(
    name: str, dimensions: tuple[int, ...], entry: FileFormat, rng: np.random.Generator
) -> Iterator[bytes | memoryview]:
    """The tensor's bytes in pieces. Weights have a standard deviation of 1/sqrt(columns), norms are near 1."""
    columns = dimensions[-1]
    if len(dimensions) == 1:
        mean, spread = (0.0, 0.1) if name.endswith(".bias") else (1.0, 0.1)
        yield (mean + spread * rng.standard_normal(columns)).astype("<f4").tobytes()
        return
    std = columns**-0.5
    blocks_left = dimensions[0] * columns // entry.block_elements
    per_chunk = max(1, _CHUNK_BYTES // entry.block_bytes)
    while blocks_left:
        count = min(per_chunk, blocks_left)
        blocks_left -= count
        yield _random_blocks(entry, count, std, rng)


def _random_blocks(entry: FileFormat, count: int, std: float, rng: np.random.Generator) -> bytes | memoryview:
    if entry.block_elements == 1:
        values = rng.standard_normal(count, dtype=np.float32) * np.float32(std)
        if entry.name == "BF16":
            return (values.view(np.uint32) >> 16).astype("<u2").tobytes()
        return values.astype("<f4" if entry.name == "F32" else "<f2").tobytes()
    words = rng.integers(0, 2**64, -(-count * entry.block_bytes // 8), dtype=np.uint64)
    blocks = words.view(np.uint8)[: count * entry.block_bytes].reshape(count, -1)
    scales = rng.random(count, dtype=np.float32)
    scales += np.float32(0.5)
    scales *= np.float32(std / _SPREAD[entry.name])

    def put(offset: int, values: NDArray[np.float32]) -> None:
        blocks[:, offset : offset + 2] = values.astype("<f2").view(np.uint8).reshape(count, 2)

    if entry.name in _MIDDLE:
        put(2, scales * np.float32(_MIDDLE[entry.name]))
    put(_SCALE_AT.get(entry.name, 0), scales)
    return blocks.data


def fit_tokenizer(source: Mapping[str, MetadataValue], vocab: int) -> dict[str, MetadataValue]:
    """The tokenizer's metadata, cut or filled to `vocab` tokens (0: as it is)."""
    kept = {key: value for key, value in source.items() if key.startswith("tokenizer.")}
    tokens = kept["tokenizer.ggml.tokens"]
    types = kept["tokenizer.ggml.token_type"]
    if not isinstance(tokens, tuple) or not isinstance(types, tuple):
        raise SystemExit("the tokenizer's file has no token list")
    size = vocab or len(tokens)
    special = [index for index, kind in enumerate(types) if kind in (3, 4) and index >= size]
    if special:
        raise SystemExit(f"{len(special)} special tokens lie past {size} tokens: take another --tokenizer or --vocab")
    fillers = range(size - len(tokens))
    shown = (*map(str, tokens[:size]), *(f"<filler_{index}>" for index in fillers))
    kept["tokenizer.ggml.tokens"] = shown
    kept["tokenizer.ggml.token_type"] = (*map(int, types[:size]), *(5 for _ in fillers))
    scores = kept.get("tokenizer.ggml.scores")
    if isinstance(scores, tuple):
        kept["tokenizer.ggml.scores"] = (*map(float, scores[:size]), *(-1e4 for _ in fillers))
    merges = kept.get("tokenizer.ggml.merges")
    if isinstance(merges, tuple) and size < len(tokens):
        known = set(shown)
        pairs = (str(merge) for merge in merges)
        kept["tokenizer.ggml.merges"] = tuple(
            merge for merge in pairs if set(merge.split(" ", 1)) <= known and merge.replace(" ", "", 1) in known
        )
    return kept


def make_model(path: Path, shape: Shape, weight_type: str, tokenizer: Path, seed: int) -> int:
    """Writes the file and returns its size; memory stays below a few hundred MB whatever the size."""
    metadata = fit_tokenizer(read_gguf(tokenizer).metadata, shape.vocab)
    tokens = metadata["tokenizer.ggml.tokens"]
    shape = replace(shape, vocab=len(tokens)) if isinstance(tokens, tuple) else shape
    tensors = tensor_formats(shape, weight_type)
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_name(f"random {shape.architecture} {weight_type}")
    writer.add_description("random weights of benchmarks/make_model.py; its answers are noise")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.embedding)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_vocab_size(shape.vocab)
    for key, value in metadata.items():
        _add(writer, key, value)
    for name, (dimensions, format_name) in tensors.items():
        entry = FORMAT_BY_NAME[format_name]
        nbytes = int(np.prod(dimensions)) // entry.block_elements * entry.block_bytes
        kind = gguf.GGMLQuantizationType[format_name]
        writer.add_tensor_info(name, dimensions, np.dtype(np.float32), nbytes, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()

    rng = np.random.Generator(np.random.SFC64(seed))
    with path.open("ab") as output:
        _pad(output)
        for number, (name, (dimensions, format_name)) in enumerate(tensors.items(), start=1):
            for piece in random_rows(name, dimensions, FORMAT_BY_NAME[format_name], rng):
                output.write(piece)
            _pad(output)
            _report(f"{number} of {len(tensors)} tensors, {output.tell() / 1e9:.2f} GB", last=number == len(tensors))
        return output.tell()


def _pad(output: object) -> None:
    output.write(b"\0" * (-output.tell() % 32))  # type: ignore[attr-defined]


def _add(writer: gguf.GGUFWriter, key: str, value: MetadataValue) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif value:
        writer.add_array(key, value)


def _report(text: str, *, last: bool) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}", end="\n" if last else "", file=sys.stderr, flush=True)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    types = [*FORMAT_BY_NAME, *MIXES]
    parser.add_argument("output", type=Path, help="the file to write")
    parser.add_argument("--preset", choices=PRESETS, default="tiny", help="where the shape starts from (%(default)s)")
    parser.add_argument("--type", choices=types, default="Q4_0", metavar="TYPE", help=f"one of {', '.join(types)}")
    parser.add_argument(
        "--tokenizer", type=str, default=None, help="model whose tokenizer is copied: a file or a name for `pull`"
    )
    parser.add_argument("--seed", type=int, default=1, help="same seed, same file (%(default)s)")
    for field in ("layers", "embedding", "hidden", "heads", "kv-heads", "vocab", "context"):
        parser.add_argument(f"--{field}", type=int, default=None, help="instead of the preset's")
    parser.add_argument("--architecture", choices=("llama", "qwen2"), default=None, help="instead of the preset's")
    arguments = vars(parser.parse_args())
    preset = PRESETS[arguments["preset"]]
    names = ("layers", "embedding", "hidden", "heads", "kv_heads", "vocab", "context", "architecture")
    shape = replace(preset, **{name: arguments[name] for name in names if arguments[name] is not None})
    if shape.embedding % shape.heads or shape.heads % shape.kv_heads:
        parser.error("--embedding must be a multiple of --heads, and --heads of --kv-heads")
    wanted = arguments["tokenizer"] or ("qwen2.5-coder-0.5b" if shape.vocab > 100_000 else DEFAULT_MODEL)
    start = time.monotonic()
    try:
        nbytes = make_model(arguments["output"], shape, arguments["type"], fetch(wanted), arguments["seed"])
    except (TokenmillError, OSError) as error:
        print(f"make_model: {error}", file=sys.stderr)
        return 1
    print(f"{arguments['output']}: {nbytes / 1e9:.2f} GB in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
