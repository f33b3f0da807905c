"""Arguments and options that commands share, each with its help in one place."""

from __future__ import annotations

from typing import Annotated

import typer

from tokenmill.vocabulary.host_facts import Numa
from tokenmill.weights import builtin_models

DEFAULT_MODEL = builtin_models.DEFAULT_MODEL

Model = Annotated[
    str,
    typer.Argument(
        help="A GGUF file, a Hugging Face repository with a quantization (OWNER/NAME:Q4_K_M), or a built-in name.",
        metavar="MODEL",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", "-t", min=1, help="Compute threads. Default: physical cores within the CPU quota."),
]
Context = Annotated[
    int | None,
    typer.Option("--context", "-c", min=1, help="Longest prompt plus answer, in tokens. Default: the model's own."),
]
_MEMORY = "Memory"
AUTO_NUMA = Numa.AUTO
NumaPolicy = Annotated[
    Numa,
    typer.Option(
        "--numa", help="On several NUMA nodes: weights once per node, or interleaved.", rich_help_panel=_MEMORY
    ),
]
LockMemory = Annotated[
    bool,
    typer.Option("--lock-memory", help="Keep weights and KV cache in memory (mlock).", rich_help_panel=_MEMORY),
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", "-n", min=1, help="Longest answer, in tokens; the context ends it too.")
]

_SAMPLING = "Sampling"
Temperature = Annotated[
    float, typer.Option("--temperature", min=0.0, help="0 takes the likeliest token.", rich_help_panel=_SAMPLING)
]
TopK = Annotated[
    int, typer.Option("--top-k", min=0, help="Only the k likeliest tokens; 0: all.", rich_help_panel=_SAMPLING)
]
TopP = Annotated[
    float,
    typer.Option(
        "--top-p", min=0.0, max=1.0, help="Only the likeliest tokens up to this mass.", rich_help_panel=_SAMPLING
    ),
]
MinP = Annotated[
    float,
    typer.Option(
        "--min-p", min=0.0, max=1.0, help="Only tokens this likely relative to the best.", rich_help_panel=_SAMPLING
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, help="Same seed, same text. Default: a new one.", rich_help_panel=_SAMPLING),
]
RepetitionPenalty = Annotated[
    float,
    typer.Option(
        "--repetition-penalty", help="Above 1: tokens already seen become less likely.", rich_help_panel=_SAMPLING
    ),
]
PresencePenalty = Annotated[
    float, typer.Option(help="Subtracted once from a generated token.", rich_help_panel=_SAMPLING)
]
FrequencyPenalty = Annotated[
    float,
    typer.Option(
        "--frequency-penalty", help="Subtracted for each time a token was generated.", rich_help_panel=_SAMPLING
    ),
]
LogitBias = Annotated[
    list[str] | None,
    typer.Option("--logit-bias", metavar="TOKEN_ID=BIAS", help="Added to a logit; repeat.", rich_help_panel=_SAMPLING),
]
Logprobs = Annotated[
    int | None,
    typer.Option(
        "--logprobs",
        min=0,
        max=20,
        help="With --json: log-probabilities, and those of n more.",
        rich_help_panel=_SAMPLING,
    ),
]
Stop = Annotated[
    list[str] | None, typer.Option("--stop", help="Text that ends the answer; repeat.", rich_help_panel=_SAMPLING)
]
IgnoreEos = Annotated[
    bool, typer.Option("--ignore-eos", help="Go on past the model's own end, for measuring.", rich_help_panel=_SAMPLING)
]
