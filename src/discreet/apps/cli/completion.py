"""`discreet completion`: a script that makes a shell complete the commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output

_STARTUP_FILE = {
    "bash": "~/.bashrc",
    "zsh": "~/.zshrc",
    "fish": "~/.config/fish/config.fish",
}


@click.command("completion", cls=Command, example="discreet completion bash")
@click.argument("shell", type=click.Choice(sorted(_STARTUP_FILE)))
@with_output
def command(output: Output, shell: str) -> None:
    """Print the script that completes `discreet` in your SHELL.

    For bash and zsh add `eval "$(discreet completion bash)"` (or zsh) to ~/.bashrc or ~/.zshrc; for fish add
    `discreet completion fish | source` to ~/.config/fish/config.fish.
    """
    root = click.get_current_context().find_root().command
    completion = get_completion_class(shell)
    assert completion is not None
    script = completion(root, {}, "discreet", "_DISCREET_COMPLETE").source()
    if output.json:
        output.emit({"shell": shell, "belongs_in": _STARTUP_FILE[shell], "script": script})
    else:
        click.echo(script)
