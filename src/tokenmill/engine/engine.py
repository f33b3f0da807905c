"""A model that answers: the one object that servers, commands and tests hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tokenmill.engine.check_request import check_request
from tokenmill.engine.engine_loop import EngineLoop, Runner
from tokenmill.engine.generation import Generation
from tokenmill.engine.options import EngineOptions, ModelInfo
from tokenmill.engine.record_file import RecordFile
from tokenmill.engine.step_report import StepReport
from tokenmill.scheduling.limits import SchedulerLimits, SchedulerState
from tokenmill.scheduling.recording import RecordedScheduler
from tokenmill.scheduling.scheduler import Scheduler
from tokenmill.text.chat_template import ChatTemplate, Message
from tokenmill.text.prompt import render_to_tokens
from tokenmill.text.tokenizer import Tokenizer
from tokenmill.vocabulary.generation import GenerationRequest
from tokenmill.weights.progress import Progress


class Engine:
    """Runs sequences of one model. Methods may be called from any thread; use it as a context manager or `close` it.

    `Engine.load` makes one from a model file; the constructor takes the parts.

    Attributes:
        info: what is running.
        tokenizer: text to the token ids that `submit` takes, and back.
        chat_template: None when the model file has none.
    """

    def __init__(
        self,
        info: ModelInfo,
        runner: Runner,
        limits: SchedulerLimits,
        tokenizer: Tokenizer,
        chat_template: ChatTemplate | None,
        *,
        record_path: Path | None = None,
    ) -> None:
        self.info = info
        self.tokenizer = tokenizer
        self.chat_template = chat_template
        self._observers: tuple[Callable[[StepReport], None], ...] = ()
        self._record = None if record_path is None else RecordFile(record_path)
        if self._record is None:
            scheduler = Scheduler(limits, tokenizer.stop_ids)
        else:
            scheduler = RecordedScheduler(limits, tokenizer.stop_ids, self._record.write)
        self._loop = EngineLoop(scheduler, runner, on_step=self._tell_observers)

    @classmethod
    def load(cls, path: Path, options: EngineOptions | None = None, *, progress: Progress | None = None) -> Self:
        """Loads a GGUF file (the first one of a split model) and starts the engine.

        Takes as long as reading the file does; `progress` is told about it, and may raise to end it.

        Raises:
            ModelFileError, UnsupportedModelError: the file cannot be used.
            CapacityError: memory cannot hold the weights or one context.
            KernelSetError: no usable kernel set, or it fails its self-test.
            RequestError: an option is out of range; `parameter` names it.
        """
        from tokenmill.engine.load import load_parts  # noqa: PLC0415 - native code is loaded only when it is needed

        options = options or EngineOptions()
        parts = load_parts(path, options, progress)
        return cls(
            parts.info,
            parts.runner,
            parts.limits,
            parts.tokenizer,
            parts.chat_template,
            record_path=options.record_path,
        )

    @property
    def state(self) -> SchedulerState:
        """How many sequences run and wait, and how many KV pages are free, at this moment."""
        return self._loop.state

    @property
    def failure(self) -> str:
        """Why the engine stopped by itself; empty while it is healthy."""
        return self._loop.failure

    def submit(self, request: GenerationRequest) -> Generation:
        """Queues a request; its tokens come out of the Generation.

        Raises:
            ContextLengthError: the prompt does not fit; the message has both numbers.
            RequestError: a parameter is out of range.
            OverloadedError: the queue is full, or the first token would come later than the request allows.
            UnavailableError: the engine was closed or has failed.
        """
        check_request(request, self.info.vocab_size)
        return self._loop.submit(request)

    def encode_chat(self, messages: Sequence[Message], variables: Mapping[str, Any] | None = None) -> list[int]:
        """Token ids of a conversation, ready for the model to answer. Text in messages never becomes a control token.

        Raises:
            TemplateError: the model has no chat template, or it is broken.
            RequestError: it refuses the messages.
        """
        return render_to_tokens(self.chat_template, self.tokenizer, messages, variables=variables)

    def observe_steps(self, observer: Callable[[StepReport], None]) -> None:
        """Calls `observer` after every step from now on, on the engine's thread: be quick, never raise."""
        self._observers = (*self._observers, observer)

    def close(self) -> None:
        """Ends what is running (FinishReason.SHUTDOWN), and the engine's thread. Safe to call twice."""
        self._loop.close()
        if self._record is not None:
            self._record.close()
        if self.chat_template is not None:
            self.chat_template.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tell_observers(self, report: StepReport) -> None:
        for observer in self._observers:
            observer(report)
