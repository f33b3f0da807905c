"""Pulls GGUF models from the Hugging Face hub, or from a mirror that speaks its API (HF_ENDPOINT).

huggingface_hub lists the repository and knows the user's token (HF_TOKEN, or the one that its own login stored). The
files come through download.py: huggingface_hub begins a file anew in another process, and does not check its sha256.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NoReturn

from tokenmill.vocabulary.errors import FetchError
from tokenmill.weights.cache import check_space, locked, unwritable
from tokenmill.weights.download import RemoteFile, download
from tokenmill.weights.hub_names import HubName, RepoFile, RepoModel, choose_model, parse_hub_name
from tokenmill.weights.progress import Progress

__all__ = ["fetch_from_hub", "parse_hub_name"]

DEFAULT_ENDPOINT = "https://huggingface.co"
_LISTING_SECONDS = 30.0


def fetch_from_hub(name: HubName, cache: Path, progress: Progress) -> Path:
    """The model's (first) file in the cache; downloaded and verified first when it is not there yet.

    What a name meant is kept beside the files: a model that was pulled once is found without a network, and stays the
    same until its folder is removed.

    Raises:
        FetchError: no such model, no access, no network, no space, or a checksum that does not match.
    """
    folder = cache / "hub" / name.repo
    record = folder / f"{(name.file or name.quant or 'only').replace('/', '--')}.json"
    known = _read_record(record, folder)
    if known is not None:
        return known
    progress.stage(f"looking up {name}", None)
    endpoint = _endpoint()
    commit, files = _list_files(name, endpoint)
    model = choose_model(name, files)
    place = folder / commit
    with locked(record, progress):
        known = _read_record(record, folder)
        if known is not None:
            return known
        try:
            _download_all(name, model, place, endpoint, progress)
            _write_record(record, commit, model)
        except OSError as error:
            raise unwritable(folder, error) from error
    return place / model.files[0].name


def _endpoint() -> str:
    """HF_ENDPOINT as it is now: huggingface_hub itself reads it only once, when it is imported."""
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or DEFAULT_ENDPOINT
    if not endpoint.startswith(("https://", "http://")):
        raise FetchError("is not an http(s) address", where=f"HF_ENDPOINT={endpoint}")
    return endpoint


def _list_files(name: HubName, endpoint: str) -> tuple[str, list[RepoFile]]:
    """The repository's newest commit and its files there."""
    from huggingface_hub import HfApi, get_token  # noqa: PLC0415 - costs half a second, and most starts need no hub

    try:
        info = HfApi(endpoint=endpoint, token=get_token()).model_info(
            name.repo, files_metadata=True, timeout=_LISTING_SECONDS
        )
    except Exception as error:  # its HTTP library, and so the classes of its network errors, differ between versions
        _explain(error, name, endpoint)
    if not info.sha or not info.sha.isalnum():
        raise FetchError("the hub's answer names no commit", where=f"{endpoint}/{name.repo}")
    files = []
    for entry in info.siblings or ():
        size = entry.lfs.size if entry.lfs else entry.size
        if size is None and entry.rfilename.endswith(".gguf"):
            raise FetchError(f"the hub's answer lacks the size of {entry.rfilename}", where=f"{endpoint}/{name.repo}")
        files.append(RepoFile(entry.rfilename, size or 0, entry.lfs.sha256 if entry.lfs else None))
    return info.sha, files


def _explain(error: Exception, name: HubName, endpoint: str) -> NoReturn:
    from huggingface_hub import errors  # noqa: PLC0415 - as above

    where = f"{endpoint}/{name.repo}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError):
        raise FetchError(
            "the model's owner asks users to accept terms first",
            where=where,
            hint="accept them on that page, then set HF_TOKEN to an access token of that account",
        ) from error
    if isinstance(error, errors.RepositoryNotFoundError):
        raise FetchError(
            "there is no such repository, or it is private (and no such local file)",
            where=where,
            hint="check the spelling; for a private one set HF_TOKEN to an access token that may read it",
        ) from error
    if status == 401:
        raise FetchError(
            "the hub does not accept the access token", where=where, hint="check HF_TOKEN, or unset it"
        ) from error
    if isinstance(error, errors.OfflineModeIsEnabled):
        raise FetchError("the hub is switched off by HF_HUB_OFFLINE", where=where, hint="unset it to pull") from error
    if status is not None:
        hint = "too many requests: try again later, or set HF_TOKEN" if status == 429 else "try again later"
        raise FetchError(f"the hub answered HTTP {status}", where=where, hint=hint) from error
    if isinstance(error, errors.HFValidationError):
        raise FetchError(f"is not the name of a repository: {error}", where=name.repo) from error
    raise FetchError(
        f"the hub cannot be reached: {str(error) or type(error).__name__}",
        where=where,
        hint="check the network; HF_ENDPOINT names a mirror, HTTPS_PROXY a proxy; local files need no network",
    ) from error


def _download_all(name: HubName, model: RepoModel, place: Path, endpoint: str, progress: Progress) -> None:
    """Brings every part to `place`, whose name is the commit."""
    from huggingface_hub import get_token, hf_hub_url  # noqa: PLC0415 - as above

    missing = [file for file in model.files if not _is_whole(place / file.name, file.nbytes)]
    place.mkdir(parents=True, exist_ok=True)
    started = (place / f"{file.name}.part" for file in missing)
    check_space(
        place,
        sum(file.nbytes for file in missing) - sum(part.stat().st_size for part in started if part.exists()),
        f"pulling {name}",
    )
    token = get_token()
    headers = {"User-Agent": "tokenmill"} | ({"Authorization": f"Bearer {token}"} if token else {})
    for file in missing:
        target = place / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        url = hf_hub_url(name.repo, file.name, revision=place.name, endpoint=endpoint)
        download(RemoteFile(file.name, url, file.nbytes, file.sha256), target, headers, progress)


def _is_whole(path: Path, nbytes: int) -> bool:
    """Only verified files get their final name, so the size is enough to see that nobody cut one since."""
    return path.is_file() and path.stat().st_size == nbytes


def _write_record(record: Path, commit: str, model: RepoModel) -> None:
    document = {"commit": commit, "files": [{"name": file.name, "nbytes": file.nbytes} for file in model.files]}
    draft = record.with_name(record.name + ".draft")
    draft.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    draft.replace(record)


def _read_record(record: Path, folder: Path) -> Path | None:
    """The first file of a model that was pulled before; None when there is none, or when a file of it is gone."""
    try:
        document = json.loads(record.read_text(encoding="utf-8"))
        place = folder / document["commit"]
        paths = [place / entry["name"] for entry in document["files"]]
        whole = all(_is_whole(path, entry["nbytes"]) for path, entry in zip(paths, document["files"], strict=True))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return paths[0] if whole and paths else None
