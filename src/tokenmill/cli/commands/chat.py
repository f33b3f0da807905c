"""`tokenmill chat`: a conversation in the terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from tokenmill.cli import options

System = Annotated[str | None, typer.Option("--system", help="What the model is told before the first question.")]


def command(
    model: options.Model = options.DEFAULT_MODEL,
    system: System = None,
    max_tokens: options.MaxTokens = None,
    context: options.Context = None,
    threads: options.Threads = None,
    temperature: options.Temperature = 0.7,
    top_k: options.TopK = 0,
    top_p: options.TopP = 0.95,
    min_p: options.MinP = 0.0,
    repetition_penalty: options.RepetitionPenalty = 1.0,
    seed: options.Seed = None,
    json: options.Json = False,
) -> None:
    r"""Talk with a model; it remembers the conversation until the context is full, then forgets the oldest turns.

    `/exit` or Ctrl-D ends, `/clear` starts over, Ctrl-C stops an answer. With `--json`, questions come line by line
    from standard input and every answer is one line of JSON.

    **Examples**

    - `tokenmill chat`
    - `tokenmill chat qwen2.5-coder-0.5b --system "Answer in one sentence." --temperature 0`
    - `printf 'Hello\nWhat did I say?\n' | tokenmill chat --json`
    """
    from tokenmill.cli.chat import ChatOptions, run
    from tokenmill.engine.options import EngineOptions
    from tokenmill.vocabulary.generation import SamplingParams

    sampling = SamplingParams(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty
    )
    chat = ChatOptions(system, sampling, seed, max_tokens)
    run(model, chat, EngineOptions(threads=threads, context_length=context, max_sequences=1), as_json=json)
