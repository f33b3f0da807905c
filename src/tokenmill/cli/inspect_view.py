"""Shows a model file to a person."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tokenmill.cli.output import facts_table, human_bytes, printable
from tokenmill.vocabulary.model_file import MetadataValue, ModelFile
from tokenmill.weights.inspect import ModelDescription

_SHOWN_ELEMENTS = 8
_SHOWN_CHARACTERS = 200


def shorten(value: MetadataValue) -> MetadataValue | str:
    """A metadata value as it is, or its start where it is long (vocabularies have hundreds of thousands of entries)."""
    if isinstance(value, tuple) and len(value) > _SHOWN_ELEMENTS:
        start = ", ".join(repr(item) for item in value[:_SHOWN_ELEMENTS])
        return f"[{start}, … {len(value)} in all]"
    if isinstance(value, str) and len(value) > _SHOWN_CHARACTERS:
        return f"{value[:_SHOWN_CHARACTERS]}… ({len(value)} characters)"
    return value


def show_description(console: Console, model: ModelDescription) -> None:
    """The summary, and the formats with their shares."""
    heads = f"{model.heads} heads, {model.kv_heads or model.heads} of keys and values" if model.heads else None
    tokenizer = model.tokenizer and f"{model.tokenizer}, {model.pre_tokenizer or 'no'} pre-tokenizer"
    facts = {
        "file": model.path + (f" and {model.parts - 1} more" if model.parts > 1 else ""),
        "name": model.name,
        "model type": model.architecture,
        "parameters": f"{model.parameters / 1e6:,.1f} M in {model.tensors} tensors",
        "size": f"{human_bytes(model.file_bytes)}, {model.bits_per_weight:.2f} bits per weight",
        "context": model.context_length and f"{model.context_length:,} tokens",
        "layers": model.layers,
        "width": model.embedding and f"{model.embedding}, feed-forward {model.hidden or '?'}",
        "attention": heads,
        "vocabulary": model.vocabulary and f"{model.vocabulary:,} tokens",
        "tokenizer": tokenizer,
        "chat template": "yes" if model.has_chat_template else "no",
        "licence": model.license,
    }
    table = facts_table("Model file")
    for name, value in facts.items():
        table.add_row(name, "not stated" if value is None else escape(printable(str(value))))
    console.print(table)

    formats = Table(title="Formats", title_justify="left", title_style="bold")
    formats.add_column("format")
    for name in ("tensors", "parameters", "bytes", "share"):
        formats.add_column(name, justify="right")
    for use in model.formats:
        share = f"{100 * use.nbytes / model.tensor_bytes:.1f} %" if model.tensor_bytes else "-"
        formats.add_row(use.format, str(use.tensors), f"{use.parameters:,}", human_bytes(use.nbytes), share)
    console.print(formats)


def show_metadata(console: Console, file: ModelFile) -> None:
    """Every key with its value."""
    table = facts_table("Metadata")
    for key, value in file.metadata.items():
        table.add_row(escape(printable(key)), escape(printable(str(shorten(value)))))
    console.print(table)


def show_tensors(console: Console, file: ModelFile) -> None:
    """Every tensor with its format, shape (rows first) and place."""
    table = Table(title="Tensors", title_justify="left", title_style="bold")
    for name in ("name", "format", "shape"):
        table.add_column(name)
    for name in ("bytes", "offset"):
        table.add_column(name, justify="right")
    for tensor in file.tensors.values():
        shape = " x ".join(map(str, tensor.shape))
        table.add_row(
            escape(printable(tensor.name)), tensor.format, shape, human_bytes(tensor.nbytes), str(tensor.offset)
        )
    console.print(table)
