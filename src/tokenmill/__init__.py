"""tokenmill: serves quantized LLMs on CPUs, at the lowest cost per token under a latency target."""

__version__ = "0.1.0"
