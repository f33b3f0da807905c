"""The process that renders chat templates; started by `chat_template` as a script, so it imports nothing of tokenmill.

Requests and replies are JSON documents, one a line, on standard input and output. A request is
`{"template": source, "variables": {...}}` (without variables: compile only). A reply is `{"text": ...}` or
`{"error": ..., "line": number or null, "kind": "template" | "raised" | "limit"}`.

Why a process: a template is a program out of an untrusted file. jinja's sandbox keeps it from the outside, not from
burning time and memory, and Python cannot stop a running operation such as `'a' * 10**10`, `x.ljust(10**10)` or a
`join` over them, neither by a trace function nor by a timer in another thread. The kernel can: ITIMER_PROF kills this
process when one rendering has used its CPU time (a busy machine does not count against the template), RLIMIT_AS bounds
its memory, and RLIMIT_FSIZE keeps it from writing files. The process ends with its parent, at the end of its input.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_COMPILED_KEPT = 8
_TEMPLATE_NAME = "<template>"


class RaisedByTemplateError(jinja2.TemplateError):
    """The template called `raise_exception`."""


class OutputLimitError(Exception):
    """The text grew past the limit."""


class PlainNamespace(Namespace):
    """jinja's `namespace` without names that Python gives a meaning to, the material of sandbox escapes."""

    def __init__(self, /, *values: Any, **more: Any) -> None:
        attributes = dict(*values, **more)
        for name in attributes:
            _check_name(name)
        super().__init__(attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}")


class Generation(Extension):
    """`{% generation %}` marks the assistant's part for training; for rendering it is its body."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Replace the block by its statements."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter as model authors know it: without HTML escapes, keys in the order given."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise RaisedByTemplateError(str(message))


def _dict(*values: Any, **more: Any) -> dict[Any, Any]:
    """The constructor alone: a template needs no class object."""
    return dict(*values, **more)


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def make_environment() -> jinja2.Environment:
    """The environment that chat templates are written for."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    del environment.globals["lipsum"]
    environment.globals.update(
        raise_exception=_raise_exception, strftime_now=_strftime_now, dict=_dict, namespace=PlainNamespace
    )
    return environment


class Renderer:
    """Compiles and renders, remembering the last few templates.

    Args:
        output_limit: characters at most.
    """

    def __init__(self, output_limit: int) -> None:
        self._environment = make_environment()
        self._output_limit = output_limit
        self._compiled: OrderedDict[str, jinja2.Template] = OrderedDict()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request; never raises."""
        try:
            template = self._compile(request["template"])
            variables = request.get("variables")
            return {"text": "" if variables is None else self._render(template, variables)}
        except RaisedByTemplateError as error:
            return {"kind": "raised", "error": str(error), "line": _line_of(error)}
        except jinja2.TemplateSyntaxError as error:
            return {"kind": "template", "error": error.message or "syntax error", "line": error.lineno}
        except OutputLimitError:
            return {"kind": "limit", "error": f"its text is longer than {self._output_limit} characters", "line": None}
        except MemoryError:
            return {"kind": "limit", "error": "it needs too much memory", "line": None}
        except Exception as error:
            message = str(error) or type(error).__name__
            return {"kind": "template", "error": message[:1000], "line": _line_of(error)}

    def _compile(self, source: str) -> jinja2.Template:
        template = self._compiled.get(source)
        if template is None:
            template = self._environment.from_string(source)
            self._compiled[source] = template
            if len(self._compiled) > _COMPILED_KEPT:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(source)
        return template

    def _render(self, template: jinja2.Template, variables: dict[str, Any]) -> str:
        parts: list[str] = []
        length = 0
        for part in template.generate(variables):
            length += len(part)
            if length > self._output_limit:
                raise OutputLimitError
            parts.append(part)
        return "".join(parts)


def _line_of(error: BaseException) -> int | None:
    """The template's line, which jinja puts into the traceback."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _TEMPLATE_NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]], cpu_seconds: float) -> None:
    """Answer requests until the input ends."""
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        try:
            reply = json.dumps(answer(json.loads(line)))
        except MemoryError:
            reply = json.dumps({"kind": "limit", "error": "it needs too much memory", "line": None})
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(reply.encode() + b"\n")
        sys.stdout.buffer.flush()


def limit_resources(memory_bytes: int) -> None:
    """Bound this process: `memory_bytes` of address space beyond what it has now, no core dumps, no files."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    address_space = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def main() -> None:
    """Arguments: CPU seconds for one request, output characters, memory bytes."""
    cpu_seconds, output_limit, memory_bytes = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    renderer = Renderer(output_limit)
    limit_resources(memory_bytes)
    with suppress(BrokenPipeError):  # the parent is gone
        serve(renderer.answer, cpu_seconds)


if __name__ == "__main__":
    main()
