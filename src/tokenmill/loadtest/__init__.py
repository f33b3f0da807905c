"""Load on a server over HTTP alone, so that any OpenAI-compatible server can be measured the same way."""
