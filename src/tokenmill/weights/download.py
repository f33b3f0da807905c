"""One file over HTTP: resumed after a broken connection, verified, and put in its place whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, BinaryIO

from tokenmill.vocabulary.errors import FetchError
from tokenmill.weights.cache import unwritable
from tokenmill.weights.progress import Progress

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 30.0
_TRIES_WITHOUT_PROGRESS = 5
_FIRST_WAIT_SECONDS = 0.5
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to download. `sha256` is None when the server did not publish it; then only the size is checked."""

    name: str
    url: str
    nbytes: int
    sha256: str | None


def download(file: RemoteFile, target: Path, headers: dict[str, str], progress: Progress) -> None:
    """Downloads to `target`. What arrived is kept in `target`.part when it fails, and the next try continues it.

    Args:
        file: what to download.
        target: its place; its folder exists.
        headers: sent to the server of `file.url` only, not to another host that it redirects to.
        progress: told about every chunk; what a former try left counts as done.

    Raises:
        FetchError: refused, unreachable, or not the file that was asked for.
        KeyboardInterrupt: as it comes; the part that arrived stays.
    """
    part = target.with_name(target.name + ".part")
    progress.stage(f"downloading {file.name}", file.nbytes)
    try:
        _fill(file, part, headers, progress)
        _verify(file, part, progress)
        part.replace(target)
    except OSError as error:
        raise unwritable(target.parent, error) from error


def _fill(file: RemoteFile, part: Path, headers: dict[str, str], progress: Progress) -> None:
    """Requests ranges until `part` has the file's size."""
    failures = 0
    with part.open("ab") as output:
        if output.tell() > file.nbytes:
            output.seek(0)
            output.truncate()
        best = output.tell()
        progress.advance(best)
        while output.tell() < file.nbytes:
            problem = _request_rest(file, output, headers, progress)
            # Progress is what was never there before: a server without ranges may begin anew for ever.
            failures = 0 if output.tell() > best else failures + 1
            best = max(best, output.tell())
            if failures >= _TRIES_WITHOUT_PROGRESS:
                raise FetchError(
                    f"the download broke off {failures} times without progress: {problem}",
                    where=file.url,
                    hint="try again later: it continues where it stopped",
                )
            if output.tell() < file.nbytes:
                time.sleep(min(8.0, _FIRST_WAIT_SECONDS * 2**failures))
        output.flush()
        os.fsync(output.fileno())


def _request_rest(file: RemoteFile, output: BinaryIO, headers: dict[str, str], progress: Progress) -> str:
    """One request for what is missing. Returns why it ended early; the caller sees from the size whether it did."""
    have = output.tell()
    sent = dict(headers)
    if have:
        sent["Range"] = f"bytes={have}-"
    try:
        response = _opener().open(
            urllib.request.Request(file.url, headers=sent),  # noqa: S310 - the opener refuses other schemes
            timeout=_TIMEOUT_SECONDS,
        )
    except urllib.error.HTTPError as error:
        with error:
            if error.code in _RETRIED_STATUS:
                return f"HTTP {error.code}"
            raise _refusal(error, file) from error
    except (OSError, http.client.HTTPException) as error:
        return _network_problem(error, file)
    with response:
        if have and response.status != http.HTTPStatus.PARTIAL_CONTENT:
            # The server does not do ranges: from the start.
            output.seek(0)
            output.truncate()
            progress.advance(-have)
        elif have and not _starts_at(response.headers, have):
            raise FetchError("the server answered with another range than was asked for", where=file.url)
        return _copy(response, output, file, progress)


def _refusal(error: urllib.error.HTTPError, file: RemoteFile) -> FetchError:
    """The hub lists a gated repository to everybody, and refuses its files (X-Error-Code says why)."""
    if error.headers.get("X-Error-Code") == "GatedRepo":
        return FetchError(
            "the model's owner asks users to accept terms first",
            where=file.url,
            hint="accept them on the model's page, then set HF_TOKEN to an access token of that account",
        )
    hint = "set HF_TOKEN to an access token that may read it" if error.code in {401, 403} else ""
    return FetchError(f"the server refused it: HTTP {error.code} {error.reason}", where=file.url, hint=hint)


def _network_problem(error: Exception, file: RemoteFile) -> str:
    """What went wrong, for the message when no try is left. Raises FetchError where trying again cannot help."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        raise FetchError(
            f"the server's certificate cannot be verified: {reason.verify_message}",
            where=file.url,
            hint="install the system's CA certificates (ca-certificates), or set SSL_CERT_FILE",
        ) from error
    return str(reason) or type(reason).__name__


def _copy(response: IO[bytes], output: BinaryIO, file: RemoteFile, progress: Progress) -> str:
    while True:
        try:
            chunk = response.read(_CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            # What a broken read still holds is asked for again.
            return f"{type(error).__name__}: {error}"
        if not chunk:
            return "the connection ended early"
        if output.tell() + len(chunk) > file.nbytes:
            raise FetchError(f"the server sends more than the file's {file.nbytes} bytes", where=file.url)
        output.write(chunk)
        progress.advance(len(chunk))


def _starts_at(headers: Message, offset: int) -> bool:
    return (headers.get("Content-Range") or "").startswith(f"bytes {offset}-")


def _verify(file: RemoteFile, part: Path, progress: Progress) -> None:
    if file.sha256 is None:
        return
    progress.stage(f"verifying {file.name}", file.nbytes)
    digest = hashlib.sha256()
    with part.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            progress.advance(len(chunk))
    if digest.hexdigest() != file.sha256:
        part.unlink()
        raise FetchError(
            f"the downloaded file has sha256 {digest.hexdigest()}, expected {file.sha256}",
            where=file.url,
            hint="it was damaged on the way or the server holds another file; the copy was removed, try again",
        )


class _CarefulRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects over HTTP(S) only, and keeps the token from other hosts (the hub redirects to a CDN)."""

    def redirect_request(  # noqa: PLR0917 - the library's signature
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if new is None:
            return None
        old_place, new_place = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(new.full_url)
        if new_place.scheme not in {"http", "https"}:
            raise FetchError(f"the server redirects to a {new_place.scheme} address", where=req.full_url)
        if (old_place.scheme, old_place.netloc) != (new_place.scheme, new_place.netloc):
            new.remove_header("Authorization")
        return new


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_CarefulRedirects())
