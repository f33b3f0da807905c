"""Stop strings against the definition, for any chunks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tokenmill.text.stop_strings import StopStrings


def by_definition(text: str, stop_strings: list[str]) -> tuple[str, bool]:
    """The text to show, and whether it was stopped: the earliest end, then the longest stop string."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stop_strings if stop and text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


@given(
    st.lists(st.text(alphabet="ab", max_size=5), max_size=12),
    st.lists(st.text(alphabet="ab", max_size=4), max_size=4),
)
def test_any_chunks_show_what_the_definition_says(chunks: list[str], stop_strings: list[str]) -> None:
    matcher = StopStrings(stop_strings)
    shown = ""
    for number, chunk in enumerate(chunks):
        shown += matcher.push(chunk)
        so_far, stopped = by_definition("".join(chunks[: number + 1]), stop_strings)
        assert matcher.stopped == stopped
        assert so_far.startswith(shown)
        if stopped:
            assert shown == so_far
        else:
            held = so_far[len(shown) :]
            assert not held or any(stop.startswith(held) for stop in stop_strings), "held back without need"
            assert not any(so_far.endswith(stop[:n]) for stop in stop_strings for n in range(len(held) + 1, len(stop)))
    shown += matcher.finish()
    assert shown == by_definition("".join(chunks), stop_strings)[0]


def test_text_after_the_stop_string_is_dropped() -> None:
    matcher = StopStrings(["\n\n", "END"])
    assert matcher.push("one\n") == "one"
    assert matcher.push("two E") == "\ntwo "
    assert matcher.push("ND three") == ""
    assert matcher.stopped
    assert matcher.push("four") == ""
    assert matcher.finish() == ""


def test_without_stop_strings_nothing_is_held() -> None:
    matcher = StopStrings(["", ""])
    assert matcher.push("abc") == "abc"
    assert matcher.finish() == ""
