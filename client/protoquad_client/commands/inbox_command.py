"""`pq inbox`: images that predictions have kept, until somebody says what they show."""

from dataclasses import asdict
from typing import Literal

import click

from protoquad_client import Sample
from protoquad_client.commands import terminal
from protoquad_client.commands.class_folders import class_name
from protoquad_client.commands.common_options import Common, common_options
from protoquad_client.commands.named_class import named_class
from protoquad_client.commands.plain_command import PlainCommand
from protoquad_client.commands.terminal import counted

HEADINGS = ("sample", "answer", "confidence", "margin", "group", "seen")


class _Inbox(click.Group):
    """`pq inbox` alone lists it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        completing = ctx.resilient_parsing
        if not completing and (not args or args[0] not in {*self.commands, *ctx.help_option_names}):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group("inbox", cls=_Inbox, short_help="List, name or dismiss images that predictions have kept.")
def command() -> None:
    """Images that predictions have kept: list them, name what they show, or dismiss them.

    They are kept only if the operator has set PROTOQUAD_CAPTURE. The console of the service shows them.
    """


@command.command("list", cls=PlainCommand, examples=["pq inbox", "pq inbox list --sort margin"])
@click.option("--sort", type=click.Choice(["margin", "newest"]), help="margin: the most uncertain first.")
@common_options()
def list_samples(common: Common, sort: Literal["margin", "newest"] | None) -> None:
    """List the inbox; images that look alike share a group."""
    with common.client() as client:
        pages = list(client.inbox.list(sort=sort).pages())
    found = [sample for page in pages for sample in page.items]
    if common.as_json:
        terminal.show_json([asdict(one) for one in found])
    elif found:
        terminal.show_table(HEADINGS, [_cells(one) for one in found])
        terminal.note(f"see them at {common.url}/#/inbox")
    elif pages[0].capture == "off":
        terminal.note("the inbox is empty, and the service keeps no images: PROTOQUAD_CAPTURE is off there")
    else:
        terminal.note("the inbox is empty")


@command.command(
    "name", cls=PlainCommand, examples=["pq inbox name owl 858993459200", "pq inbox name 'barn owl' 1 2 --new"]
)
@click.argument("name", metavar="CLASS")
@click.argument("samples", metavar="SAMPLE...", nargs=-1, required=True, type=int)
@click.option("--new", is_flag=True, help="The class is a new one.")
@common_options()
def name_samples(common: Common, name: str, samples: tuple[int, ...], new: bool) -> None:
    """Say that samples show a class: they become shots of it and leave the inbox."""
    with common.client() as client:
        known = named_class(client, name, new=new)
        what = {"class_id": known.id} if known else {"name": class_name(name)}
        taught = client.inbox.resolve(samples, **what)
    if common.as_json:
        terminal.show_json({"class": asdict(taught.class_), "version": taught.version, "session": taught.session.id})
    else:
        shots = counted(taught.class_.shots, "shot")
        terminal.show(f"'{terminal.printable(taught.class_.name)}' has {shots} now; version {taught.version} knows it")


@command.command("dismiss", cls=PlainCommand, examples=["pq inbox dismiss 858993459200", "pq inbox dismiss --all"])
@click.argument("samples", metavar="SAMPLE...", nargs=-1, type=int)
@click.option("--all", "everything", is_flag=True, help="Empty the inbox.")
@common_options()
def dismiss_samples(common: Common, samples: tuple[int, ...], everything: bool) -> None:
    """Erase samples that are of no use."""
    if bool(samples) == everything:
        raise click.UsageError("name samples, or use --all")
    with common.client() as client:
        if everything:
            samples = tuple(sample.id for sample in client.inbox.list())
        if samples:
            client.inbox.dismiss(samples)
    if common.as_json:
        terminal.show_json({"dismissed": list(samples)})
    else:
        terminal.show(f"{counted(len(samples), 'sample')} dismissed")


def _cells(one: Sample) -> tuple[str, ...]:
    answer = one.label or (f"unknown, nearest {one.top[0].label}" if one.top else "unknown")
    group = "-" if one.group is None else str(one.group)
    seen = terminal.local_time(one.created_at)
    return str(one.id), answer, terminal.percent(one.confidence), f"{one.margin:.2f}", group, seen
