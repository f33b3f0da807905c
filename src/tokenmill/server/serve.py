"""A server process from its first socket to its exit: listen at once, load, serve, drain."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from tokenmill.engine.engine import Engine
from tokenmill.engine.options import ModelInfo
from tokenmill.server.app import create_app
from tokenmill.server.state import ServerSettings, ServerState
from tokenmill.vocabulary.errors import TokenmillError
from tokenmill.weights.progress import Progress, SilentProgress

logger = logging.getLogger(__name__)

_POLL_S = 0.2  # how soon a signal is seen; a server without work should not be seen in `top`
_DRAIN_POLL_S = 0.02
_SWITCH_S = 0.001
_LAST_FRAMES_S = 2.0  # for answers to tell their clients, once the engine has ended them
_IDLE_CONNECTION_S = 75  # longer than the usual 60 s of load balancers, which must be the ones to close


class Server:
    """One server. The socket listens from construction on, so that the port is known and nobody else takes it.

    SIGTERM and SIGINT drain it: running requests go on (for settings.drain_s at most), new ones get 503; a second
    signal ends it at once. Signals are only handled when `run` is called on the main thread; `stop` does the same.

    Args:
        load: makes the engine; called on a thread of its own, told to end by an exception out of its Progress.
        host: address to listen on.
        port: 0 takes a free one; see `port`.
        settings: defaults when None.
        progress: also told how loading goes.
        on_ready: called on the event loop when requests are served.

    Raises:
        TokenmillError: the address cannot be listened on.
    """

    def __init__(
        self,
        load: Callable[[Progress], Engine],
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        settings: ServerSettings | None = None,
        progress: Progress | None = None,
        on_ready: Callable[[ModelInfo], None] | None = None,
    ) -> None:
        self._load = load
        self._progress = progress or SilentProgress()
        self._on_ready = on_ready
        self._app = create_app(None, settings)
        self._state: ServerState = self._app.state.server
        self._socket = _listen(host, port)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._error: BaseException | None = None
        self._stops = 0

    @property
    def url(self) -> str:
        """Where clients find it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def run(self) -> None:
        """Serves until stopped.

        Raises:
            Exception: what `load` raised.
        """
        # The engine's thread needs the interpreter for a moment between steps. By default it would wait 5 ms for it
        # while another thread tokenizes a long prompt.
        sys.setswitchinterval(_SWITCH_S)
        asyncio.run(self._run())
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Begins to drain; called a second time, ends at once. From any thread, and from a signal handler."""
        self._stops += 1

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        http = _HttpServer(
            uvicorn.Config(
                self._app,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_keep_alive=_IDLE_CONNECTION_S,
                timeout_graceful_shutdown=5,
            )
        )
        serving = asyncio.create_task(http.serve(sockets=[self._socket]))
        loading = threading.Thread(target=self._load_on_thread, args=(loop,), name="tokenmill-load", daemon=True)
        with _signals_call(self.stop):
            loading.start()
            while not self._stops and self._error is None and not serving.done():
                await asyncio.sleep(_POLL_S)
            await self._drain()
            http.should_exit = True
            await serving
        self._state.text_pool.shutdown(wait=False, cancel_futures=True)

    def _load_on_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            engine = self._load(_LoadProgress(self._progress, self._state, lambda: self._stops > 0))
        except _StoppedError:
            return
        except BaseException as error:
            self._state.failure = str(error) or type(error).__name__
            self._error = error
            return
        if self._stops:
            engine.close()
            return
        loop.call_soon_threadsafe(self._become_ready, engine)

    def _become_ready(self, engine: Engine) -> None:
        self._state.become_ready(engine)
        if self._on_ready is not None:
            self._on_ready(engine.info)

    async def _drain(self) -> None:
        """Lets running requests end, then ends those that did not."""
        state = self._state
        state.draining = True
        await self._wait_until_idle(state.settings.drain_s, lambda: self._stops > 1)
        if state.engine is not None:
            if state.active:
                logger.warning("%d requests are ended unfinished", state.active)
            await asyncio.get_running_loop().run_in_executor(None, state.engine.close)
            await self._wait_until_idle(_LAST_FRAMES_S, lambda: False)

    async def _wait_until_idle(self, limit_s: float, enough: Callable[[], bool]) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + limit_s
        while self._state.active and clock() < end and not enough():
            await asyncio.sleep(_DRAIN_POLL_S)


class _HttpServer(uvicorn.Server):
    """uvicorn without its signal handling: it would stop listening before the drain has ended."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _StoppedError(Exception):
    """Loading is not wanted any more."""


class _LoadProgress:
    """Tells the server's state and another Progress, and ends the load when the server stops."""

    def __init__(self, then: Progress, state: ServerState, stopped: Callable[[], bool]) -> None:
        self._then = then
        self._state = state
        self._stopped = stopped
        self._total = 0
        self._done = 0

    def stage(self, label: str, total_bytes: int | None) -> None:
        self._total, self._done = total_bytes or 0, 0
        self._then.stage(label, total_bytes)
        self.advance(0)

    def advance(self, nbytes: int) -> None:
        if self._stopped():
            raise _StoppedError
        self._done += nbytes
        self._state.progress = self._done / self._total if self._total else 0.0
        self._then.advance(nbytes)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise TokenmillError(
            f"cannot listen: {error.strerror or error}",
            where=f"{host}:{port}",
            hint="another server may be using the port; choose one with --port",
        ) from error


@contextmanager
def _signals_call(handler: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `handler` within the block, on the main thread of a process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
