"""Text to tokens and back: tokenizers, chat templates, streaming decoding, stop strings."""
