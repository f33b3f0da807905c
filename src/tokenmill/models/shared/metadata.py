"""Checked access to a model's metadata: every value has a type and a range, every error names its key."""

from __future__ import annotations

from typing import TypeVar

from tokenmill.vocabulary.errors import ModelFileError, UnsupportedModelError
from tokenmill.vocabulary.model_file import MetadataValue, ModelFile

# Wide enough for any known decoder, narrow enough that products of two stay far below 2^63.
MAX_LAYERS = 1024
MAX_HEADS = 4096
MAX_DIM = 1 << 20
MAX_CONTEXT = 1 << 28
MAX_VOCABULARY = 1 << 24

_Number = TypeVar("_Number", int, float)


class Metadata:
    """Keys of one architecture: `Metadata(file, "llama").integer("block_count", ...)` reads `llama.block_count`."""

    def __init__(self, model_file: ModelFile, architecture: str) -> None:
        self.architecture = architecture
        self._path = str(model_file.path)
        self._values = model_file.metadata

    def key(self, suffix: str) -> str:
        """The full key of a suffix."""
        return f"{self.architecture}.{suffix}"

    def raw(self, suffix: str) -> MetadataValue | None:
        """The unchecked value, or None when the key is absent."""
        return self._values.get(self.key(suffix))

    def damaged(self, what: str, *, hint: str = "") -> ModelFileError:
        """An error about this file, to raise."""
        return ModelFileError(what, where=self._path, hint=hint)

    def unsupported(self, what: str, *, hint: str = "") -> UnsupportedModelError:
        """An error about something this file needs that is not built, to raise."""
        return UnsupportedModelError(what, where=self._path, hint=hint)

    def integer(self, suffix: str, *, minimum: int, maximum: int, default: int | None = None) -> int:
        """An integer in [minimum, maximum]. Without a default the key is required."""
        value = self.raw(suffix)
        if value is None:
            return self._absent(suffix, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.damaged(f"the metadata key {self.key(suffix)} is {_show(value)}, not an integer")
        if not minimum <= value <= maximum:
            raise self.damaged(f"the metadata key {self.key(suffix)} is {value}, outside {minimum}..{maximum}")
        return value

    def uniform_integer(
        self, suffix: str, *, layers: int, minimum: int, maximum: int, default: int | None = None
    ) -> int:
        """Like `integer`, for a key that may hold one value per layer; the values must all be equal.

        Raises:
            UnsupportedModelError: layers differ.
        """
        value = self.raw(suffix)
        if not isinstance(value, tuple):
            return self.integer(suffix, minimum=minimum, maximum=maximum, default=default)
        if len(value) != layers:
            raise self.damaged(f"the metadata key {self.key(suffix)} has {len(value)} values for {layers} layers")
        if len(set(value)) > 1:
            raise self.unsupported(
                f"{self.key(suffix)} differs between layers, which is not supported",
                hint="Supported: models whose layers all have the same shape.",
            )
        first = value[0]
        if isinstance(first, bool) or not isinstance(first, int) or not minimum <= first <= maximum:
            raise self.damaged(
                f"the metadata key {self.key(suffix)} holds {_show(first)}, not an integer in {minimum}..{maximum}"
            )
        return first

    def real(self, suffix: str, *, minimum: float, maximum: float, default: float | None = None) -> float:
        """A finite number in [minimum, maximum]. Without a default the key is required."""
        value = self.raw(suffix)
        if value is None:
            return self._absent(suffix, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.damaged(f"the metadata key {self.key(suffix)} is {_show(value)}, not a number")
        if not minimum <= value <= maximum:  # false for NaN, too
            raise self.damaged(f"the metadata key {self.key(suffix)} is {value}, outside {minimum:g}..{maximum:g}")
        return float(value)

    def text(self, suffix: str, *, default: str) -> str:
        """A string."""
        value = self.raw(suffix)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.damaged(f"the metadata key {self.key(suffix)} is {_show(value)}, not a string")
        return value

    def require_neutral(self, suffix: str, *neutral: MetadataValue) -> None:
        """Refuses a file whose key asks for a computation that is not built: any value but the neutral ones.

        Raises:
            UnsupportedModelError: the key is there with another value.
        """
        value = self.raw(suffix)
        if value is not None and value not in neutral:
            raise self.unsupported(
                f"{self.key(suffix)} = {_show(value)} is not supported",
                hint=f"Supported: {' or '.join(['the key absent', *(_show(v) for v in neutral)])}.",
            )

    def token_count(self) -> int | None:
        """Length of the tokenizer's vocabulary, or None when the file has no tokenizer."""
        tokens = self._values.get("tokenizer.ggml.tokens")
        return len(tokens) if isinstance(tokens, tuple) else None

    def _absent(self, suffix: str, default: _Number | None) -> _Number:
        if default is None:
            raise self.damaged(f"the metadata key {self.key(suffix)} is missing")
        return default


def _show(value: MetadataValue) -> str:
    """A value for an error message, cut so that a hostile file cannot fill the terminal."""
    text = repr(value) if not isinstance(value, tuple) else f"an array of {len(value)} values"
    return text if len(text) <= 80 else text[:77] + "..."
