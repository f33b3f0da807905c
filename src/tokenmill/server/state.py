"""What the routes share: the engine once it is there, the settings, and who is being served."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.requests import Request

from tokenmill.engine.engine import Engine
from tokenmill.server.errors import UnknownModelError
from tokenmill.server.metrics import ServerMetrics
from tokenmill.vocabulary.errors import OverloadedError, UnavailableError


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What an operator may set.

    Attributes:
        model_names: names that requests may use; the first is for requests that name none. Empty: the model's own name.
        max_body_bytes: larger request bodies are refused with 413.
        drain_s: how long SIGTERM waits for running requests.
        keep_alive_s: a stream that is silent for so long gets a comment line, so that no proxy gives it up.
        stalled_s: a client that takes none of its stream for so long is cut off, so that it cannot keep its place.
        text_threads: threads that render and tokenize prompts, off the event loop.
    """

    model_names: tuple[str, ...] = ()
    max_body_bytes: int = 4 * 2**20
    drain_s: float = 30.0
    keep_alive_s: float = 15.0
    stalled_s: float = 60.0
    text_threads: int = 2


class ServerState:
    """One server's life: loading, then ready or failed, then draining. Changed on the event loop only."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.metrics = ServerMetrics(lambda: self.active)
        self.engine: Engine | None = None
        self.failure = ""  # why the model could not be loaded
        self.progress = 0.0  # of loading, 0…1
        self.draining = False
        self.started_s = int(time.time())
        self.active = 0  # generation requests that have not been answered to the end
        self.text_pool = ThreadPoolExecutor(settings.text_threads, thread_name_prefix="tokenmill-text")

    def become_ready(self, engine: Engine) -> None:
        """The model is loaded."""
        self.engine = engine
        self.metrics.attach(engine)

    @property
    def status(self) -> str:
        """One word: loading, ready, draining or failed."""
        if self.failure or (self.engine is not None and self.engine.failure):
            return "failed"
        if self.draining:
            return "draining"
        return "loading" if self.engine is None else "ready"

    @property
    def model_names(self) -> tuple[str, ...]:
        """Names that a request may use; empty while loading without a name given."""
        if self.settings.model_names:
            return self.settings.model_names
        return () if self.engine is None else (self.engine.info.name,)

    def serving_engine(self) -> Engine:
        """The engine.

        Raises:
            UnavailableError: not ready.
        """
        engine = self.engine
        if engine is None or self.status != "ready":
            raise UnavailableError(f"the server is {self.status}")
        return engine

    def check_model(self, name: str | None) -> str:
        """The name to answer with; a request that names none gets the model there is.

        Raises:
            UnknownModelError: another model is asked for.
        """
        names = self.model_names
        if name is not None and name not in names:
            raise UnknownModelError(name, names)
        return name or names[0]

    @contextmanager
    def entering(self) -> Iterator[Callable[[], None]]:
        """Counts a generation request in; the function that is given counts it out (once, however often it is called).

        An exception within the block counts it out too. Refusing here, before the prompt is tokenized, keeps the memory
        and CPU of a flood bounded.

        Raises:
            OverloadedError: as many requests are active as the engine would run and queue.
        """
        info = self.serving_engine().info
        if self.active >= info.max_sequences + info.queue_limit:
            raise OverloadedError(f"{self.active} requests are active, which is the limit", retry_after_s=1)
        self.active += 1
        counted = True

        def leave() -> None:
            nonlocal counted
            self.active -= counted
            counted = False

        try:
            yield leave
        except BaseException:
            leave()
            raise


def state_of(request: Request) -> ServerState:
    """The state of the application that serves this request."""
    state: ServerState = request.app.state.server
    return state
