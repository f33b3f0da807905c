"""Chat messages to token ids, such that no message can forge a control token.

A template writes control tokens as text (`<|im_start|>`), so its output has to be read with them in mind, yet the
same text inside a message must stay text. Before rendering, the first character of every control token's text that
occurs in a message, or could come about at a message's end together with what follows, is replaced by a stand-in, a
private-use character that occurs nowhere else. The stand-in keeps the text from being read as the token; after the
rendered text has been cut at the real control tokens it is put back, and the fragment is encoded as a whole, so that
tokens form across the border between message and template exactly as they do for any other text. Messages without
such text are not touched at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from tokenmill.text.chat_template import ChatTemplate, Message, with_plain_content
from tokenmill.text.tokenizer import Tokenizer, without_surrogates
from tokenmill.vocabulary.errors import RequestError, TemplateError

# Templates build tokens out of roles ('<|' + role + '|>'), so a role is not text that may say anything.
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function", "ipython"})
_PRIVATE_USE = range(0xF0000, 0xFFFFE)


def render_to_tokens(
    template: ChatTemplate | None,
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
) -> list[int]:
    """Token ids of a conversation, with exactly one BOS where the model wants one.

    Args:
        template: the model's template; None is an error that says what to do.
        tokenizer: the model's tokenizer.
        messages: see `ChatTemplate.render`.
        add_generation_prompt: end with the start of the assistant's answer.
        tools: tool definitions as JSON values, or None.
        variables: further variables for the template.

    Raises:
        TemplateError: there is no template, or it is broken or past a limit.
        RequestError: a role is unknown, a content part is not text, or the template refuses the messages.
    """
    if template is None:
        raise TemplateError(
            "the model file holds no chat template",
            where="tokenizer.chat_template",
            hint="give one with --chat-template FILE, or send a plain prompt",
        )
    for message in messages:
        if message.get("role") not in _ROLES:
            raise RequestError(
                f"unknown role {message.get('role')!r}; known: {', '.join(sorted(_ROLES))}", parameter="messages"
            )
    plain = [with_plain_content(message) for message in messages]
    guard = _Guard(tokenizer.control_texts, [plain, tools, variables], template.source)
    rendered = template.render(
        [{**guard.protect(message), "role": message["role"]} for message in plain],
        add_generation_prompt=add_generation_prompt,
        tools=guard.protect(tools),
        variables=guard.protect(variables),
    )
    ids: list[int] = []
    after_special = True
    for fragment in tokenizer.partition(rendered, parse_special=True):
        if isinstance(fragment, str):
            ids.extend(tokenizer.encode_fragment(guard.restore(fragment), after_special=after_special))
            after_special = False
        else:
            ids.append(fragment)
            after_special = True
    if tokenizer.add_bos and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
        ids.insert(0, tokenizer.bos_id)
    return ids


class _Guard:
    """Replaces and restores the first characters of control texts in the strings of one request."""

    def __init__(self, control_texts: tuple[str, ...], values: object, template_source: str) -> None:
        self._control_texts = control_texts
        self._beginnings = _beginnings(control_texts)
        self._longest = max(map(len, control_texts), default=1) - 1
        used = set(template_source)
        for string in _strings(values):
            used.update(string)
        first_characters = dict.fromkeys(text[0] for text in self._control_texts)
        free = (chr(code) for code in _PRIVATE_USE if chr(code) not in used)
        try:
            self._stand_in = {character: next(free) for character in first_characters}
        except StopIteration:
            raise RequestError("the messages use every private-use character", parameter="messages") from None
        self._originals = {ord(stand_in): character for character, stand_in in self._stand_in.items()}

    def protect(self, value: Any) -> Any:
        """The JSON value with all its strings protected."""
        if isinstance(value, str):
            return self._protect_text(value)
        if isinstance(value, Mapping):
            return {self.protect(key): self.protect(member) for key, member in value.items()}
        if isinstance(value, Sequence):
            return [self.protect(member) for member in value]
        return value

    def _protect_text(self, text: str) -> str:
        text = without_surrogates(text)  # two of them could meet and be a stand-in
        positions: set[int] = set()
        for control in self._control_texts:
            at = text.find(control)
            while at >= 0:
                positions.add(at)
                at = text.find(control, at + 1)
        # What begins at the end may be completed by the next message; templates may trim the end first.
        for end in {len(text), len(text.rstrip())}:
            tail = text[max(0, end - self._longest) : end]
            positions.update(end - len(tail) + at for at in range(len(tail)) if tail[at:] in self._beginnings)
        if not positions:
            return text
        characters = list(text)
        for at in positions:
            characters[at] = self._stand_in[characters[at]]
        return "".join(characters)

    def restore(self, text: str) -> str:
        """The text as the messages had it."""
        return text.translate(self._originals)


@lru_cache(maxsize=8)
def _beginnings(control_texts: tuple[str, ...]) -> frozenset[str]:
    """Every proper prefix of every text.

    Texts that begin with a letter or digit are left out: many a string that a template compares ends with one.
    """
    return frozenset(
        text[:length] for text in control_texts if not text[:1].isalnum() for length in range(1, len(text))
    )


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [string for item in value.items() for string in _strings(item)]
    if isinstance(value, Sequence):
        return [string for member in value for string in _strings(member)]
    return []
