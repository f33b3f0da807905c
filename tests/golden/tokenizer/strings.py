"""The strings whose token ids are compared with the reference tokenizer's; made once, then read from strings.json.gz.

A case is a text and two flags: add_special (BOS, EOS) and parse_special (control tokens' texts are those tokens).
"""

# ruff: noqa: E501

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

SEED = 20251130
RANDOM_CASES_PER_KIND = 150


class Case(NamedTuple):
    text: str
    add_special: bool
    parse_special: bool


HAND_PICKED = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\0", "a\0b", "\ufeff", "\ufeffabc", "->", "=>", "(x):\n", "():\n\n\t",
    "def f(x):\n    return x\n", "if (a->b[0] != NULL) {\n\treturn -1;\r\n}\r\n", "<html>\n  <body class='x'>&nbsp;</body>\n</html>",
    "I'm you're he's we'll they'd I've can't DON'T I'M WE'LL It'S", "'s 't 're 've 'm 'll 'd 'S 'T 'RE", "''s '' ' 's", "ſ 'ſ K",
    "1", "12", "123", "1234", "12345", "1234567890", "3.14159", "1,000,000", "0x1F", "1e-10", "١٢٣", "一二三四", "½¼¾²³", "ⅷ 12ⅷ3",
    "e\u0301", "\u00e9", "a\u0300\u0301\u0302b", "\u0301", " \u0301a", "ñ n\u0303", "क्षि", "บบบก็ก์", "עִבְרִית", "اَلْعَرَبِيَّةُ", "สวัสดีครับ",
    "中文", "你好，世界！", "日本語のテキスト", "カタカナ ひらがな", "한국어 텍스트", "ㄅㄆㄇ", "𠮷野家", "〇々〆", "。、！？「」『』", "Ｆｕｌｌｗｉｄｔｈ　ｔｅｘｔ１２３",
    "😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "☺️", "🦙.cpp", "🧑🏿‍🚀🧑🏻‍🚀", "text😀text", " 😀 ", "❤️‍🔥",
    "שלום עולם", "مرحبا بالعالم", "\u202eabc\u202c", "\u200f\u200e", "a\u200bb", "a\u200db", "a\u00a0b", "a\u3000b", "a\u2003b", "\u00a0\u00a0x", "\u2028\u2029",
    "\x1b[31mred\x1b[0m", "\x01\x02\x03", "\x7f", "\x85", "\x1c\x1d\x1e\x1f", "a\x0bb\x0cc", " \x0b ", "\u0085a", "\ufffd", "\ufffe\uffff", "\U0010ffff", "\ue000", "\U000f0000",
    "Ünïcödé", "ÀÉÎÕÜ", "straße STRASSE ẞ", "İstanbul ıi", "ΑΒΓ αβγ ς", "Привет, мир!", "ДРУЗЬЯ друзья", "ǅ ǈ", "ﬁ ﬂ ﬀ", "Ω Ω", "Å Å Å", "ꜰ ᴀ",
    "$100 €50 £20 ¥5", "a+b=c", "x^2 ~ y", "a|b||c", "`code` ```block```", "~~~", "^^^", "<<<>>>", "===", "---", "...", "…", "!?!?", "#!/bin/sh", "@user #tag", "%d %s", "\\n\\t", "\\\\", "\"'\"'",
    "camelCase PascalCase snake_case SCREAMING_CASE kebab-case", "iPhone McDonald's eBay", "HTTPServer2Go", "aB Ab AB ab", "ÉCOLE École école", "XMLHttpRequest",
    "https://example.org/a/b?c=d&e=f#g", "user@example.org", "C:\\Users\\x", "/usr/local/bin", "2024-01-31T12:34:56Z", "192.168.0.1", "SELECT * FROM t WHERE a='b';", "{\"a\": [1, 2.5, null]}",
    "▁", "▁▁", " ▁a", "a▁b", "Ġ", "ĠHello", "Ċ", "<0x0A>", "<0xFF>", "[EMPTY_0]", "<unk>", "<s>", "</s>", "<s></s>", "a<s>b", "<pad>",
]  # fmt: skip

SPECIAL_TEXTS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "</s>", "<unk>", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>", "<file_sep>", "<reponame>", "<repo_name>", "<jupyter_start>", "<|user|>", "<|assistant|>", "<|end|>",
    "<|system|>", "<fim_prefix>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<|START_OF_TURN_TOKEN|>", ">>QUESTION<<", "<BOS_TOKEN>", "<|vision_start|>", "<empty_output>", "<issue_start>",
]  # fmt: skip

WORDS = (  # noqa: SIM905
    "the of and to in is that it was for on are with as his they be at one have this from or had by hot but some what "
    "there we can out other were all your when up use word how said an each she which do their time if will way about "
    "many then them would write like so these her long make thing see him two has look more day could go come did my "
    "sound no most number who over know water than call first people may down side been now find quantization tokenizer "
    "throughput latency Kubernetes Größenordnung développement naïve 数据 模型 サーバー 서버 сервер διακομιστής خادم शब्द"
).split()
CODE = [
    "for (int i = 0; i < n; ++i) {", "    x += a[i] * b[i];", "}", "\treturn x;", "def main() -> None:", "    print(f'{x:>10}')", "import numpy as np", "# comment", "/* c */", "// TODO: fix",
    "let x = |y| y + 1;", "SELECT a, b FROM t;", "#include <stdio.h>", "printf(\"%d\\n\", x);", "  - name: build", "<div id=\"a\">", "</div>", "\\begin{equation}", "$x^2$", "lambda x: x**2", "!= == <= >= && || ->",
]  # fmt: skip


def _any_character(source: random.Random) -> str:
    low, high = source.choice(
        [(0x20, 0x7E), (0x20, 0x7E), (0, 0x2FF), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0xDFF), (0xE00, 0x11FF),
         (0x1E00, 0x2BFF), (0x3000, 0x33FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x323AF), (0xE0000, 0x10FFFF)]
    )  # fmt: skip
    return chr(source.randint(low, high))


def _prose(source: random.Random) -> str:
    words = [source.choice(WORDS) for _ in range(source.randint(2, 25))]
    return "".join(
        word + source.choice([" ", " ", " ", " ", ", ", ". ", "\n", "  ", "'s ", "-", "! "]) for word in words
    )


def _code(source: random.Random) -> str:
    lines = [" " * source.choice([0, 0, 2, 4, 8, 12]) + source.choice(CODE) for _ in range(source.randint(1, 8))]
    return source.choice(["\n", "\r\n", "\n\n", "\n\t"]).join(lines)


def _spaces(source: random.Random) -> str:
    pieces = [source.choice([" ", "  ", "\n", "\t", "\r\n", "\r", "\u00a0", "\u3000", "a", "Z", "1", ".", "é", "中", " " * 17, "\n" * 5]) for _ in range(source.randint(1, 14))]  # fmt: skip
    return "".join(pieces)


def _unicode(source: random.Random) -> str:
    return "".join(_any_character(source) for _ in range(source.randint(1, 24)))


def _ascii(source: random.Random) -> str:
    return "".join(chr(source.randint(0, 0x7F)) for _ in range(source.randint(1, 40)))


def _punctuated(source: random.Random) -> str:
    alphabet = " '\"!?.,:;-_()[]{}<>/\\|@#$%^&*+=~`\n" + "asStTrReEvVmMlLdD" + "0123456789"
    return "".join(source.choice(alphabet) for _ in range(source.randint(1, 40)))


def _numbers(source: random.Random) -> str:
    digits = ["0123456789", "٠١٢٣٤٥٦٧٨٩", "０１２３４５６７８９", "½ⅷ²③"]
    alphabet = source.choice(digits) + source.choice(["", " ", ".,", "-", "a"])
    return "".join(source.choice(alphabet) for _ in range(source.randint(1, 20)))


def _cased(source: random.Random) -> str:
    alphabet = source.choice(["aB", "aBéÉ", "xXяЯ", "aAǅʰª中", "aB'", "aB's "])
    return "".join(source.choice(alphabet) for _ in range(source.randint(1, 20)))


def _marks(source: random.Random) -> str:
    alphabet = "aé \u0301\u0308\u20e3ก็ัक्षिבִּ1.\u200d️"
    return "".join(source.choice(alphabet) for _ in range(source.randint(1, 16)))


def _emoji(source: random.Random) -> str:
    alphabet = ["😀", "👍", "🏽", "\u200d", "\ufe0f", "👩", "👧", "🇩", "🇪", "❤", " ", "a", "#", "\u20e3"]
    return "".join(source.choice(alphabet) for _ in range(source.randint(1, 14)))


def _long_word(source: random.Random) -> str:
    unit = source.choice(["a", "A", "é", "中", "ab", "The", "=", "- ", "\n ", " ", "1", "xyz", "Ж", "\t", "👍"])
    return unit * source.randint(40, 400) + source.choice(["", "b", " ", "\n", "."])


def _special(source: random.Random) -> str:
    parts = [source.choice(SPECIAL_TEXTS) if source.random() < 0.5 else _spaces(source) for _ in range(source.randint(1, 7))]  # fmt: skip
    text = "".join(parts)
    return text[source.randint(0, 3) :] if source.random() < 0.2 else text


def _mixed(source: random.Random) -> str:
    return "".join(source.choice(list(KINDS.values())[:-1])(source)[:20] for _ in range(source.randint(2, 5)))


KINDS: dict[str, Callable[[random.Random], str]] = {
    "prose": _prose, "code": _code, "spaces": _spaces, "unicode": _unicode, "ascii": _ascii, "punctuated": _punctuated, "numbers": _numbers,
    "cased": _cased, "marks": _marks, "emoji": _emoji, "long word": _long_word, "special": _special, "mixed": _mixed,
}  # fmt: skip


def make_cases() -> list[Case]:
    """All cases, the same in every run with one version of Python."""
    source = random.Random(SEED)
    texts = list(HAND_PICKED)
    texts.extend(a + b for a in SPECIAL_TEXTS for b in ("", "x", " x", "\n"))
    texts.extend("x" + a for a in SPECIAL_TEXTS)
    texts.extend("y " + a for a in SPECIAL_TEXTS)
    for make in KINDS.values():
        texts.extend(make(source) for _ in range(RANDOM_CASES_PER_KIND + 60 * (make in (_unicode, _special, _mixed))))
    cases = []
    for number, text in enumerate(dict.fromkeys(texts)):
        looks_special = any(special in text for special in SPECIAL_TEXTS)
        cases.append(Case(text, number % 3 == 0, looks_special or number % 2 == 0))
        if looks_special:
            cases.append(Case(text, number % 3 == 1, parse_special=False))
    return cases
