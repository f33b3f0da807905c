"""A generation as text: token events in, pieces of text out, cut at stop strings, never half a character."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from tokenmill.engine.generation import Generation
from tokenmill.text.incremental_decoder import IncrementalDecoder
from tokenmill.text.stop_strings import StopStrings
from tokenmill.text.tokenizer import Tokenizer
from tokenmill.vocabulary.generation import FinishReason, TokenEvent, Usage


@dataclass(frozen=True, slots=True)
class TokenText:
    """A token with the bytes it stands for (which need not be whole characters) and its log-probability."""

    token_id: int
    data: bytes
    logprob: float
    top: tuple[TokenText, ...] = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text. Only the last one has a finish_reason; it may have text too.

    `tokens` is filled when log-probabilities were asked for. Each token comes with the piece that completes its text.
    """

    text: str
    tokens: tuple[TokenText, ...] = ()
    finish_reason: FinishReason | None = None
    error: str = ""


class TextStream:
    """Reads a Generation once, with `for` or `async for`, as TextDelta.

    At a stop string the generation is cancelled: its text ends before the string, and the finish reason is STOP.

    Args:
        generation: nobody else may read it.
        tokenizer: the one that made the prompt.
        at_start: the output begins a text (a chat answer) instead of continuing the prompt.
        on_event: sees every token event before it becomes text (for latency metrics).
    """

    def __init__(
        self,
        generation: Generation,
        tokenizer: Tokenizer,
        *,
        at_start: bool = False,
        on_event: Callable[[TokenEvent], None] | None = None,
    ) -> None:
        self.finish_reason: FinishReason | None = None
        self._generation = generation
        self._tokenizer = tokenizer
        self._on_event = on_event
        self._decoder = IncrementalDecoder(tokenizer, at_start=at_start)
        self._stop_strings = StopStrings(generation.request.stop_strings)
        self._with_tokens = generation.request.sampling.logprobs is not None
        self._token_count = 0
        self._cached_prompt_tokens = 0
        self._decoded = 0  # characters that the decoder has given
        self._emitted = 0  # characters that have left in a delta
        self._held: deque[tuple[TokenText, int, int]] = deque()  # token, first and past-last character of its text

    @property
    def usage(self) -> Usage:
        """Counts so far. Every generated token counts, a stop token and those of a stop string too."""
        return Usage(len(self._generation.request.prompt_tokens), self._token_count, self._cached_prompt_tokens)

    def cancel(self) -> None:
        """Ends the generation; safe to call twice and after the end."""
        self._generation.cancel()

    def __iter__(self) -> Iterator[TextDelta]:
        for event in self._generation:
            if (delta := self._push(event)) is not None:
                yield delta
            if self.finish_reason is not None:
                return

    async def __aiter__(self) -> AsyncIterator[TextDelta]:
        async for event in self._generation:
            if (delta := self._push(event)) is not None:
                yield delta
            if self.finish_reason is not None:
                return

    def _push(self, event: TokenEvent) -> TextDelta | None:
        """What one token event adds; None when its text is held back."""
        if self._on_event is not None:
            self._on_event(event)
        reason = event.finish_reason
        text = ""
        if event.token_id is not None:
            self._token_count += 1
            self._cached_prompt_tokens += event.cached_prompt_tokens
            if reason is not FinishReason.STOP:  # a stop token has no text
                text = self._decoder.push(event.token_id)
                self._hold(event, len(text))
        if reason is not None:
            text += self._decoder.finish()
        self._decoded += len(text)
        text = self._stop_strings.push(text)
        stopped = self._stop_strings.stopped
        if stopped:
            self._generation.cancel()
            reason = FinishReason.STOP
        elif reason is not None:
            text += self._stop_strings.finish()
        self._emitted += len(text)
        self.finish_reason = reason
        if not text and reason is None:
            return None
        return TextDelta(text, self._release(ended=reason is not None, cut=stopped), reason, event.error)

    def _hold(self, event: TokenEvent, characters: int) -> None:
        if not self._with_tokens or event.token_id is None or event.logprob is None:
            return
        top = tuple(TokenText(t.token_id, self._bytes_of(t.token_id), t.logprob) for t in event.top_logprobs)
        token = TokenText(event.token_id, self._bytes_of(event.token_id), event.logprob, top)
        self._held.append((token, self._decoded, self._decoded + characters))

    def _bytes_of(self, token_id: int) -> bytes:
        """A control token adds nothing to the text, but in a list of alternatives its name is of use."""
        if self._tokenizer.is_control(token_id):
            return self._tokenizer.token_text(token_id).encode()
        return self._tokenizer.token_bytes(token_id)

    def _release(self, *, ended: bool, cut: bool) -> tuple[TokenText, ...]:
        """The held tokens whose text has left; at the end all, but not those that begin past a stop string's cut."""
        out = []
        while self._held:
            token, begin, end = self._held[0]
            if begin >= self._emitted if cut else end > self._emitted and not ended:
                break
            out.append(token)
            self._held.popleft()
        return tuple(out)
