"""What the tokenizer goldens need: the committed files and the reference's vocabularies."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from reference_vocabularies import reference_folder
from strings import Case

from tokenmill.weights.cache import cache_root

FOLDER = Path(__file__).parent


@pytest.fixture(scope="session")
def cases() -> list[Case]:
    return [Case(*case) for case in json.loads(gzip.decompress((FOLDER / "strings.json.gz").read_bytes()))]


@pytest.fixture(scope="session")
def facts() -> dict[str, Any]:
    """Stop tokens and the digest of all tokens' bytes, per vocabulary."""
    return dict(json.loads((FOLDER / "facts.json").read_bytes()))


@pytest.fixture(scope="session")
def references() -> Path:
    """Folder with the reference's vocabularies and templates."""
    try:
        return reference_folder(cache_root())
    except subprocess.CalledProcessError as error:
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(f"the reference's vocabularies are needed in CI: {error}")
        pytest.skip(f"the reference's vocabularies cannot be fetched: {error}")
