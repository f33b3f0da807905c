"""The native module at its border: what it gives, and what it refuses instead of crashing."""

from __future__ import annotations

import dataclasses
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numerics.batch_driver import open_tiny
from tiny_models import TinyModel, tiny_plan, tiny_tensors
from tokenmill import _native

SHAPE = TinyModel("llama", embedding=64, vocab=270, layers=1)
KERNELS = _native.select_kernel_set(None)
GREEDY: dict[str, Any] = {
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logit_bias": [],
    "seed": 0,
    "logprobs": -1,
}


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def step_arguments() -> dict[str, Any]:
    return {
        "tokens": ints(1, 2, 3, 4),
        "starts": ints(0, 3, 4),
        "positions": ints(0, 0),
        "page_table": ints(2, 0),
        "page_starts": ints(0, 1, 2),
        "sample_rows": ints(2, 3),
        "samplers": [_native.SamplerConfig(**GREEDY)] * 2,
        "histories": [None, None],
        "return_logits": True,
    }


@pytest.fixture(scope="module")
def model() -> _native.Model:
    opened = open_tiny(SHAPE, KERNELS, 2)
    opened.allocate_kv(4)
    return opened


def test_a_step_gives_everything_it_says(model: _native.Model) -> None:
    arguments = step_arguments()
    arguments["samplers"] = [
        _native.SamplerConfig(**GREEDY),
        _native.SamplerConfig(**{**GREEDY, "logprobs": 3, "logit_bias": [(7, -100.0)]}),
    ]
    result = model.step(**arguments)
    assert result.logits is not None
    assert result.logits.shape == (2, SHAPE.vocab)
    assert result.logits.dtype == np.float32
    assert result.token_ids.dtype == np.int32
    assert result.token_ids[0] == result.logits[0].argmax()
    assert result.nonfinite.tolist() == [False, False]
    assert set(result.phase_seconds) == {"matmul", "attention", "other", "sampling"}
    assert [len(ids) for ids in result.top_ids] == [0, 3]
    assert result.top_ids[1][0] == result.logits[1].argmax()
    log_sum = np.log(np.exp(result.logits[1].astype(np.float64)).sum())
    assert np.allclose(result.top_logprobs[1], np.sort(result.logits[1])[::-1][:3] - log_sum, atol=1e-5)


def test_without_samplers_there_are_only_logits(model: _native.Model) -> None:
    result = model.step(**{**step_arguments(), "samplers": None})
    assert result.logits is not None
    assert len(result.token_ids) == 0
    result = model.step(**{**step_arguments(), "samplers": [], "histories": [], "sample_rows": ints()})
    assert result.logits is not None
    assert result.logits.shape == (0, SHAPE.vocab)


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("tokens", ints(1, 2, 3, 270), "token 270"),
        ("tokens", ints(1, 2, 3), "starts"),
        ("starts", ints(0, 4), "starts"),
        ("positions", ints(0, 3000), "context"),
        ("positions", ints(0, 16), "needs 2 pages"),
        ("page_table", ints(2, 4), "page 4 of 4"),
        ("page_table", ints(2, 2), "written already"),
        ("page_starts", ints(0, 0, 2), "needs 1 pages"),
        ("sample_rows", ints(2, 4), "row 4"),
        ("sample_rows", ints(3, 2), "not after"),
        ("sample_rows", ints(2), "samplers"),
        ("samplers", [_native.SamplerConfig(**GREEDY)], "samplers"),
        ("samplers", [None, None], "None"),
    ],
)
def test_a_bad_step_is_refused(model: _native.Model, name: str, value: Any, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        model.step(**{**step_arguments(), name: value})


@pytest.mark.parametrize(
    "value", [np.array([1, 2, 3, 4]), np.ones((2, 2), np.int32), ints(*range(8))[::2], [1, 2, 3, 4]]
)
def test_arrays_of_another_kind_are_refused(model: _native.Model, value: Any) -> None:
    with pytest.raises(TypeError):
        model.step(**{**step_arguments(), "tokens": value})


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": -0.1},
        {"top_p": 1.5},
        {"min_p": 1.5},
        {"repetition_penalty": 0.0},
        {"logit_bias": [(1, float("inf"))]},
        {"logprobs": -2},
    ],
)
def test_bad_sampling_parameters_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changed))):
        _native.SamplerConfig(**{**GREEDY, **changed})


def test_penalties_need_a_history_of_known_tokens(model: _native.Model) -> None:
    penalized = _native.SamplerConfig(**{**GREEDY, "presence_penalty": 0.5})
    arguments = {**step_arguments(), "samplers": [penalized, penalized]}
    model.step(**{**arguments, "histories": [(ints(1, 2), 1), (ints(), 0)]})
    with pytest.raises(ValueError, match="outside the vocabulary"):
        model.step(**{**arguments, "histories": [(ints(1, 300), 1), None]})
    with pytest.raises(ValueError, match="longer than itself"):
        model.step(**{**arguments, "histories": [(ints(1, 2), 3), None]})


def test_calls_out_of_order_are_refused() -> None:
    empty = _native.Model(dataclasses.asdict(tiny_plan(SHAPE)), kernel_set=KERNELS, threads=1, cpus=None)
    with pytest.raises(ValueError, match="not loaded"):
        empty.step(**step_arguments())
    with pytest.raises(ValueError, match="is missing"):
        empty.finish_loading()
    with pytest.raises(ValueError, match="page 0 of 0"):
        empty.zero_pages(ints(0))
    with pytest.raises(ValueError, match="at least 1"):
        empty.allocate_kv(0)
    with pytest.raises(MemoryError):
        empty.allocate_kv(2**31 - 1)


def test_bad_plans_and_places_are_refused() -> None:
    plan = dataclasses.asdict(tiny_plan(SHAPE))

    def opened(changed: dict[str, Any], **places: Any) -> None:
        _native.Model({**plan, **changed}, **{"kernel_set": KERNELS, "threads": 1, "cpus": None, **places})

    with pytest.raises(ValueError, match="vocab_size is missing"):
        _native.Model({}, kernel_set=KERNELS, threads=1, cpus=None)
    with pytest.raises(ValueError, match="vocab_size"):
        opened({"vocab_size": 2**40})
    with pytest.raises(ValueError, match="norm_epsilon"):
        opened({"norm_epsilon": "small"})
    with pytest.raises(ValueError, match="layers"):
        opened({"layers": 5})
    layer = plan["layers"][0]
    with pytest.raises(ValueError, match="mixture-of-experts"):
        opened({"layers": ({**layer, "ffn": {**layer["ffn"], "expert_count": 8}},)})
    with pytest.raises(ValueError, match="no_such_set"):
        opened({}, kernel_set="no_such_set")
    with pytest.raises(ValueError, match="threads"):
        opened({}, threads=0)
    with pytest.raises(ValueError, match="affinity"):
        opened({}, cpus=[[10**4]])


@pytest.mark.parametrize(
    "format_name", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_1", "Q8_0", "IQ4_NL", "Q6_K", "Q4_K"]
)
@pytest.mark.parametrize("pattern", [b"\x00\x7c", b"\x01\xfe"])  # infinity, NaN
def test_scales_that_are_not_finite_are_named(format_name: str, pattern: bytes) -> None:
    shape = TinyModel("llama", embedding=256, hidden=256, formats={"ffn_up": format_name})
    name = "blk.0.ffn_up.weight"
    data = bytearray(tiny_tensors(shape)[name].data)
    at = len(data) // 256 * 9 + {"Q6_K": 208, "Q4_1": 2, "Q5_1": 2, "Q4_K": 2, "Q5_K": 2}.get(format_name, 0)
    if format_name in ("F32", "BF16"):
        pattern = pattern[:1] + {0x7C: b"\x7f", 0xFE: b"\xff"}[pattern[1]]
        pattern = (b"\x00\x00" if format_name == "F32" else b"") + b"\x80" + pattern[1:]
    data[at : at + len(pattern)] = pattern
    with pytest.raises(RuntimeError, match=rf"{name}: row 9, (block|element) 0") as caught:
        open_tiny(shape, KERNELS, 2, {name: bytes(data)})
    assert "NaN or infinite" in str(caught.value)


def test_a_file_that_cannot_be_read_is_an_os_error() -> None:
    tensor = tiny_tensors(SHAPE)["output_norm.weight"]
    empty = _native.Model(dataclasses.asdict(tiny_plan(SHAPE)), kernel_set=KERNELS, threads=1, cpus=None)
    with tempfile.TemporaryFile() as stream:
        stream.write(tensor.data[:100])
        stream.flush()
        with pytest.raises(OSError, match="ends early"):
            empty.load_tensor("output_norm.weight", "F32", 1, 64, stream.fileno(), 0, len(tensor.data))
    with pytest.raises(OSError, match="reading failed") as caught:
        empty.load_tensor("output_norm.weight", "F32", 1, 64, -1, 0, len(tensor.data))
    assert caught.value.errno is not None
    with pytest.raises(ValueError, match="Q9_9"):
        empty.load_tensor("output_norm.weight", "Q9_9", 1, 64, 0, 0, 256)


def test_two_threads_do_not_race(model: _native.Model) -> None:
    """One wins, the other is told; both may win when they do not meet."""
    seen: list[str] = []

    def run() -> None:
        for _ in range(50):
            try:
                model.step(**step_arguments())
            except RuntimeError as error:
                seen.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("in use by another thread" in message for message in seen)


def test_matmul_on_its_own() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((3, 64)).astype(np.float32)
    weights = tiny_tensors(SHAPE)["blk.0.ffn_up.weight"]
    got = _native.matmul(KERNELS, weights.format, weights.data, 96, x, 2)
    dense = _native.dequantize(weights.format, weights.data, 64)
    assert got.shape == (3, 96)
    assert np.abs(got - x @ dense.T).max() < 0.05 * np.abs(got).max()
    q, scale, half_sums = _native.quantize_activations(KERNELS, x)
    assert np.abs(q.astype(np.float32) * np.repeat(scale, 32, axis=1) - x).max() < 0.03
    assert (half_sums == q.reshape(3, 2, 2, 16).astype(np.int16).sum(axis=3)).all()
    for rows, data in ((95, weights.data), (96, weights.data[:-1]), (0, b""), (-1, b"")):
        with pytest.raises(ValueError, match=r"rows|bytes"):
            _native.matmul(KERNELS, weights.format, data, rows, x, 1)
    with pytest.raises(ValueError, match="whole rows"):
        _native.dequantize("Q4_0", b"123", 32)
    with pytest.raises(ValueError, match="32"):
        _native.quantize_activations(KERNELS, x[:, :33].copy())


def test_weights_lie_in_huge_pages_where_the_kernel_has_them() -> None:
    big = TinyModel("llama", embedding=512, hidden=2048, layers=2, heads=8, head_dim=64)
    opened = open_tiny(big, KERNELS, 2)
    file_bytes = sum(len(tensor.data) for tensor in tiny_tensors(big).values())
    assert opened.weight_bytes <= 1.02 * file_bytes
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if setting.exists() and "[never]" not in setting.read_text():
        assert opened.weight_memory().transparent_bytes > 0


def test_the_float_environment_is_the_default_here() -> None:
    assert _native.fp_environment_is_default()
