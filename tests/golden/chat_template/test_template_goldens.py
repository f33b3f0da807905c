"""Chat templates rendered as `transformers` renders them; prompts read as the tokenizer reads the rendered text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from conversations import CONVERSATIONS

from tokenmill.text.chat_template import ChatTemplate
from tokenmill.text.prompt import render_to_tokens
from tokenmill.text.tokenizer import Tokenizer
from tokenmill.vocabulary.errors import RequestError, TemplateError
from tokenmill.weights.read_gguf import read_gguf

FOLDER = Path(__file__).parent
RENDERED: dict[str, dict[str, str | None]] = json.loads(gzip.decompress((FOLDER / "rendered.json.gz").read_bytes()))


def check(source: str, expected: dict[str, str | None]) -> None:
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    assert expected.keys() == CONVERSATIONS.keys()
    for name, conversation in CONVERSATIONS.items():
        text = None
        try:
            text = template.render(**conversation)
        except (RequestError, TemplateError):
            assert expected[name] is None, name
        assert text == expected[name], name
    template.close()


@pytest.mark.parametrize("name", [name for name in RENDERED if name.endswith(".jinja")])
def test_collected_templates(name: str, references: Path) -> None:
    check((references / "templates" / name).read_text(encoding="utf-8"), RENDERED[name])


def check_model(path: Path) -> None:
    metadata = read_gguf(path).metadata
    check(str(metadata["tokenizer.chat_template"]), RENDERED[path.stem])
    template, tokenizer = ChatTemplate.from_metadata(metadata), Tokenizer.from_metadata(metadata)
    assert template is not None
    for conversation in CONVERSATIONS.values():
        try:
            text = template.render(**conversation)
        except TemplateError:
            continue
        ids = tokenizer.encode(text, add_special=True, parse_special=True)
        assert render_to_tokens(template, tokenizer, **conversation) == ids


def test_default_model(default_model_path: Path) -> None:
    check_model(default_model_path)


def test_qwen_model(qwen_model_path: Path) -> None:
    check_model(qwen_model_path)
