"""The `tokenmill` command: finds each subcommand by its file in commands/ and imports it only when needed."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperGroup

from tokenmill import __version__
from tokenmill.cli import commands
from tokenmill.cli.failures import exit_code_of

_HELP = """Serves quantized LLMs on CPUs, Arm and x86.

Start with `tokenmill generate -p "Why is the sky blue?"`: it takes the built-in model smollm2-135m. Then
`tokenmill serve` for an OpenAI-compatible server, and `tokenmill explain` for what this machine makes of a model.

Every command takes `--json` for machines. Exit codes: 0 fine, 1 failure, findings or a missed target, 2 misuse.
"""


class CommandsByFile(TyperGroup):
    """Subcommands are the modules of a package, each with a function `command`; a package in it is a group of them."""

    package: ModuleType = commands

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (the base class fixes the signature)
        """Names of the commands, in alphabetical order; underscores of a file name show as hyphens."""
        return sorted(module.name.replace("_", "-") for module in iter_modules(self.package.__path__))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, or None; only its own file is imported."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f"{self.package.__name__}.{cmd_name.replace('-', '_')}")
        if hasattr(module, "__path__"):
            return _group(cmd_name, module)
        single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        single.command(name=cmd_name)(module.command)
        return typer.main.get_command(single)

    def invoke(self, ctx: Any) -> Any:
        """Runs a command; an expected failure becomes one message on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except (Exception, KeyboardInterrupt) as error:
            code = exit_code_of(error)
            if code is None or os.environ.get("TOKENMILL_DEBUG") == "1":
                raise
            raise typer.Exit(code) from error


def _group(name: str, package: ModuleType) -> Any:
    """The commands of a package; its docstring is their help."""
    group = typer.Typer(
        name=name,
        cls=type("CommandsOfPackage", (CommandsByFile,), {"package": package}),
        help=package.__doc__,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
    )
    group.callback()(lambda: None)
    return typer.main.get_group(group)


app = typer.Typer(
    cls=CommandsByFile,
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        sys.stdout.write(f"tokenmill {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Options of `tokenmill` itself."""
