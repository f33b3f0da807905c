"""The real models on real text: no further from the float64 reference than llama.cpp is (DESIGN's promise of quality).

llama.cpp's divergence is in tests/golden/kl/, made by tests/golden/make_kl_goldens.py from the same file and text.
The reference's hidden states take a minute on two cores and stay in pytest's cache, under a hash of their origin.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from numerics import float64_reference as reference
from numerics.divergence import Divergence
from numerics.faults import FAULTS, Fault, replaced_window
from numerics.native_model import native_logits
from tokenmill.models import plan_model
from tokenmill.vocabulary.layer_plan import ModelPlan
from tokenmill.vocabulary.model_file import ModelFile
from tokenmill.weights.read_gguf import read_gguf

TESTS = Path(__file__).parents[1]
TEXT = TESTS / "data" / "real_text.txt"
KL_ALLOWANCE = 1.05
TOP1_MINIMUM = 0.99
FAULT_POSITIONS = 128
WINDOW = 8

# The reference's pass over 2,048 positions is 30 to 60 s of two idle cores; on a busy machine it takes many times that.
pytestmark = pytest.mark.timeout(1800)


@dataclasses.dataclass(frozen=True)
class Case:
    """One model with its golden and the reference's hidden states."""

    file: ModelFile
    plan: ModelPlan
    golden: Mapping[str, Any]
    tokens: NDArray[np.int32]
    hidden: NDArray[np.float64]
    weights: reference.Weights


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def load_case(path: Path, cache: pytest.Cache) -> Case:
    digest = sha256(path)
    goldens = [json.loads(golden.read_text()) for golden in (TESTS / "golden" / "kl").glob("*.json")]
    golden = next(entry for entry in goldens if entry["model_sha256"] == digest)
    assert golden["text_sha256"] == sha256(TEXT), "the text has changed: run make_kl_goldens.py again"
    tokens = np.array(golden["tokens"], dtype=np.int32)
    assert len(tokens) >= 2000

    file = read_gguf(path)
    plan, weights = plan_model(file), reference.Weights(path)
    identity = "\n".join([digest, repr(plan), repr(golden["tokens"]), sha256(Path(reference.__file__))])
    stored = cache.mkdir("float64_reference") / f"{hashlib.sha256(identity.encode()).hexdigest()}.npy"
    if not stored.exists():
        np.save(stored, reference.hidden_states(plan, weights, tokens))
    return Case(file, plan, golden, tokens, np.load(stored), weights)


@pytest.fixture(scope="module")
def smollm(default_model_path: Path, request: pytest.FixtureRequest) -> Case:
    return load_case(default_model_path, request.config.cache)


@pytest.fixture(scope="module")
def qwen(qwen_model_path: Path, request: pytest.FixtureRequest) -> Case:
    return load_case(qwen_model_path, request.config.cache)


def measure(case: Case, positions: int, plan: ModelPlan | None = None, **arguments: Any) -> Divergence:
    """Our divergence over the first `positions`, with the plan of the file unless another is given."""
    divergence = Divergence()
    expected = reference.logits(case.plan, case.weights, case.hidden[:positions])
    actual = native_logits(
        plan or case.plan, case.file, case.tokens[:positions], rows_at_once=reference.ROWS_AT_ONCE, **arguments
    )
    for reference_rows, native_rows in zip(expected, actual, strict=True):
        divergence.add(reference_rows, native_rows)
    return divergence


def is_good(divergence: Divergence, golden: Mapping[str, Any]) -> bool:
    """What the test demands; the faults below must not meet it."""
    limit = KL_ALLOWANCE * golden["llama_cpp_mean_kl"]
    return divergence.mean_kl <= limit and divergence.top1_agreement >= TOP1_MINIMUM


@pytest.mark.parametrize("model", ["smollm", "qwen"])
def test_not_further_from_the_reference_than_llama_cpp(model: str, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(model)
    divergence = measure(case, len(case.tokens))
    print(
        f"{model}: mean KL {divergence.mean_kl:.6f} (llama.cpp {case.golden['llama_cpp_mean_kl']:.6f}), "
        f"top-1 {divergence.top1_agreement:.4f} (llama.cpp {case.golden['llama_cpp_top1_agreement']:.4f})"
    )
    assert divergence.positions >= 2000
    assert divergence.mean_kl <= KL_ALLOWANCE * case.golden["llama_cpp_mean_kl"]
    assert divergence.top1_agreement >= TOP1_MINIMUM


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.model}-{fault.name}")
def test_a_fault_fails_the_test(fault: Fault, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(fault.model)
    plan, replaced = fault.apply(case.plan, case.file)
    divergence = measure(case, FAULT_POSITIONS, plan, replaced=replaced)
    print(f"{fault.model}, {fault.name}: mean KL {divergence.mean_kl:.4f}")
    assert not is_good(divergence, case.golden)
    assert divergence.mean_kl > 3 * case.golden["llama_cpp_mean_kl"]


def test_a_window_off_by_one_fails_the_test(smollm: Case) -> None:
    plan = replaced_window(smollm.plan, WINDOW)
    tokens = smollm.tokens[:FAULT_POSITIONS]
    case = dataclasses.replace(smollm, plan=plan, hidden=reference.hidden_states(plan, smollm.weights, tokens))
    right = measure(case, FAULT_POSITIONS)
    for window in (WINDOW - 1, WINDOW + 1):
        wrong = measure(case, FAULT_POSITIONS, replaced_window(plan, window))
        assert not is_good(wrong, case.golden)
        assert wrong.mean_kl > 5 * right.mean_kl
