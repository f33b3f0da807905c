"""Who holds which KV page. Numbers only: the pages themselves live in native/cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable

from tokenmill.scheduling.batch_plan import PAGE_TOKENS


def pages_for(token_count: int) -> int:
    """Pages that hold the keys and values of `token_count` tokens."""
    return -(-token_count // PAGE_TOKENS)


class PageLedger:
    """Counts the holders of pages 0 … page_count-1.

    A page is free, held by one or more sequences, or idle: held by nobody but kept for its contents. The page freed
    last is handed out first, so that memory that was never touched stays untouched.
    """

    def __init__(self, page_count: int) -> None:
        if page_count < 1:
            raise ValueError(f"page_count is {page_count}; at least one page is needed")
        self._free = list(range(page_count - 1, -1, -1))
        self._holders = [0] * page_count
        self._idle: OrderedDict[int, None] = OrderedDict()  # the one that has been idle longest comes first

    @property
    def page_count(self) -> int:
        """All pages, free or not."""
        return len(self._holders)

    @property
    def free_count(self) -> int:
        """Pages that `allocate` can still give."""
        return len(self._free)

    @property
    def idle_count(self) -> int:
        """Pages that nobody holds and that are kept for their contents."""
        return len(self._idle)

    def holders(self, page: int) -> int:
        """How many hold the page."""
        return self._holders[page]

    def allocate(self, count: int) -> list[int]:
        """Gives `count` free pages, whose contents are unspecified, to one holder.

        Raises:
            ValueError: `count` is negative or more than are free; nothing is given then.
        """
        if not 0 <= count <= len(self._free):
            raise ValueError(f"{count} pages asked for, {len(self._free)} are free")
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._holders[page] = 1
        return pages

    def share(self, page: int) -> None:
        """Adds a holder to a page that is held or idle.

        Raises:
            ValueError: the page is free, so its contents are nobody's.
        """
        if self._holders[page] == 0:
            if page not in self._idle:
                raise ValueError(f"page {page} is free and cannot be shared")
            del self._idle[page]
        self._holders[page] += 1

    def release(self, pages: Iterable[int], kept: Container[int] = ()) -> None:
        """Takes one holder off each page, in the given order; a last holder's page becomes idle if `kept`, else free.

        Raises:
            ValueError: a page is not held by anyone. That is a bug in the caller: two sequences would share it.
        """
        for page in pages:
            if self._holders[page] == 0:
                raise ValueError(f"page {page} is released but nobody holds it")
            self._holders[page] -= 1
            if self._holders[page] == 0:
                if page in kept:
                    self._idle[page] = None
                else:
                    self._free.append(page)

    def reclaim(self) -> int:
        """Frees the page that has been idle longest, and names it.

        Raises:
            KeyError: no page is idle.
        """
        page, _ = self._idle.popitem(last=False)
        self._free.append(page)
        return page
