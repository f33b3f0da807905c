"""`tokenmill inspect`: shows what is in a model file."""

from __future__ import annotations

from typing import Annotated

import typer

from tokenmill.cli import options

Tensors = Annotated[bool, typer.Option("--tensors", help="List every tensor.")]
Metadata = Annotated[bool, typer.Option("--metadata", help="List every metadata key; long values are cut.")]


def command(
    model: options.Model, tensors: Tensors = False, metadata: Metadata = False, json: options.Json = False
) -> None:
    """Show what is in a model file: type, size, formats, context, tokenizer, licence.

    Only the header is read, and all of it is checked: a damaged file gets an error that names the place.

    **Examples**

    - `tokenmill inspect model.gguf`
    - `tokenmill inspect smollm2-135m --tensors --metadata`
    - `tokenmill inspect model.gguf --json | jq .bits_per_weight`
    """
    from dataclasses import asdict

    from tokenmill.cli.inspect_view import shorten, show_description, show_metadata, show_tensors
    from tokenmill.cli.output import print_json, stdout_console
    from tokenmill.cli.progress import shown_progress
    from tokenmill.weights.fetch import fetch
    from tokenmill.weights.inspect import describe
    from tokenmill.weights.read_gguf import read_gguf

    with shown_progress() as progress:
        file = read_gguf(fetch(model, progress))
    description = describe(file)
    if json:
        document = asdict(description)
        if tensors:
            document["tensor_list"] = list(file.tensors.values())
        if metadata:
            document["metadata"] = {key: shorten(value) for key, value in file.metadata.items()}
        print_json(document)
        return
    console = stdout_console()
    show_description(console, description)
    if metadata:
        show_metadata(console, file)
    if tensors:
        show_tensors(console, file)
