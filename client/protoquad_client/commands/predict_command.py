"""`pq predict`: what is on images."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from protoquad_client import Client, InvalidImage, Prediction
from protoquad_client.commands import exit_codes
from protoquad_client.commands.common_options import Common, common_options
from protoquad_client.commands.image_files import (
    STANDARD_INPUT,
    ImageFile,
    Refusal,
    find_images,
    read_image,
    standard_input,
)
from protoquad_client.commands.plain_command import PlainCommand
from protoquad_client.commands.prediction_output import CsvOutput, JsonOutput, TextOutput

BATCH = 16


@click.command(
    "predict",
    cls=PlainCommand,
    codes=exit_codes.MEANINGS,
    short_help="Say what is on images.",
    examples=[
        "pq predict new.jpg",
        "pq predict *.jpg --csv > answers.csv",
        "pq predict photos/ --json | jq -r 'select(.unknown) | .file'",
        "camera --snapshot | pq predict -",
        "find . -name '*.jpg' | pq predict --files-from -",
    ],
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--files-from",
    type=click.File("r", errors="surrogateescape"),
    help="File with the names of images, one a line; - is standard input.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a heading.")
@click.option("--top-k", type=click.IntRange(1, 100), help="List this many of the nearest classes.")
@click.option("--version", type=click.IntRange(min=0), help="Ask this version, not the active one.")
@click.option("--views", type=click.IntRange(1, 6), help="Look at each image this many times.")
@common_options(json_help="Print a JSON object for each image, one a line.")
def command(
    common: Common,
    files: tuple[Path, ...],
    files_from: Iterable[str] | None,
    as_csv: bool,
    top_k: int | None,
    version: int | None,
    views: int | None,
) -> None:
    """Say what is on images: FILES, folders of them, or - for one image on standard input.

    The answers come in the order of the images. An image that is like nothing that was taught is unknown.
    """
    if as_csv and common.as_json:
        raise click.UsageError("choose one of --json and --csv")
    images = _images(files, files_from)
    if not images:
        raise click.UsageError("name at least one image, or - for one on standard input")
    output = CsvOutput(top_k) if as_csv else JsonOutput() if common.as_json else TextOutput(top_k)
    refused = False
    with common.client() as client:
        for file, answer in _answers(client, images, top_k, version, views):
            output.add(file.shown, answer)
            refused = refused or isinstance(answer, Refusal)
    if refused:
        raise click.exceptions.Exit(exit_codes.PARTLY)


def _images(files: tuple[Path, ...], files_from: Iterable[str] | None) -> list[ImageFile]:
    named = [Path(line.rstrip("\n")) for line in files_from or () if line.strip()]
    images: list[ImageFile] = []
    for path in (*files, *named):
        if str(path) == STANDARD_INPUT and path in files:
            images.append(standard_input(sys.stdin.buffer))
        else:
            images += find_images([path]).images
    return images


def _answers(
    client: Client, images: Iterable[ImageFile], top_k: int | None, version: int | None, views: int | None
) -> Iterator[tuple[ImageFile, Prediction | Refusal]]:
    """In the order of the images; one that cannot be read is not sent, and keeps its place."""
    waiting: deque[tuple[ImageFile, Refusal | None]] = deque()

    def readable() -> Iterator[bytes]:
        for image in images:
            data = read_image(image)
            waiting.append((image, data if isinstance(data, Refusal) else None))
            if not isinstance(data, Refusal):
                yield data

    answers = client.predict_many(readable(), batch=BATCH, top_k=top_k, version=version, views=views, refused="yield")
    for answer in answers:
        image, refusal = waiting.popleft()
        while refusal is not None:
            yield image, refusal
            image, refusal = waiting.popleft()
        if isinstance(answer, InvalidImage):
            reason = answer.images[0].reason if answer.images else str(answer)
            yield image, Refusal(image.shown, reason)
        else:
            yield image, answer
    for image, refusal in waiting:
        if refusal is not None:
            yield image, refusal
