"""The commands of the client, `pq`, as commands of `protoquad`.

Typer brings its own copy of click, and a command of click itself cannot be in a group of that copy. So each is wrapped:
the wrapper hands all arguments on unread, and asks the command for completions if a shell wants some.
"""

from typing import Any

from typer.core import TyperCommand

PANEL = "Commands that talk to a running service"
# Those of `pq` without `doctor`, which does more here, and `completion`, which is an option of Typer's.
NAMES = ("teach", "predict", "watch", "classes", "versions", "rollback", "correct", "inbox")


class ClientCommand(TyperCommand):
    """A command of `pq` under the name of this program."""

    def __init__(self, name: str) -> None:
        from protoquad_client.commands.pq import command_named

        self.wrapped = command_named(name)
        summary = self.wrapped.get_short_help_str(limit=200)
        super().__init__(name, help=summary, add_help_option=False, rich_help_panel=PANEL)

    @property
    def _program(self) -> str:
        return f"protoquad {self.name}"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.args = list(args)
        return args

    def invoke(self, ctx: Any) -> Any:
        return self.wrapped.main(args=ctx.args, prog_name=self._program)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        from click.shell_completion import ShellComplete

        return list(ShellComplete(self.wrapped, {}, self._program, "").get_completions(ctx.args, incomplete))
