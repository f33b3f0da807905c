"""What all tests share: the real models, and the rule for tests that only a schedule runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokenmill.vocabulary.errors import FetchError
from tokenmill.weights.builtin_models import BUILTIN_MODELS, DEFAULT_MODEL
from tokenmill.weights.fetch import fetch

# A folder that already holds the models under their cache names; nothing is pulled for those that are there.
MODELS_VARIABLE = "TOKENMILL_TEST_MODELS"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "scheduled: long; runs only when asked for with -m scheduled")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves scheduled tests out (rather than skipping them, which would fail in CI) unless -m speaks of them."""
    if "scheduled" in (config.option.markexpr or ""):
        return
    left_out = [item for item in items if item.get_closest_marker("scheduled")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _model_path(name: str) -> Path:
    folder = os.environ.get(MODELS_VARIABLE)
    if folder:
        given = Path(folder) / BUILTIN_MODELS[name].file_name
        if given.is_file():
            return given
    try:
        return fetch(name)
    except FetchError as error:
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(f"the model {name} is needed in CI: {error}")
        pytest.skip(f"the model {name} cannot be pulled: {error}")


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """SmolLM2-135M-Instruct: llama, Q4_1 with a Q8_0 tied embedding, 98 MB."""
    return _model_path(DEFAULT_MODEL)


@pytest.fixture(scope="session")
def qwen_model_path() -> Path:
    """Qwen2.5-Coder-0.5B-Instruct: qwen2 with QKV bias; Q5_0, Q8_0, Q6_K and Q4_K, 491 MB."""
    return _model_path("qwen2.5-coder-0.5b")
