"""What is in a model file, in a form for people and for `--json`."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tokenmill.vocabulary.model_file import ModelFile


@dataclass(frozen=True, slots=True)
class FormatUse:
    """How much of a model is stored in one format."""

    format: str
    tensors: int
    parameters: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A summary of a model file; plain values, so `dataclasses.asdict` gives its JSON document.

    None where the file does not say. `heads` and `kv_heads` are the largest over the layers where they differ.
    """

    path: str
    name: str | None
    architecture: str | None
    parameters: int
    tensors: int
    file_bytes: int
    tensor_bytes: int
    parts: int
    bits_per_weight: float
    formats: tuple[FormatUse, ...]  # most bytes first
    context_length: int | None
    layers: int | None
    embedding: int | None
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    vocabulary: int | None
    tokenizer: str | None
    pre_tokenizer: str | None
    has_chat_template: bool
    license: str | None
    schema_version: int = 1


def describe(model: ModelFile) -> ModelDescription:
    """Summarises a model file. Damaged or odd metadata values become None: this is for looking, not for loading."""
    architecture = _text(model, "general.architecture")
    uses: dict[str, list[int]] = {}
    for tensor in model.tensors.values():
        use = uses.setdefault(tensor.format, [0, 0, 0])
        for index, amount in enumerate((1, prod(tensor.shape), tensor.nbytes)):
            use[index] += amount
    formats = sorted((FormatUse(name, *use) for name, use in uses.items()), key=lambda use: -use.nbytes)
    parameters = sum(use.parameters for use in formats)
    tensor_bytes = sum(use.nbytes for use in formats)
    tokens = model.metadata.get("tokenizer.ggml.tokens")
    return ModelDescription(
        path=str(model.path),
        name=_text(model, "general.name"),
        architecture=architecture,
        parameters=parameters,
        tensors=len(model.tensors),
        file_bytes=model.file_bytes,
        tensor_bytes=tensor_bytes,
        parts=_integer(model, "split.count") or 1,
        bits_per_weight=8 * tensor_bytes / parameters if parameters else 0.0,
        formats=tuple(formats),
        context_length=_integer(model, f"{architecture}.context_length"),
        layers=_integer(model, f"{architecture}.block_count"),
        embedding=_integer(model, f"{architecture}.embedding_length"),
        hidden=_integer(model, f"{architecture}.feed_forward_length"),
        heads=_integer(model, f"{architecture}.attention.head_count"),
        kv_heads=_integer(model, f"{architecture}.attention.head_count_kv"),
        vocabulary=len(tokens) if isinstance(tokens, tuple) else _integer(model, f"{architecture}.vocab_size"),
        tokenizer=_text(model, "tokenizer.ggml.model"),
        pre_tokenizer=_text(model, "tokenizer.ggml.pre"),
        has_chat_template=_text(model, "tokenizer.chat_template") is not None,
        license=_text(model, "general.license"),
    )


def _text(model: ModelFile, key: str) -> str | None:
    value = model.metadata.get(key)
    return value if isinstance(value, str) else None


def _integer(model: ModelFile, key: str) -> int | None:
    value = model.metadata.get(key)
    if isinstance(value, tuple) and value:  # some architectures give one number per layer
        numbers = [item for item in value if isinstance(item, int)]
        value = max(numbers, default=None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
