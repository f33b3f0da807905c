"""Chat messages to the text that the model was trained on, by the template in the model file.

The template is rendered in a process of its own (see `template_worker` for why), which is started at the first use,
answers one request at a time in well under a millisecond, and is replaced when it had to be killed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import finalize

from tokenmill.vocabulary.errors import RequestError, TemplateError
from tokenmill.vocabulary.model_file import MetadataValue

Message = Mapping[str, Any]
_WORKER_FILE = Path(__file__).with_name("template_worker.py")


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """What one rendering may use.

    Attributes:
        cpu_seconds: processor time, compilation included.
        output_characters: length of the text.
        memory_bytes: memory beyond that of the idle process.
        wall_seconds: a backstop for a machine on which the process does not get to run.
    """

    cpu_seconds: float = 1.0
    output_characters: int = 16 << 20
    memory_bytes: int = 384 << 20
    wall_seconds: float = 20.0


class ChatTemplate:
    """The chat template of one model; `render` may be called from any thread, one call runs at a time.

    Args:
        source: the jinja template.
        tool_source: the template to use when tools are given, where the model has one of its own for that.
        bos_token: text of the BOS token, empty when there is none.
        eos_token: text of the EOS token, empty when there is none.
        limits: what one rendering may use.
    """

    def __init__(
        self,
        source: str,
        *,
        tool_source: str | None = None,
        bos_token: str = "",
        eos_token: str = "",
        limits: TemplateLimits | None = None,
    ) -> None:
        self.source = source
        self._tool_source = tool_source or source
        self._special = {"bos_token": bos_token, "eos_token": eos_token}
        self._process = _TemplateProcess(limits or TemplateLimits())

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, MetadataValue], *, limits: TemplateLimits | None = None
    ) -> ChatTemplate | None:
        """The template of a model file, or None when it holds none.

        There is no fallback to some common format: a model that was not trained on it would answer, but badly, and
        nobody would see why.
        """
        source = metadata.get("tokenizer.chat_template")
        tool_source = metadata.get("tokenizer.chat_template.tool_use")
        if not isinstance(source, str) or not source:
            return None
        return cls(
            source,
            tool_source=tool_source if isinstance(tool_source, str) else None,
            bos_token=_token_text(metadata, "bos"),
            eos_token=_token_text(metadata, "eos"),
            limits=limits,
        )

    def check(self) -> None:
        """Compile the template.

        Raises:
            TemplateError: it is broken or past a limit.
        """
        self._process.ask({"template": self.source})

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The text for a conversation.

        Args:
            messages: `{"role": ..., "content": text or list of {"type": "text", "text": ...} parts, ...}`; the parts
                of a list are joined by newlines.
            add_generation_prompt: end with the start of the assistant's answer.
            tools: tool definitions as JSON values, or None.
            variables: further variables for the template, such as `enable_thinking`.

        Raises:
            TemplateError: the template is broken or past a limit; it names the line where it can.
            RequestError: the template itself refuses these messages, or a content part is not text.
        """
        values = {
            **(variables or {}),
            **self._special,
            "messages": [with_plain_content(message) for message in messages],
            "tools": tools,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        return self._process.ask({"template": self._tool_source if tools else self.source, "variables": values})

    def close(self) -> None:
        """End the rendering process; a later call starts a new one."""
        self._process.close()


def with_plain_content(message: Message) -> dict[str, Any]:
    """The message with its content as one string (or None, for a message that only calls tools).

    Raises:
        RequestError: a part is not text.
    """
    if "content" not in message:
        return dict(message)
    content = message["content"]
    if isinstance(content, Sequence) and not isinstance(content, str):
        texts = []
        for part in content:
            if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise RequestError("a content part is not text; this model reads text only", parameter="messages")
            texts.append(part["text"])
        content = "\n".join(texts)
    elif content is not None and not isinstance(content, str):
        raise RequestError("content is neither a text nor a list of text parts", parameter="messages")
    return {**message, "content": content}


def _token_text(metadata: Mapping[str, MetadataValue], name: str) -> str:
    token = metadata.get(f"tokenizer.ggml.{name}_token_id")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if isinstance(token, int) and isinstance(tokens, tuple) and 0 <= token < len(tokens):
        return str(tokens[token])
    return ""


class _TemplateProcess:
    """Parent's side of `template_worker`."""

    def __init__(self, limits: TemplateLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: finalize[..., Any] | None = None

    def ask(self, request: Mapping[str, Any]) -> str:
        """Send a request and wait for its text."""
        try:
            line = json.dumps(request).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestError(f"not a JSON value: {error}", parameter="messages") from error
        with self._lock:
            process = self._running()
            try:
                answer = self._exchange(process, line)
            except (BrokenPipeError, ConnectionError, EOFError):
                raise self._failure(process) from None
            except BaseException:
                self._stop()
                raise
        reply = json.loads(answer)
        if "text" in reply:
            return str(reply["text"])
        raise _error_of(reply)

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._stop()
            limits = self._limits
            arguments = [str(limits.cpu_seconds), str(limits.output_characters), str(limits.memory_bytes)]
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and file
                [sys.executable, "-P", str(_WORKER_FILE), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
            self._finalizer = finalize(self, _end, self._process)
        return self._process

    def _exchange(self, process: subprocess.Popen[bytes], line: bytes) -> bytes:
        """Write a line and read one, within the wall-clock limit."""
        if process.stdin is None or process.stdout is None:
            raise EOFError
        deadline = time.monotonic() + self._limits.wall_seconds
        os.set_blocking(process.stdin.fileno(), False)
        received = bytearray()
        unsent = memoryview(line)
        poll = select.poll()  # select() itself refuses file numbers past 1023, which a busy server has
        poll.register(process.stdout, select.POLLIN)
        poll.register(process.stdin, select.POLLOUT)
        while not received.endswith(b"\n"):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                self._stop()
                raise TemplateError(f"rendering took more than {self._limits.wall_seconds:g} s", where="chat template")
            ready = dict(poll.poll(remaining * 1000))
            if process.stdin.fileno() in ready:
                unsent = unsent[os.write(process.stdin.fileno(), unsent) :]
                if not unsent:
                    poll.unregister(process.stdin)
            if process.stdout.fileno() in ready:
                data = os.read(process.stdout.fileno(), 1 << 20)
                if not data:
                    raise EOFError
                received += data
        return bytes(received)

    def _failure(self, process: subprocess.Popen[bytes]) -> TemplateError:
        """Why the process is gone."""
        try:
            status = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            status = 0
        self._stop()
        if status == -signal.SIGPROF:
            what = f"rendering took more than {self._limits.cpu_seconds:g} s of processor time"
        elif status < 0:
            what = f"rendering crashed ({signal.Signals(-status).name})"
        else:
            what = f"the rendering process ended with status {status}"
        return TemplateError(what, where="chat template")

    def _stop(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._finalizer = None
        self._process = None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill and reap; its state is worth nothing."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _error_of(reply: Mapping[str, Any]) -> Exception:
    if reply["kind"] == "raised":
        return RequestError(f"the model's chat template refuses: {reply['error']}", parameter="messages")
    where = "chat template" if reply["line"] is None else f"chat template, line {reply['line']}"
    what = f"the template is past its limits: {reply['error']}" if reply["kind"] == "limit" else reply["error"]
    return TemplateError(str(what), where=where)
