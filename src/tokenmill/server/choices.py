"""The sequences that answer one request: submitted together, read together, cancelled together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from tokenmill.engine.engine import Engine
from tokenmill.engine.text_stream import TextDelta, TextStream
from tokenmill.server.errors import GenerationFailedError
from tokenmill.server.metrics import ServerMetrics
from tokenmill.vocabulary.errors import TokenmillError, UnavailableError
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, Usage


class Choices:
    """All sequences of one request.

    Args:
        engine: where they run.
        requests: one per choice, in the order of the answer's indices.
        prompts: how many different prompts they have (several choices of one prompt count its tokens once).
        metrics: told about each sequence.
        at_start: as in TextStream.

    Raises:
        RequestError, OverloadedError, UnavailableError: as Engine.submit; nothing runs then.
    """

    def __init__(
        self,
        engine: Engine,
        requests: list[GenerationRequest],
        prompts: int,
        metrics: ServerMetrics,
        *,
        at_start: bool,
    ) -> None:
        self._metrics = metrics
        self._choices_per_prompt = len(requests) // prompts
        self._streams: list[TextStream] = []
        self._cancelled = False
        self.seed = requests[0].sampling.seed  # the others of the same prompt count up from it
        try:
            for request in requests:
                generation = engine.submit(request)
                meter = metrics.meter(generation.submitted_s)
                stream = TextStream(generation, engine.tokenizer, at_start=at_start, on_event=meter)
                self._streams.append(stream)
        except TokenmillError:
            self.cancel()
            raise

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def usage(self) -> Usage:
        """Tokens so far, over all choices."""
        usages = [stream.usage for stream in self._streams]
        prompts = usages[:: self._choices_per_prompt]
        return Usage(
            prompt_tokens=sum(u.prompt_tokens for u in prompts),
            completion_tokens=sum(u.completion_tokens for u in usages),
            cached_prompt_tokens=sum(u.cached_prompt_tokens for u in prompts),
        )

    def cancel(self) -> None:
        """Ends all of them; `deltas` ends soon after."""
        self._cancelled = True
        for stream in self._streams:
            stream.cancel()

    async def deltas(self) -> AsyncGenerator[tuple[int, TextDelta]]:
        """Pieces of all choices as they come, with the choice's index. Ends early, without error, after `cancel`.

        Raises:
            GenerationFailedError: the engine gave up on one; the others are cancelled.
            UnavailableError: the engine was closed before they ended.
        """
        try:
            async with aclosing(self._merged() if len(self._streams) > 1 else self._single()) as source:
                async for index, delta in source:
                    if delta.finish_reason is not None:
                        self._metrics.count_sequence(self._streams[index].usage, delta.finish_reason)
                    if delta.finish_reason is FinishReason.SHUTDOWN:
                        raise UnavailableError("the server is shutting down and ended this answer")
                    if delta.finish_reason is FinishReason.ERROR:
                        raise GenerationFailedError(f"the generation failed: {delta.error}")
                    if not self._cancelled:
                        yield index, delta
                    # Where events wait already, nothing above lets the event loop serve others in between.
                    await asyncio.sleep(0)
        finally:
            self.cancel()

    async def _single(self) -> AsyncGenerator[tuple[int, TextDelta]]:
        async for delta in self._streams[0]:
            yield 0, delta

    async def _merged(self) -> AsyncGenerator[tuple[int, TextDelta]]:
        queue: asyncio.Queue[tuple[int, TextDelta]] = asyncio.Queue()

        async def pump(index: int, stream: TextStream) -> None:
            async for delta in stream:
                queue.put_nowait((index, delta))

        pumps = [asyncio.create_task(pump(index, stream)) for index, stream in enumerate(self._streams)]
        try:
            left = len(pumps)
            while left:
                index, delta = await queue.get()
                left -= delta.finish_reason is not None
                yield index, delta
        finally:
            for task in pumps:
                task.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
