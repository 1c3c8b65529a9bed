"""What all commands have in common: help with examples and exit codes, and errors as one sentence."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from protoquad_client.commands import exit_codes
from protoquad_client.commands.error_sentences import sentence_of
from protoquad_client.commands.terminal import styled

USUAL = (exit_codes.OK, exit_codes.FAILED, exit_codes.WRONG_USE, exit_codes.STOPPED)


class Failure(click.ClickException):
    """A sentence on standard error and an exit code, never a traceback."""

    exit_code = exit_codes.FAILED

    def show(self, file: Any = None) -> None:
        click.echo(f"{styled('error:', fg='red')} {self.message}", err=True, file=file)


class WrongUse(Failure):
    """What was asked for makes no sense, whatever the service says."""

    exit_code = exit_codes.WRONG_USE


class PlainCommand(click.Command):
    """Examples are given without the name of the program, which is `pq` or `protoquad`."""

    def __init__(self, *args: Any, examples: Sequence[str], codes: Iterable[int] = USUAL, **named: Any) -> None:
        super().__init__(*args, **named)
        self.examples = examples
        self.codes = codes

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        program = ctx.find_root().command_path.split(" ")[0]
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example.replace('pq ', f'{program} ')}\n")
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), exit_codes.MEANINGS[code]) for code in self.codes])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
            raise click.exceptions.Exit(exit_codes.STOPPED) from None
        except Exception as error:
            sentence = sentence_of(error)
            if sentence is None:
                raise
            raise Failure(sentence) from error
