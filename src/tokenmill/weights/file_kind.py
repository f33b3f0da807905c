"""Says what a file that is not a GGUF model looks like, so that the error names the mistake that was made."""

from __future__ import annotations

import json
from dataclasses import dataclass

_PREFIX_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (
        b"version https://git-lfs",
        "a Git LFS pointer, not the model itself",
        "fetch the real file: `git lfs pull`, or `tokenmill pull OWNER/NAME:QUANT`",
    ),
    (b"PK\x03\x04", "a ZIP archive (a wheel, or a PyTorch checkpoint)", "tokenmill reads GGUF files"),
    (b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (b"BZh", "a bzip2 archive", "unpack it first"),
    (b"\xfd7zXZ\x00", "an xz archive", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it first"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "tokenmill reads GGUF files"),
    (b"\x7fELF", "an executable or a shared library", "tokenmill reads GGUF files"),
    (b"\x80\x02", "a Python pickle (a PyTorch checkpoint)", "tokenmill reads GGUF files"),
    (b"FUGG", "a GGUF file with its bytes swapped (big-endian)", "convert it to little-endian first"),
    (b"tjgg", "a model in an old GGML format (before GGUF)", "get the GGUF version of the model"),
    (b"lmgg", "a model in an old GGML format (before GGUF)", "get the GGUF version of the model"),
    (b"fmgg", "a model in an old GGML format (before GGUF)", "get the GGUF version of the model"),
    (b"algg", "an old GGML adapter file (before GGUF)", "get the GGUF version of the model"),
)


@dataclass(frozen=True, slots=True)
class FileKind:
    """`what` completes "this looks like ..."; `hint` is what to do about it."""

    what: str
    hint: str


def recognise(head: bytes) -> FileKind:
    """Guesses a file's kind from its first bytes (a few hundred are enough).

    Args:
        head: the start of the file; may be shorter than asked for.
    """
    for prefix, what, hint in _PREFIX_KINDS:
        if head.startswith(prefix):
            return FileKind(what, hint)
    if _is_safetensors(head):
        return FileKind("a safetensors file", "tokenmill reads GGUF files: get or make the model's GGUF version")
    if head.strip(b"\x00") == b"":
        return FileKind("a file of zero bytes", "an interrupted download leaves such a file; download it again")
    return _recognise_text(head) or FileKind(
        f"binary data that starts with {head[:4].hex(' ')}", "tokenmill reads GGUF files"
    )


def _recognise_text(head: bytes) -> FileKind | None:
    text = head.lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<?xml", b"<head")):
        return FileKind(
            "a web page (an error or login page saved in place of the model)",
            "download it again, with `tokenmill pull` or with the link of the file itself",
        )
    if not _is_text(head):
        return None
    kind = "a JSON document" if text.startswith((b"{", b"[")) else "a text file"
    return FileKind(kind, "give the .gguf file of the model")


def _is_safetensors(head: bytes) -> bool:
    """A safetensors file starts with the length of its JSON header as a little-endian u64, then the header."""
    if len(head) < 10 or head[8:9] != b"{":
        return False
    length = int.from_bytes(head[:8], "little")
    if not 2 <= length <= 100 << 20:
        return False
    if length + 8 <= len(head):
        try:
            json.loads(head[8 : 8 + length])
        except ValueError:
            return False
        return True
    return head[9:].lstrip()[:1] in (b'"', b"}")


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The cut at the end of `head` may fall inside a character.
        if error.start < len(head) - 3:
            return False
        text = head[: error.start].decode("utf-8")
    return all(character.isprintable() or character in "\r\n\t\f" for character in text)
