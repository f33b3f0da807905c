"""What every worker of `make bench-rivals` speaks: one JSON command a line on stdin, one JSON answer a line on stdout.

A worker holds one model in one program. It runs in the environment of its program, so it may import only the standard
library and that program. The commands are the methods of `Program`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, Protocol


class Program(Protocol):
    """A program that can be timed. Times are seconds of wall clock around the computation alone."""

    def load(
        self, *, path: str, threads: int, sequences: int, context: int, settings: dict[str, Any]
    ) -> dict[str, Any]:
        """Loads a model for `sequences` at once of `context` tokens each; returns {"version", "settings"}."""

    def prefill(self, *, prompts: list[list[int]]) -> dict[str, Any]:
        """Computes prompts from nothing, logits of their last tokens included; returns {"seconds"}."""

    def begin_decode(self, *, prompt: list[int], batch: int) -> dict[str, Any]:
        """Fills `batch` sequences with the prompt; decode() goes on from there, each time anew."""

    def decode(self, *, steps: int) -> dict[str, Any]:
        """Computes `steps` tokens of each sequence, logits included; returns {"seconds", "steps"}: each step's time."""

    def choices(self, *, tokens: list[int], first: int) -> dict[str, Any]:
        """The token with the largest logit after each position from `first` on: {"choices": [...]}."""


def serve(program: Program) -> None:
    """Answers commands until stdin ends. What a library prints goes to stderr: stdout is for answers."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(program, command.pop("do"))(**command)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
