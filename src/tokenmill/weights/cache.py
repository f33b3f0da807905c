"""The folder of pulled models: where it is, who may write to it, and how a file gets there whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenmill.vocabulary.errors import FetchError
from tokenmill.weights.progress import Progress

CACHE_VARIABLE = "TOKENMILL_CACHE"

# Left free on the disk besides what is to be written: a full disk hurts everything else on the machine.
_SPARE_BYTES = 64 << 20


def cache_root() -> Path:
    """$TOKENMILL_CACHE, else tokenmill/ in $XDG_CACHE_HOME, else ~/.cache/tokenmill."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tokenmill"


@contextmanager
def locked(target: Path, progress: Progress) -> Iterator[None]:
    """Holds the right to make `target`; a second pull of the same file waits here for the first.

    The lock is the kernel's (flock), so it goes with the process that holds it, however that ends.

    Raises:
        FetchError: the folder cannot be written.
    """
    lock_path = target.with_name(target.name + ".lock")
    try:
        lock_path.parent.mkdir(parents=True, exist_ok=True)
        handle = lock_path.open("w")
    except OSError as error:
        raise unwritable(lock_path.parent, error) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.stage(f"waiting for another pull of {target.name}", None)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def check_space(folder: Path, needed_bytes: int, thing: str) -> None:
    """Refuses to begin what the disk cannot hold.

    Raises:
        FetchError: less than `needed_bytes` and a small reserve are free where `folder` is.
    """
    free = shutil.disk_usage(folder).free
    if free < needed_bytes + _SPARE_BYTES:
        raise FetchError(
            f"{thing} needs {needed_bytes / 1e9:.2f} GB of disk space and {free / 1e9:.2f} GB are free",
            where=str(folder),
            hint=f"free some space, or set {CACHE_VARIABLE} to a folder on a larger disk",
        )


def unwritable(path: Path, error: OSError) -> FetchError:
    """The error for a cache that cannot be written."""
    if error.errno == errno.ENOSPC:
        return FetchError("the disk is full", where=str(path), hint=f"free some space, or set {CACHE_VARIABLE}")
    return FetchError(
        f"cannot be written: {error.strerror}",
        where=str(path),
        hint=f"set {CACHE_VARIABLE} to a folder that can be written",
    )
