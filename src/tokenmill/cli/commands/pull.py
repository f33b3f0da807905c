"""`tokenmill pull`: brings a model to this machine."""

from __future__ import annotations

from tokenmill.cli import options


def command(model: options.Model = options.DEFAULT_MODEL, json: options.Json = False) -> None:
    """Download a model, verify it and print where it is.

    A pull that was interrupted goes on where it stopped. `HF_TOKEN` opens private repositories, `HF_ENDPOINT` names a
    mirror, `TOKENMILL_CACHE` the folder for models (default: ~/.cache/tokenmill).

    **Examples**

    - `tokenmill pull` takes the built-in smollm2-135m
    - `tokenmill pull Qwen/Qwen2.5-7B-Instruct-GGUF:Q4_K_M` takes a repository's files of that quantization
    - `tokenmill inspect $(tokenmill pull qwen2.5-coder-0.5b)`
    """
    from tokenmill.cli.output import print_json, stdout_console
    from tokenmill.cli.progress import shown_progress
    from tokenmill.weights.fetch import fetch

    with shown_progress() as progress:
        path = fetch(model, progress)
    if json:
        print_json({"model": model, "path": path})
    else:
        stdout_console().print(str(path), soft_wrap=True)
