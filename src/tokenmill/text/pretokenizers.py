"""Splits text into the words that byte-pair merges may not cross, for each `tokenizer.ggml.pre` kind.

A kind is a list of regular expressions as published with the models. They are applied one after the other: each splits
every piece into its matches and the gaps between them. The expressions speak of Unicode categories, which Python's `re`
does not know, so they run over a *class text* of the same length: ASCII stays, any other character becomes the
representative of its class (see `unicode_classes`). Expressions without categories run over the text itself with only
its non-ASCII white space replaced, because they name characters outside ASCII one by one.

All expressions take time linear in the text: no two neighbouring quantifiers can share a character, and the one search
that is not anchored by its first character (trailing white space) may start only where a run of it starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from tokenmill.text.unicode_classes import WHITE_SPACE, unicode_class
from tokenmill.vocabulary.errors import UnsupportedModelError

_REPRESENTATIVES = {"N": "\x81", "L": "\x82", "P": "\x83", "M": "\x84", "S": "\x86"}
_OTHER = "\x80"
_SPACE_REPRESENTATIVE = "\v"
_CATEGORY_MEMBERS = {
    r"\p{N}": "0-9\x81",
    r"\p{L}": "A-Za-z\x82",
    r"\p{P}": "!-#%-*,\\-./:;?@\\[\\\\\\]_{}\x83",
    r"\p{M}": "\x84",
    r"\p{S}": "$+<=>\\^`|~\x86",
    r"\s": " \\t-\\r",
}


class _ClassTable(dict[int, str]):
    """Code point to class representative, filled as code points are met."""

    def __missing__(self, code_point: int) -> str:
        character = chr(code_point)
        if code_point < 0x80:
            mapped = character
        elif character in WHITE_SPACE:
            mapped = _SPACE_REPRESENTATIVE
        else:
            mapped = _REPRESENTATIVES.get(unicode_class(code_point), _OTHER)
        self[code_point] = mapped
        return mapped


_CLASS_TABLE = _ClassTable()
_SPACE_TABLE = {ord(character): _SPACE_REPRESENTATIVE for character in WHITE_SPACE if ord(character) >= 0x80}

_CONTRACTION = "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
_ASCII_PUNCTUATION = r"[!-/:-@\[-`{|}~]"
_GPT2 = r"'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TAIL_WITH_SLASH = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}{_TAIL}"
_QWEN2 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{_TAIL}"
# Letters that are not ASCII lower case, and letters that are not ASCII upper case: the case of others is not told.
_UPPER, _LOWER = "[A-Z\x82]", "[a-z\x82]"
_CASED, _CASED_WITH_CONTRACTION = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{suffix}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{suffix}"
    for suffix in ("", f"(?:{_CONTRACTION})?")
)
_DEEPSEEK3 = (
    rf"{_ASCII_PUNCTUATION}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CJK = "[一-龥ࠀ-一가-퟿]+"
_DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-"
    "\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-"
    "ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    r"""A kind of splitting and what comes with it.

    Attributes:
        patterns: expressions with `\p{..}` and `\s` in the sense of this module, applied in order.
        ignore_merges: a word that is a token as a whole is taken without looking at the merges.
        add_bos: the models of this kind want a BOS where their file does not say.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False

    def compile(self) -> Splitter:
        """Compile the expressions."""
        return Splitter(self.patterns)


class Splitter:
    """Compiled expressions of one kind; holds no state between calls, so threads may share it."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._stages = [(re.compile(_expand(pattern)), _speaks_of_categories(pattern)) for pattern in patterns]
        self._needs_classes = any(categories for _, categories in self._stages)
        self._needs_spaces = any(not categories for _, categories in self._stages)

    def split(self, text: str) -> list[str]:
        """The words of `text` in order; joined they give `text` again.

        Args:
            text: any text without lone surrogates.
        """
        classes = text.translate(_CLASS_TABLE) if self._needs_classes else text
        spaces = text.translate(_SPACE_TABLE) if self._needs_spaces and not text.isascii() else text
        cuts = [0, len(text)] if text else [0]
        for expression, categories in self._stages:
            subject = classes if categories else spaces
            finer = [0]
            for start, end in pairwise(cuts):
                if end - start == 1:
                    finer.append(end)
                    continue
                at = start
                piece = subject if len(cuts) == 2 else subject[start:end]
                for match in expression.finditer(piece):
                    first, last = match.span()
                    if start + first > at:
                        finer.append(start + first)
                    at = start + last
                    finer.append(at)
                if at < end:
                    finer.append(end)
            cuts = finer
        return [text[start:end] for start, end in pairwise(cuts)]


def _speaks_of_categories(pattern: str) -> bool:
    return "\\p{" in pattern or "\x82" in pattern


def _expand(pattern: str) -> str:
    """Replace categories and white space by their members, inside a bracket or as a bracket of their own."""
    expanded: list[str] = []
    inside = False
    for part in re.findall(r"\\p\{\w\}|\\.|.", pattern, flags=re.DOTALL):
        if part in _CATEGORY_MEMBERS:
            expanded.append(_CATEGORY_MEMBERS[part] if inside else f"[{_CATEGORY_MEMBERS[part]}]")
        elif part == r"\S":
            expanded.append(f"[^{_CATEGORY_MEMBERS[chr(92) + 's']}]")
        else:
            inside = part == "[" or (inside and part != "]")
            expanded.append(part)
    return "".join(expanded)


_KINDS: tuple[tuple[tuple[str, ...], PreTokenizer], ...] = (
    (
        ("default", ""),
        PreTokenizer((r"[\p{P}$+<=>\^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    ),
    (
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True),
    ),
    (("glm4", "glm5"), PreTokenizer((_LLAMA3,), ignore_merges=True)),
    (("dbrx", "smaug-bpe", "chatglm-bpe"), PreTokenizer((_LLAMA3,))),
    (("minicpm5",), PreTokenizer((r"\p{N}{1,3}", rf"{_CONTRACTION}|{_WORD}|\p{{N}}+{_TAIL}"), ignore_merges=True)),
    (
        ("qwen2", "deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"),
        PreTokenizer((_QWEN2,)),
    ),
    (
        ("qwen35",),
        PreTokenizer(
            (
                rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
                r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            )
        ),
    ),
    (
        (
            "gpt-2",
            "phi-2",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ),
        PreTokenizer((_GPT2,)),
    ),
    (
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"),
        PreTokenizer((r"\p{N}", _GPT2)),
    ),
    (("falcon",), PreTokenizer((r"[\p{P}$+<=>\^~|`]+", _GPT2, "[0-9][0-9][0-9]"))),
    (
        ("deepseek-llm",),
        PreTokenizer(
            (
                "[\r\n]",
                rf"\s?[{_DEEPSEEK_LETTERS}]+",
                "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
                r"(?<!\s)\s+\Z",
                _CJK,
                r"\p{N}+",
            )
        ),
    ),
    (("deepseek-coder",), PreTokenizer(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}"))),
    (
        ("deepseek-v3", "hunyuan-dense", "joyai-llm"),
        PreTokenizer((r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", _DEEPSEEK3)),
    ),
    (
        ("tekken",),
        PreTokenizer((_CASED + r"|\p{N}" + _TAIL_WITH_SLASH,), ignore_merges=True, add_bos=True),
    ),
    (
        ("gpt-4o", "llama4", "kanana2", "minimax-m2"),
        PreTokenizer((_CASED_WITH_CONTRACTION + r"|\p{N}{1,3}" + _TAIL_WITH_SLASH,)),
    ),
    (("poro-chat", "bloom", "gpt3-finnish"), PreTokenizer((_BLOOM,))),
    (("viking",), PreTokenizer((_BLOOM, r"\p{N}"))),
    (
        ("seed-coder",),
        PreTokenizer(
            (rf"{_CONTRACTION}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",),
        ),
    ),
    (
        ("bailingmoe", "bailingmoe2", "llada-moe"),
        PreTokenizer((rf"{_CONTRACTION}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",)),
    ),
)
PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: kind for names, kind in _KINDS for name in names}


def find_pre_tokenizer(name: str) -> PreTokenizer:
    """The kind that `tokenizer.ggml.pre` names; an empty name is the default kind.

    Raises:
        UnsupportedModelError: the kind is not known.
    """
    try:
        return PRE_TOKENIZERS[name]
    except KeyError:
        raise UnsupportedModelError(
            f"pre-tokenizer {name!r} is not supported",
            where="tokenizer.ggml.pre",
            hint=f"supported: {', '.join(sorted(filter(None, PRE_TOKENIZERS)))}",
        ) from None
