"""What the documents tell people to type must exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from tokenmill.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")


def commands_in(text: str, program: str) -> list[list[str]]:
    """Words after `program`, for each line of a code block and each inline code that starts with it."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    found = []
    for line in lines:
        try:
            words = shlex.split(line.removeprefix("$ "), comments=True)
        except ValueError:  # prose with an apostrophe, not a command
            continue
        while words and _ASSIGNMENT.fullmatch(words[0]):
            words.pop(0)
        if words and words[0] == program:
            found.append(words[1:])
    return found


def cases(program: str) -> list[tuple[str, str, list[str]]]:
    return [
        (document.name, " ".join(words), words)
        for document in DOCUMENTS
        for words in commands_in(document.read_text(encoding="utf-8"), program)
        if words
    ]


@pytest.mark.parametrize(("document", "line", "words"), cases("tokenmill"), ids=lambda value: str(value)[:60])
def test_commands_and_their_options_exist(document: str, line: str, words: list[str]) -> None:
    if words[0].startswith("-"):
        return
    names = words[0].replace("｜", "|").split("|")
    for name in names:
        command, rest = typer.main.get_command(app).get_command(None, name), words[1:]  # type: ignore[attr-defined,arg-type]
        assert command is not None, f"{document}: there is no command {name}"
        while rest and hasattr(command, "get_command") and not rest[0].startswith("-"):
            command, rest = command.get_command(None, rest[0]), rest[1:]
            assert command is not None, f"{document}: there is no command {line}"
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        options |= {"--help", "-h"}
        for word in rest:
            if word in ("|", "&", "&&", ";", ">"):
                break
            if re.match(r"--?[a-zA-Z]", word):
                assert word.split("=")[0] in options, f"{document}: {name} has no option {word}"


@pytest.mark.parametrize(("document", "line", "words"), cases("make"), ids=lambda value: str(value)[:60])
def test_make_targets_exist(document: str, line: str, words: list[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for word in words:
        if not word.startswith(("-", "#")) and "=" not in word:
            assert word in targets, f"{document}: there is no target {word}"


def test_every_command_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    used = {words[0] for words in commands_in(readme, "tokenmill") if words}
    group = typer.main.get_command(app)
    assert set(group.list_commands(None)) <= used  # type: ignore[attr-defined,arg-type]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
