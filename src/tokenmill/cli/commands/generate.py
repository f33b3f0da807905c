"""`tokenmill generate`: answers one prompt in the terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from tokenmill.cli import options

Prompt = Annotated[
    str | None, typer.Option("--prompt", "-p", help="What to answer or go on with. Default: standard input.")
]
System = Annotated[str | None, typer.Option("--system", help="System message of a chat.")]
Chat = Annotated[
    bool | None,
    typer.Option("--chat/--raw", help="Ask through the model's chat template, or go on with the text as it stands."),
]


def command(
    model: options.Model = options.DEFAULT_MODEL,
    prompt: Prompt = None,
    system: System = None,
    chat: Chat = None,
    max_tokens: options.MaxTokens = 256,
    context: options.Context = None,
    threads: options.Threads = None,
    temperature: options.Temperature = 0.7,
    top_k: options.TopK = 0,
    top_p: options.TopP = 0.95,
    min_p: options.MinP = 0.0,
    seed: options.Seed = None,
    repetition_penalty: options.RepetitionPenalty = 1.0,
    presence_penalty: options.PresencePenalty = 0.0,
    frequency_penalty: options.FrequencyPenalty = 0.0,
    logit_bias: options.LogitBias = None,
    stop: options.Stop = None,
    logprobs: options.Logprobs = None,
    ignore_eos: options.IgnoreEos = False,
    numa: options.NumaPolicy = options.AUTO_NUMA,
    lock_memory: options.LockMemory = False,
    json: options.Json = False,
) -> None:
    """Answer a prompt; time to first token and tokens/s go to stderr.

    A model with a chat template is asked through it; `--raw` goes on with the text instead.

    **Examples**

    - `tokenmill generate -p "Why is the sky blue?"`
    - `tokenmill generate model.gguf --raw -p "def fibonacci(n):" -n 128 --temperature 0`
    - `git diff | tokenmill generate qwen2.5-coder-0.5b --system "Write a commit message" --seed 7 --json`
    """
    from tokenmill.cli.answering import new_seed, parse_logit_bias
    from tokenmill.cli.generate import Ask, run
    from tokenmill.engine.options import EngineOptions
    from tokenmill.vocabulary.generation import SamplingParams

    sampling = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        logit_bias=parse_logit_bias(logit_bias),
        seed=new_seed(seed),
        logprobs=logprobs,
    )
    ask = Ask(prompt, system, chat, sampling, max_tokens, tuple(stop or ()), ignore_eos)
    engine = EngineOptions(threads=threads, context_length=context, max_sequences=1, numa=numa, lock_memory=lock_memory)
    run(model, ask, engine, as_json=json)
