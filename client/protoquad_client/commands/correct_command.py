"""`pq correct`: say what images really show."""

from dataclasses import asdict
from pathlib import Path

import click

from protoquad_client.commands import exit_codes, terminal
from protoquad_client.commands.common_options import Common, common_options
from protoquad_client.commands.correcting import Corrected, Correcting
from protoquad_client.commands.image_files import find_images
from protoquad_client.commands.named_class import named_class
from protoquad_client.commands.plain_command import PlainCommand


@click.command(
    "correct",
    cls=PlainCommand,
    codes=exit_codes.MEANINGS,
    short_help="Say what images really show.",
    examples=["pq correct owl wrong.jpg", "pq correct 'barn owl' a.jpg b.jpg --new"],
)
@click.argument("name", metavar="CLASS")
@click.argument("images", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--new", is_flag=True, help="The class is a new one.")
@common_options()
def command(common: Common, name: str, images: tuple[Path, ...], new: bool) -> None:
    """Say that IMAGES show the class CLASS: they become shots of it.

    An image that is a shot of another class is moved; one that is in the inbox leaves it.
    """
    with common.client() as client:
        correcting = Correcting(client, name, named_class(client, name, new=new))
        done = [correcting.correct(image) for image in find_images(images).images]
    if common.as_json:
        terminal.show_json([asdict(one) for one in done])
    else:
        for one in done:
            _show(one)
    if any(one.state == "refused" for one in done):
        raise click.exceptions.Exit(exit_codes.PARTLY)


def _show(one: Corrected) -> None:
    terminal.show(f"{terminal.printable(one.image)}: {one.text}")
