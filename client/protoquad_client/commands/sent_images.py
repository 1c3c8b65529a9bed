"""Images as they are sent, with their digests, and how many of them fit into a request."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from protoquad_client.commands.image_files import ImageFile, Refusal, read_image
from protoquad_client.config import Config
from protoquad_client.forms import EncodedImage

BYTES_AROUND_IMAGE = 1000  # of a form: its headers, with a long file name


@dataclass(frozen=True)
class SentImage:
    file: ImageFile
    image: EncodedImage
    digest: str  # SHA-256, by which the service knows it too


def read_images(files: Iterable[ImageFile], config: Config) -> tuple[list[SentImage], list[Refusal]]:
    """All that can be read, scaled down if they are large."""
    images: list[SentImage] = []
    refused: list[Refusal] = []
    for file in files:
        data = read_image(file)
        if isinstance(data, Refusal):
            refused.append(data)
        else:
            (encoded,) = config.shots([data])
            image = replace(encoded, filename=file.filename)
            images.append(SentImage(file, image, hashlib.sha256(image.data).hexdigest()))
    return images, refused


def fitting(images: Sequence[SentImage], most_bytes: int) -> list[SentImage]:
    """The first images, as many as a request may carry."""
    chosen: list[SentImage] = []
    for image in images:
        most_bytes -= len(image.image.data) + BYTES_AROUND_IMAGE
        if most_bytes < 0:
            break
        chosen.append(image)
    return chosen
