"""How models are named on the Hugging Face hub: `OWNER/NAME:QUANT`, and which files of a repository that means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tokenmill.vocabulary.errors import FetchError
from tokenmill.weights.gguf_splits import part_names

_HUB_NAME = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:/(?P<file>.+\.gguf)|:(?P<quant>[A-Za-z0-9][\w.-]*))?",
    re.ASCII,
)
# The quantization at the end of a file's stem, such as "…-UD-Q4_K_XL", "….Q4_0", "…-IQ4_NL", "…-f16".
_QUANT = re.compile(
    r"(?:^|[-._])(?P<quant>(?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|FP?16|FP?32|MXFP4(?:_MOE)?|NVFP4))$",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository and, in it, one quantization or one file; with neither, the only model there is."""

    repo: str
    quant: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        return self.repo + (f":{self.quant}" if self.quant else "") + (f"/{self.file}" if self.file else "")


@dataclass(frozen=True, slots=True)
class RepoFile:
    """A file of a repository as the hub lists it; `name` is its path there."""

    name: str
    nbytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class RepoModel:
    """A model in a repository: one file, or the parts of a split one in order."""

    quant: str | None
    files: tuple[RepoFile, ...]

    @property
    def nbytes(self) -> int:
        """Size of all parts."""
        return sum(file.nbytes for file in self.files)


def parse_hub_name(text: str) -> HubName | None:
    """None when the text cannot be the name of a repository."""
    match = _HUB_NAME.fullmatch(text)
    if match is None or ".." in text or match["repo"].endswith(".gguf"):  # a path, and there is no such file
        return None
    return HubName(match["repo"], _normalised(match["quant"]) if match["quant"] else None, match["file"])


def quant_of(file_name: str) -> str | None:
    """The quantization that a file's name speaks of, in capitals; None when it speaks of none."""
    path = PurePosixPath(file_name)
    stem = re.sub(r"-\d{5}-of-\d{5}$", "", path.name.removesuffix(".gguf"))
    match = _QUANT.search(stem)
    return _normalised(match["quant"]) if match else None


def choose_model(name: HubName, files: Sequence[RepoFile]) -> RepoModel:
    """The model that a name means.

    Raises:
        FetchError: it means none or several; the message lists what there is.
    """
    models = _group(files)
    if not models:
        kinds = sorted({PurePosixPath(file.name).suffix for file in files} - {"", ".md", ".json", ".txt"})
        raise FetchError(
            "the repository holds no GGUF model" + (f" (it holds {', '.join(kinds[:6])} files)" if kinds else ""),
            where=name.repo,
            hint="look for a repository with the model's GGUF files; their names often end in -GGUF",
        )
    if name.file is not None:
        chosen = [model for model in models if any(file.name == name.file for file in model.files)]
    elif name.quant is not None:
        chosen = [model for model in models if model.quant == name.quant]
    else:
        chosen = models
    if len(chosen) == 1:
        return _complete(name, chosen[0])
    if not chosen:
        raise FetchError(
            f"the repository has no {name.file or name.quant}; it has: {_listing(models)}",
            where=name.repo,
            hint=f"for example {name.repo}:{models[0].quant or 'QUANT'}",
        )
    if name.quant is None:
        raise FetchError(
            f"the repository holds several models; say which: {_listing(chosen)}",
            where=name.repo,
            hint=f"for example {name.repo}:{chosen[0].quant or 'QUANT'}",
        )
    raise FetchError(
        f"{name.quant} is the quantization of several files: {', '.join(model.files[0].name for model in chosen)}",
        where=name.repo,
        hint=f"name the file: {name.repo}/{chosen[0].files[0].name}",
    )


def _normalised(quant: str) -> str:
    upper = quant.upper()
    return {"FP16": "F16", "FP32": "F32"}.get(upper, upper)


def _is_companion(file_name: str) -> bool:
    """Image projectors, and the statistics that quantizing used: beside a model, not models."""
    lower = file_name.lower()
    return "mmproj" in lower or ("imatrix" in lower and quant_of(file_name) is None)


def _group(files: Iterable[RepoFile]) -> list[RepoModel]:
    """Models of a repository, smallest first; parts of a split model belong together."""
    groups: dict[str, list[RepoFile]] = {}
    for file in files:
        path = PurePosixPath(file.name)
        if path.suffix != ".gguf" or _is_companion(path.name) or ".." in path.parts or path.is_absolute():
            continue
        parts = part_names(path.name)
        groups.setdefault(str(path.with_name(parts[0])) if parts else file.name, []).append(file)
    models = [
        RepoModel(quant_of(key), tuple(sorted(members, key=lambda file: file.name))) for key, members in groups.items()
    ]
    return sorted(models, key=lambda model: (model.nbytes, model.files[0].name))


def _complete(name: HubName, model: RepoModel) -> RepoModel:
    first = PurePosixPath(model.files[0].name)
    expected = part_names(first.name)
    if expected is not None:
        present = {PurePosixPath(file.name).name for file in model.files}
        missing = [part for part in expected if part not in present]
        if missing:
            raise FetchError(f"parts of this model are missing there: {', '.join(missing[:5])}", where=str(name))
    return model


def _listing(models: Sequence[RepoModel]) -> str:
    shown = [f"{model.quant or model.files[0].name} ({model.nbytes / 1e9:.2f} GB)" for model in models[:40]]
    return ", ".join(shown) + (f" and {len(models) - 40} more" if len(models) > 40 else "")
