"""Which full pages hold which tokens, so that equal beginnings of prompts are computed once.

A page is found by the page before it and its own sixteen tokens: a chain, compared token by token, so that no two
prefixes can be taken for each other as with hashes. Only full pages take part and full pages are never written, hence
sharing needs no copy; by the numerics contract a shared page has the very bits that its reader would have computed.

The cache has no memory of its own: it lives in the pages that no sequence needs, gives up the least recently used one
first, and of a chain its end first.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from tokenmill.scheduling.batch_plan import PAGE_TOKENS
from tokenmill.scheduling.page_ledger import PageLedger, pages_for
from tokenmill.scheduling.sequence import ScheduledSequence

_Key = tuple[int | str, bytes]  # the page before, or the scope of a first page; the tokens


def _block(tokens: Sequence[int], index: int) -> bytes:
    return array("i", tokens[index * PAGE_TOKENS : (index + 1) * PAGE_TOKENS]).tobytes()


class PrefixCache:
    """Gives sequences their pages, shared ones where it can.

    Args:
        ledger: whose pages; nobody else may change it.
        most_idle: most pages kept for their contents while no sequence holds them; 0 shares nothing.
    """

    def __init__(self, ledger: PageLedger, most_idle: int | None = None) -> None:
        self._ledger = ledger
        self._most_idle = ledger.page_count if most_idle is None else most_idle
        self._pages: dict[_Key, int] = {}
        self._keys: dict[int, _Key] = {}

    @property
    def shares(self) -> bool:
        """Whether anything is kept at all."""
        return self._most_idle > 0

    @property
    def available(self) -> int:
        """Pages that `extend` can give: free ones, and idle ones whose contents would be forgotten."""
        return self._ledger.free_count + self._ledger.idle_count

    @property
    def idle(self) -> int:
        """Pages kept for their contents alone."""
        return self._ledger.idle_count

    def found_tokens(self, sequence: ScheduledSequence) -> int:
        """How many more of its tokens `attach` would find now. Changes nothing."""
        pages = self._find(sequence) if self._may_attach(sequence) else []
        return len(pages) * PAGE_TOKENS

    def attach(self, sequence: ScheduledSequence) -> int:
        """Gives the sequence the cached pages of its next tokens, and counts these as computed.

        The last token is never found: it has to be computed for the logits after it.

        Returns:
            The number of tokens found.
        """
        pages = self._find(sequence) if self._may_attach(sequence) else []
        for page in pages:
            self._ledger.share(page)
        sequence.pages.extend(pages)
        found = len(pages) * PAGE_TOKENS
        sequence.computed += found
        sequence.registered = len(sequence.pages) if pages else sequence.registered
        return found

    def missing(self, sequence: ScheduledSequence, count: int) -> int:
        """Pages that the sequence lacks for its next `count` tokens."""
        return max(0, pages_for(sequence.computed + count) - len(sequence.pages))

    def extend(self, sequence: ScheduledSequence, count: int) -> list[int]:
        """Gives the pages for the next `count` tokens, forgetting cached ones as needed; returns the new ones.

        Raises:
            ValueError: fewer are available.
        """
        missing = self.missing(sequence, count)
        if missing == 0:
            return []
        if missing > self.available:
            raise ValueError(f"{missing} pages are needed, {self.available} are available")
        while missing > self._ledger.free_count:
            self._forget()
        fresh = self._ledger.allocate(missing)
        sequence.pages.extend(fresh)
        return fresh

    def register(self, sequence: ScheduledSequence) -> None:
        """Lets others find the pages that the sequence has filled.

        Where another one was first with the same tokens, the sequence takes that page and gives its own back.
        """
        if not self.shares:
            return
        for index in range(sequence.registered, sequence.computed // PAGE_TOKENS):
            own = sequence.pages[index]
            key = (self._parent(sequence, index), _block(sequence.tokens, index))
            first = self._pages.setdefault(key, own)
            if first == own:
                self._keys[own] = key
            else:
                self._ledger.share(first)
                self._ledger.release((own,))
                sequence.pages[index] = first
            sequence.registered = index + 1

    def free(self, sequence: ScheduledSequence) -> None:
        """Takes all its pages back; those that others can find stay idle."""
        # From the end: so a page is never idle for longer than those that follow it in a chain.
        self._ledger.release(reversed(sequence.pages), self._keys)
        sequence.pages.clear()
        sequence.computed = sequence.registered = 0
        while self._ledger.idle_count > self._most_idle:
            self._forget()

    def _may_attach(self, sequence: ScheduledSequence) -> bool:
        """Only where its pages are full to the last one and all known."""
        return sequence.computed == len(sequence.pages) * PAGE_TOKENS and sequence.registered == len(sequence.pages)

    def _find(self, sequence: ScheduledSequence) -> list[int]:
        found: list[int] = []
        if not self._pages:
            return found
        index = len(sequence.pages)
        parent = self._parent(sequence, index)
        for block in range(index, (len(sequence.tokens) - 1) // PAGE_TOKENS):
            page = self._pages.get((parent, _block(sequence.tokens, block)))
            if page is None:
                break
            found.append(page)
            parent = page
        return found

    def _parent(self, sequence: ScheduledSequence, index: int) -> int | str:
        return sequence.pages[index - 1] if index else sequence.request.cache_scope

    def _forget(self) -> None:
        del self._pages[self._keys.pop(self._ledger.reclaim())]
