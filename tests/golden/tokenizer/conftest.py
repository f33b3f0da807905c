"""The committed goldens of the tokenizer."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from strings import Case

FOLDER = Path(__file__).parent


@pytest.fixture(scope="session")
def cases() -> list[Case]:
    return [Case(*case) for case in json.loads(gzip.decompress((FOLDER / "strings.json.gz").read_bytes()))]


@pytest.fixture(scope="session")
def facts() -> dict[str, Any]:
    """Stop tokens and the digest of all tokens' bytes, per vocabulary."""
    return dict(json.loads((FOLDER / "facts.json").read_bytes()))


@pytest.fixture(scope="session")
def real_text() -> str:
    return (FOLDER.parents[1] / "data" / "real_text.txt").read_text(encoding="utf-8")
