"""`tokenmill serve`: the OpenAI-compatible server."""

from __future__ import annotations

from typing import Annotated

import typer

from tokenmill.cli import options

Host = Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for every interface.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one and prints it.")]
Name = Annotated[
    list[str] | None, typer.Option("--name", help="Name of the model in requests; repeat. Default: the file's name.")
]
MaxSequences = Annotated[int, typer.Option("--max-sequences", min=1, help="Answers computed at once; more wait.")]
QueueLimit = Annotated[int, typer.Option("--queue-limit", min=0, help="Most that wait; one more gets status 429.")]
PrefillTokens = Annotated[
    int, typer.Option("--prefill-tokens", min=1, help="Most tokens of one step: prompts faster, or answers more even.")
]
KvMemory = Annotated[
    int | None, typer.Option("--kv-memory", min=1, help="MiB for the KV cache. Default: what full contexts need.")
]
Pin = Annotated[
    bool | None, typer.Option("--pin/--no-pin", help="Keep each thread on one core. Default: if all are ours.")
]
Drain = Annotated[float, typer.Option("--drain", min=0.0, help="Seconds that SIGTERM waits for running answers.")]


def command(
    model: options.Model = options.DEFAULT_MODEL,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    name: Name = None,
    context: options.Context = None,
    threads: options.Threads = None,
    max_sequences: MaxSequences = 16,
    queue_limit: QueueLimit = 256,
    prefill_tokens: PrefillTokens = 256,
    kv_memory: KvMemory = None,
    pin: Pin = None,
    numa: options.NumaPolicy = options.AUTO_NUMA,
    lock_memory: options.LockMemory = False,
    drain: Drain = 30.0,
    json: options.Json = False,
) -> None:
    """Serve a model over HTTP with OpenAI's API: chat and text completions, streaming or not, models.

    Also `/health`, `/ready` and `/metrics` (Prometheus). The port listens at once and answers 503 until the model is
    loaded. SIGTERM and Ctrl-C let running answers end; a second one does not. `--json` prints one line when ready.

    **Examples**

    - `tokenmill serve`
    - `tokenmill serve Qwen/Qwen2.5-7B-Instruct-GGUF:Q4_0 --host 0.0.0.0 --context 8192 --max-sequences 8`
    - `curl localhost:8000/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hello"}]}'`
    """
    from tokenmill.cli.serve import run
    from tokenmill.engine.options import EngineOptions
    from tokenmill.server.state import ServerSettings

    engine = EngineOptions(
        threads=threads,
        context_length=context,
        max_sequences=max_sequences,
        prefill_tokens=prefill_tokens,
        kv_bytes=None if kv_memory is None else kv_memory << 20,
        queue_limit=queue_limit,
        pin=pin,
        numa=numa,
        lock_memory=lock_memory,
    )
    settings = ServerSettings(model_names=tuple(name or ()), drain_s=drain)
    run(model, engine, settings, host=host, port=port, as_json=json)
