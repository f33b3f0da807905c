"""Names on the hub: what a user may write, and what the files of real repositories are called."""

from __future__ import annotations

import pytest

from tokenmill.weights.hub_names import HubName, RepoFile, choose_model, parse_hub_name, quant_of


@pytest.mark.parametrize(
    ("file", "quant"),
    [
        ("qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", "Q4_K_M"),
        ("tinyllama-1.1b-chat-v1.0.Q2_K.gguf", "Q2_K"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("Meta-Llama-3.1-8B-Instruct-Q4_0_4_4.gguf", "Q4_0_4_4"),
        ("Llama-3.2-1B-Instruct-Q6_K_L.gguf", "Q6_K_L"),
        ("Llama-3.2-1B-Instruct-IQ4_NL.gguf", "IQ4_NL"),
        ("Model.i1-IQ3_XXS.gguf", "IQ3_XXS"),
        ("UD-Q4_K_XL/Qwen3-30B-UD-Q4_K_XL-00001-of-00002.gguf", "UD-Q4_K_XL"),
        ("mistral-7b-instruct-v0.3.fp16.gguf", "F16"),
        ("gemma-2-2b-it-f32.gguf", "F32"),
        ("Qwen3-0.6B-BF16.gguf", "BF16"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("bitnet-TQ1_0.gguf", "TQ1_0"),
        ("model_q8_0.gguf", "Q8_0"),
        ("model.gguf", None),
        ("Qwen2.5-7B.gguf", None),
        ("seq4_k.gguf", None),
    ],
)
def test_quantization_in_a_file_name(file: str, quant: str | None) -> None:
    assert quant_of(file) == quant


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-GGUF:Q4_K_M", HubName("Qwen/Qwen2.5-7B-Instruct-GGUF", "Q4_K_M")),
        ("o/n:q4_k_m", HubName("o/n", "Q4_K_M")),
        ("o/n:fp16", HubName("o/n", "F16")),
        ("o/n", HubName("o/n")),
        ("o/n/a.gguf", HubName("o/n", file="a.gguf")),
        ("o/n/sub/a b.gguf", HubName("o/n", file="sub/a b.gguf")),
        ("o", None),
        ("o/n/x", None),
        ("o/n:", None),
        ("o/n:a/b", None),
        ("/o/n", None),
        ("../n", None),
        ("o/../n.gguf", None),
        ("dir/model.gguf", None),
    ],
)
def test_names(text: str, name: HubName | None) -> None:
    assert parse_hub_name(text) == name


def test_companions_are_no_models() -> None:
    names = ["m-Q4_0.gguf", "mmproj-m-f16.gguf", "m-imatrix.gguf", "imatrix.gguf", "README.md"]
    files = [RepoFile(name, 10, None) for name in names]
    assert choose_model(HubName("o/n"), files).files[0].name == "m-Q4_0.gguf"
    named_so = [RepoFile("m-imatrix-Q4_0.gguf", 10, None)]
    assert choose_model(HubName("o/n", "Q4_0"), named_so).files[0].name == "m-imatrix-Q4_0.gguf"
