"""Chat templates: what they may use, how they fail, and that a hostile one hurts nobody."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import pytest
import text_vocabularies as vocabularies

from tokenmill.text.chat_template import ChatTemplate, TemplateLimits
from tokenmill.vocabulary.errors import RequestError, TemplateError

USER = [{"role": "user", "content": "hi"}]
SMALL = TemplateLimits(cpu_seconds=0.3, output_characters=10_000, memory_bytes=64 << 20)


def render(source: str, limits: TemplateLimits | None = None) -> str:
    template = ChatTemplate(source, bos_token="<s>", limits=limits)
    try:
        return template.render(USER)
    finally:
        template.close()


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>hi"),
        ("{% for m in messages %}\n    {{ m['role'] }}\n{% endfor %}\n", "    user\n"),
        ("{{ {'b': 'é<', 'a': [1]} | tojson }}", '{"b": "é<", "a": [1]}'),
        ("{{ {'b': 1} | tojson(indent=2) }}", '{\n  "b": 1\n}'),
        ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("a{% generation %}b{% endgeneration %}c", "abc"),
        ("{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "6"),
        ("{{ dict(a=1)['a'] }}{{ strftime_now('%Y')|length }}{{ tools is none }}{{ nothing }}", "14True"),
        ("{{ '{0.__class__}'.format(1) }}", ""),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
    ],
)
def test_what_templates_rely_on(source: str, text: str) -> None:
    assert render(source) == text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a\nb\n{{ x.y.z }}", "line 3: 'x' is undefined"),
        ("a\n{% if %}", "line 2: "),
        ("\n\n{{ 1 / 0 }}", "line 3: division by zero"),
        ("{{ nonsense(1) }}", "line 1: 'nonsense' is undefined"),
        ("{% include 'other' %}", "line 1: no loader"),
    ],
)
def test_errors_name_the_line(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        render(source)


def test_what_the_template_refuses_is_the_requests_fault() -> None:
    with pytest.raises(RequestError, match="roles must alternate") as caught:
        render("{{ raise_exception('roles must alternate') }}")
    assert caught.value.parameter == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ namespace(__init__=1) }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ dict.mro() }}",
        "{{ (''|attr('__class__')).mro() }}",
        "{{ lipsum(n=1) }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**10 }}",
        "{{ 'a'.ljust(10**10) }}",
        "{{ '%10000000000d' % 1 }}",
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(9999) %}{{ 'aaaaaaaa' * 9999 }}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{{ (10 ** 9999999) % 7 }}",
        "{{ ('a' * 9999999)|batch(1)|list|length }}",
        "{{ range(99999)|list|tojson(indent=999999) }}",
        "{% for a in range(99999) %}{{ range(99999)|sum }}{% endfor %}",
        "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    ],
)
def test_a_greedy_template_is_stopped(source: str) -> None:
    started = time.monotonic()
    with pytest.raises(TemplateError):
        render(source, SMALL)
    assert time.monotonic() - started < SMALL.wall_seconds


def test_the_next_request_is_served_after_a_kill() -> None:
    source = "{% if messages|length > 1 %}{{ 10 ** (messages|length * 9999999) % 7 }}{% else %}fine{% endif %}"
    template = ChatTemplate(source, limits=SMALL)
    assert template.render(USER) == "fine"
    with pytest.raises(TemplateError, match="processor time"):
        template.render(USER * 2)
    assert template.render(USER) == "fine"
    template.close()
    assert template.render(USER) == "fine"
    template.close()


def test_threads_share_a_template() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    texts: dict[int, str] = {}

    def ask(number: int) -> None:
        texts[number] = template.render([{"role": "user", "content": str(number) * 1000}])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: str(number) * 1000 for number in range(16)}
    template.close()


def test_long_messages_pass_through_the_pipes() -> None:
    content = "é\n" * 500_000
    template = ChatTemplate("{{ messages[0].content }}")
    assert template.render([{"role": "user", "content": content}]) == content
    template.close()


def test_a_request_past_a_limit_while_it_is_sent() -> None:
    template = ChatTemplate("{{ messages[0].content }}", limits=TemplateLimits(memory_bytes=8 << 20))
    with pytest.raises(TemplateError):
        template.render([{"role": "user", "content": "x" * (64 << 20)}])
    assert template.render(USER) == "hi"
    template.close()


def test_the_process_ends_with_the_template() -> None:
    template = ChatTemplate("x")
    template.check()
    process = template._process._process
    assert process is not None
    assert Path(f"/proc/{process.pid}").exists()
    del template
    gc.collect()
    assert process.poll() is not None


def test_content_parts_are_joined() -> None:
    template = ChatTemplate("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert (
        template.render([{"role": "user", "content": parts}, {"role": "assistant", "content": None}]) == "[a\nb][None]"
    )
    assert template.render([{"role": "assistant"}]) == "[]"
    for bad in ([{"type": "image_url"}], ["a"], 3):
        with pytest.raises(RequestError) as caught:
            template.render([{"role": "user", "content": bad}])
        assert caught.value.parameter == "messages"
    with pytest.raises(RequestError, match="JSON"):
        template.render([{"role": "user", "content": "a", "extra": {1, 2}}])
    template.close()


def test_from_metadata() -> None:
    metadata = vocabularies.byte_level(bos_token_id=261)
    assert ChatTemplate.from_metadata(metadata) is None
    metadata["tokenizer.chat_template"] = "{{ bos_token }}plain"
    metadata["tokenizer.chat_template.tool_use"] = "{{ tools|length }} tools"
    template = ChatTemplate.from_metadata(metadata)
    assert template is not None
    assert template.render(USER) == "<|im_start|>plain"
    assert template.render(USER, tools=[{"type": "function"}]) == "1 tools"
    assert template.render(USER, variables={"bos_token": "cannot be replaced"}) == "<|im_start|>plain"
    template.close()
