"""What `tokenmill serve` does: starts the server and says where it is and what runs in it."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import ExitStack

from tokenmill.cli.output import human_bytes
from tokenmill.cli.progress import shown_progress
from tokenmill.engine.engine import Engine
from tokenmill.engine.options import EngineOptions, ModelInfo
from tokenmill.server.serve import Server
from tokenmill.server.state import ServerSettings
from tokenmill.weights.fetch import fetch
from tokenmill.weights.progress import Progress


def run(model: str, options: EngineOptions, settings: ServerSettings, *, host: str, port: int, as_json: bool) -> None:
    """Serves until SIGTERM or Ctrl-C.

    Raises:
        TokenmillError: the address cannot be listened on, or the model cannot be had or loaded.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    def load(progress: Progress) -> Engine:
        return Engine.load(fetch(model, progress), options, progress=progress)

    def announce(info: ModelInfo) -> None:
        shown.close()  # the bars go before the lines come
        _announce(info, server.url, as_json=as_json)

    with ExitStack() as shown:
        progress = shown.enter_context(shown_progress())
        server = Server(load, host=host, port=port, settings=settings, progress=progress, on_ready=announce)
        if not as_json:
            _say(f"Listening on {server.url}; loading {model}")
        server.run()
    if not as_json:
        _say("Stopped.")


def _announce(info: ModelInfo, url: str, *, as_json: bool) -> None:
    if as_json:
        facts = {
            "url": url,
            "model": info.name,
            "kernel_set": info.kernel_set,
            "threads": info.threads,
            "context_length": info.context_length,
            "max_sequences": info.max_sequences,
            "weight_bytes": info.weight_bytes,
            "kv_bytes": info.kv_bytes,
            "load_s": info.load_s,
        }
        _say(json.dumps(facts))
        return
    memory = f"{human_bytes(info.weight_bytes)} of weights, {human_bytes(info.kv_bytes)} of KV cache"
    _say(f"Loaded {info.name} in {info.load_s:.1f} s: {memory}")
    _say(f"Kernel set {info.kernel_set}, {info.threads} threads, {info.context_length} tokens of context")
    _say(f"Ready: {url}/v1")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
