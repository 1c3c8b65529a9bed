"""`pq completion`: the script with which a shell completes `pq`."""

import click
from click.shell_completion import get_completion_class

from protoquad_client.commands import terminal
from protoquad_client.commands.plain_command import PlainCommand

PROGRAM, VARIABLE = "pq", "_PQ_COMPLETE"


@click.command(
    "completion",
    cls=PlainCommand,
    short_help="Print the completion script of a shell.",
    examples=[
        "pq completion bash > ~/.local/share/bash-completion/completions/pq",
        "pq completion zsh > ~/.zfunc/_pq",
        "pq completion fish > ~/.config/fish/completions/pq.fish",
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes commands, options and files for a shell."""
    from protoquad_client.commands.pq import pq

    kind = get_completion_class(shell)
    assert kind is not None  # click knows all three
    script = kind(pq, {}, PROGRAM, VARIABLE)
    terminal.show(script.source_template % script.source_vars())
