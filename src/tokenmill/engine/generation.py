"""What a caller holds while the engine works for it: the token events of one sequence, as they come."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable

from tokenmill.vocabulary.generation import GenerationRequest, TokenEvent


class Generation:
    """The token events of one request, to be read once: with `for` from a thread or with `async for` from a loop.

    The last event has a finish_reason. Events that were never read are dropped with the object; a caller that loses
    interest calls `cancel`, which ends the iteration at once and frees the sequence within one step.
    """

    def __init__(self, request: GenerationRequest, submitted_s: float, cancel: Callable[[], None]) -> None:
        self.request = request
        self.submitted_s = submitted_s  # on the clock of TokenEvent.time_s
        self.cancel = cancel  # ends the sequence unless it has ended; from any thread, any number of times
        self._lock = threading.Condition()
        self._events: deque[TokenEvent] = deque()
        self._ended = False  # an event with a finish_reason has been delivered
        self._drained = False  # and read
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def deliver(self, events: Iterable[TokenEvent]) -> None:
        """For the engine: appends events and wakes the reader. Nothing is taken after the end."""
        with self._lock:
            if self._ended:
                return
            for event in events:
                self._events.append(event)
                self._ended = event.finish_reason is not None
            self._lock.notify()
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            loop, wake = waiter
            try:
                loop.call_soon_threadsafe(wake.set)
            except RuntimeError:  # the reader's loop has been closed: nobody reads any more
                return

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> TokenEvent:
        with self._lock:
            while not self._events:
                if self._drained:
                    raise StopIteration
                self._lock.wait()
            return self._take()

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> TokenEvent:
        while True:
            with self._lock:
                if self._events:
                    return self._take()
                if self._drained:
                    raise StopAsyncIteration
                wake = asyncio.Event()
                self._waiter = (asyncio.get_running_loop(), wake)
            await wake.wait()

    def _take(self) -> TokenEvent:
        event = self._events.popleft()
        self._drained = event.finish_reason is not None
        return event
