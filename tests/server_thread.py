"""A real server on a real socket, in a thread of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import httpx
import openai

from tokenmill.engine.engine import Engine
from tokenmill.server.serve import Server
from tokenmill.server.state import ServerSettings
from tokenmill.weights.progress import Progress


class ServerThread:
    """Within the block the server serves; `stop` drains it. `error` is what `run` raised."""

    def __init__(self, load: Callable[[Progress], Engine], settings: ServerSettings | None = None) -> None:
        self.server = Server(load, port=0, settings=settings)
        self.url = self.server.url
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.server.run()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._thread.is_alive():
            self.server.stop()
        if kind is not None:
            self.server.stop()  # do not wait for what a failed test has left running
        self.join()

    def join(self, timeout: float = 20) -> None:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the server does not end"

    def wait_ready(self, timeout: float = 60) -> Self:
        deadline = time.monotonic() + timeout
        while httpx.get(f"{self.url}/ready").status_code != 200:
            assert time.monotonic() < deadline, "the server does not become ready"
            time.sleep(0.02)
        return self

    def client(self, **options: object) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, **options)  # type: ignore[arg-type]

    def async_client(self, **options: object) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, **options)  # type: ignore[arg-type]

    def metric(self, name: str) -> float:
        """The value of a series (its name with its labels); 0 when absent."""
        for line in httpx.get(f"{self.url}/metrics").text.splitlines():
            if line.startswith(name + " "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def wait_idle(self, timeout: float = 5) -> None:
        """Until no sequence runs and every page is free."""
        deadline = time.monotonic() + timeout
        names = ("tokenmill_sequences_running", "tokenmill_sequences_waiting", "tokenmill_kv_pages_used")
        while any(self.metric(name) for name in names):
            assert time.monotonic() < deadline, "sequences were not freed"
            time.sleep(0.02)
