"""Ends a text stream at the first stop string, without ever showing a part of one.

The definition, whatever the chunks: the stream ends at the earliest position at which some stop string is complete; of
the stop strings that end there the longest counts; the text before it is shown, the stop string is not.
"""

from __future__ import annotations

from collections.abc import Iterable


def _failure_links(pattern: str) -> list[int]:
    """Knuth, Morris, Pratt: length of the longest proper border of each prefix."""
    links = [0] * (len(pattern) + 1)
    border = 0
    for at in range(1, len(pattern)):
        while border and pattern[at] != pattern[border]:
            border = links[border]
        border += pattern[at] == pattern[border]
        links[at + 1] = border
    return links


class StopStrings:
    """Streaming matcher of any number of stop strings; time linear in the text for each.

    Args:
        stop_strings: empty ones are ignored.

    Attributes:
        stopped: a stop string was found; further text is dropped.
    """

    def __init__(self, stop_strings: Iterable[str]) -> None:
        self._patterns = [(pattern, _failure_links(pattern)) for pattern in dict.fromkeys(stop_strings) if pattern]
        self._matched = [0] * len(self._patterns)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Text that may be shown: all but what could still turn out to be the start of a stop string."""
        if self.stopped:
            return ""
        if not self._patterns:
            return text
        pending = self._held + text
        for at in range(len(self._held), len(pending)):
            found = self._advance(pending[at])
            if found:
                self.stopped = True
                self._held = ""
                return pending[: at + 1 - found]
        keep = len(pending) - max(self._matched)
        self._held = pending[keep:]
        return pending[:keep]

    def _advance(self, character: str) -> int:
        """Feed one character; the length of the longest stop string that ends with it, or 0."""
        longest = 0
        for number, (pattern, links) in enumerate(self._patterns):
            matched = self._matched[number]
            while matched and pattern[matched] != character:
                matched = links[matched]
            matched += pattern[matched] == character
            if matched == len(pattern):
                longest = max(longest, matched)
            self._matched[number] = matched
        return longest

    def finish(self) -> str:
        """The held-back text at the end of the stream: no stop string can complete any more."""
        held, self._held = self._held, ""
        return "" if self.stopped else held
