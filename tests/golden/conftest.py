"""The reference's vocabularies and templates, for the goldens that are compared on them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from reference_vocabularies import reference_folder

from tokenmill.weights.cache import cache_root


@pytest.fixture(scope="session")
def references() -> Path:
    """Folder with the reference's vocabularies and templates."""
    try:
        return reference_folder(cache_root())
    except subprocess.CalledProcessError as error:
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(f"the reference's vocabularies are needed in CI: {error}")
        pytest.skip(f"the reference's vocabularies cannot be fetched: {error}")
