"""Small files of procfs, sysfs and cgroupfs. A file that is missing or unreadable is None, never an error."""

from __future__ import annotations

from pathlib import Path


def read_text(path: Path) -> str | None:
    """The file's text without surrounding white space, or None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return None


def read_int(path: Path) -> int | None:
    """The file's single integer, or None where it is missing or holds something else (such as "max")."""
    text = read_text(path)
    return parse_int(text)


def parse_int(text: str | None) -> int | None:
    """An integer in decimal, or None."""
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def parse_cpu_list(text: str | None) -> tuple[int, ...] | None:
    """A kernel list such as "0-3,8,10-11" as ascending CPU (or node) numbers; None for a missing or malformed list."""
    if text is None:
        return None
    numbers: set[int] = set()
    for part in text.replace("\n", ",").split(","):
        if not part.strip():
            continue
        first, _, last = part.strip().partition("-")
        start, end = parse_int(first), parse_int(last or first)
        if start is None or end is None or start > end:
            return None
        numbers.update(range(start, end + 1))
    return tuple(sorted(numbers))


def shown_path(path: Path, root: Path) -> str:
    """The path as the host itself would name it: without the root that a test put in front."""
    try:
        return "/" + str(path.relative_to(root))
    except ValueError:
        return str(path)


def below(root: Path, absolute: str) -> Path:
    """An absolute path of the host, placed below `root`."""
    return root / absolute.lstrip("/")
