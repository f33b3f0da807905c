"""Who holds which KV page. Numbers only: the pages themselves live in native/cache."""

from __future__ import annotations

from collections.abc import Iterable

from tokenmill.scheduling.batch_plan import PAGE_TOKENS


def pages_for(token_count: int) -> int:
    """Pages that hold the keys and values of `token_count` tokens."""
    return -(-token_count // PAGE_TOKENS)


class PageLedger:
    """Hands out page numbers 0 … page_count-1, each to one holder at a time.

    The page freed last is handed out first, so that memory that was never touched stays untouched.
    """

    def __init__(self, page_count: int) -> None:
        if page_count < 1:
            raise ValueError(f"page_count is {page_count}; at least one page is needed")
        self._free = list(range(page_count - 1, -1, -1))
        self._assigned = bytearray(page_count)

    @property
    def page_count(self) -> int:
        """All pages, free or not."""
        return len(self._assigned)

    @property
    def free_count(self) -> int:
        """Pages that `allocate` can still give."""
        return len(self._free)

    def allocate(self, count: int) -> tuple[int, ...]:
        """Gives `count` pages, whose contents are unspecified.

        Raises:
            ValueError: `count` is negative or more than are free; nothing is given then.
        """
        if not 0 <= count <= len(self._free):
            raise ValueError(f"{count} pages asked for, {len(self._free)} are free")
        pages = tuple(self._free.pop() for _ in range(count))
        for page in pages:
            self._assigned[page] = 1
        return pages

    def release(self, pages: Iterable[int]) -> None:
        """Takes pages back.

        Raises:
            ValueError: a page is not held by anyone. That is a bug in the caller: two sequences would share it.
        """
        for page in pages:
            if not self._assigned[page]:
                raise ValueError(f"page {page} is released but nobody holds it")
            self._assigned[page] = 0
            self._free.append(page)
