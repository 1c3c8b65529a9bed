"""Images in every form that callers have them in, and large ones made smaller without another answer."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageOps
from protoquad_client import scaling
from protoquad_client.images import as_images, encoded

from core.images import Framing, centre_view, fixed_views
from core.pixels import decode

FRAMING = Framing(size=224)
ORIENTATION = 0x112


def photo(size: tuple[int, int], form: str = "JPEG", turned: int = 1, seed: int = 3, **options: Any) -> bytes:
    """Smooth colours, edges, and grain as a camera's: its files are as long as photos."""
    generator = np.random.default_rng(seed)
    coarse = Image.fromarray(generator.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    image = coarse.resize(size, Image.Resampling.BICUBIC)
    drawing = ImageDraw.Draw(image)
    for number in range(40):
        x, y = (int(generator.integers(0, side)) for side in size)
        drawing.ellipse((x, y, x + size[0] // 9, y + size[1] // 12), fill=(6 * number, 255 - 5 * number, 90))
    grain = generator.normal(0, 6, (size[1], size[0], 1))
    pixels = np.clip(np.asarray(image, dtype=np.float32) + grain, 0, 255).astype(np.uint8)
    exif = Image.Exif()
    exif[ORIENTATION] = turned
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, form, exif=exif, **options)
    return out.getvalue()


@pytest.fixture(scope="module")
def large() -> bytes:
    return photo((2600, 2100), quality=90)


def size_of(data: bytes) -> tuple[int, int]:
    return ImageOps.exif_transpose(Image.open(io.BytesIO(data))).size


def pixels_of(data: bytes) -> Any:
    return np.asarray(decode(data))


def test_an_image_may_be_a_path_bytes_or_a_file(samples: Path) -> None:
    """It is sent as it is, with the name of its file."""
    path = samples / "new-mug.jpg"
    data = path.read_bytes()
    nameless, own = io.BytesIO(b"xx" + data), encoded(str(path), 1024)
    nameless.seek(2)

    with path.open("rb") as file:
        assert encoded(file, 1024) == own
    assert (own.data, own.filename) == (data, "new-mug.jpg")
    assert encoded(path, None) == own
    for form in (data, bytearray(data), memoryview(data), nameless):
        assert (encoded(form, 1024).data, encoded(data, 1024).filename) == (data, None)


def test_an_image_may_be_of_pillow_or_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without loss, and arrays without Pillow too; a shape or type that could mean anything is refused."""
    array = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    grey, clear = array[..., 0], np.dstack([array, np.full((20, 30), 255, np.uint8)])

    for one, same in ((array, array), (clear, array), (Image.fromarray(array), array)):
        assert np.array_equal(pixels_of(encoded(one, 1024).data), same)
    assert np.array_equal(pixels_of(encoded(grey, None).data)[..., 0], grey)
    assert np.array_equal(pixels_of(encoded(array[::-1], None).data), array[::-1])
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert encoded(np.zeros((2100, 2100, 3), np.uint8), 1024).data[:4] == b"\x89PNG"
    monkeypatch.undo()
    for wrong in (array / 255, array.transpose(2, 0, 1), array[None], array.astype(np.uint16)):
        with pytest.raises(TypeError, match="uint8"):
            encoded(wrong, None)
    with pytest.raises(TypeError, match="not int"):
        encoded(7, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'rb'"):
        encoded(io.StringIO("text"), None)  # type: ignore[arg-type]


def test_one_image_counts_as_a_list_of_one() -> None:
    """So that the characters of a path are not taken for paths."""
    array = np.zeros((4, 4, 3), np.uint8)

    for one in ("owl.jpg", Path("owl.jpg"), b"image", io.BytesIO(), Image.new("RGB", (4, 4)), array):
        found = list(as_images(one))
        assert len(found) == 1
        assert found[0] is one
    assert len(list(as_images(["a.jpg", "b.jpg"]))) == 2
    assert len(list(as_images(np.stack([array, array])))) == 2


def test_a_large_image_is_made_smaller(large: bytes) -> None:
    """Much smaller a file; its shorter side keeps what the service needs."""
    sent = encoded(large, scaling.PREDICTED).data

    assert size_of(sent) == (1300, 1050)
    assert len(sent) < len(large) / 2
    assert encoded(large, None).data == large
    assert encoded(large, scaling.SHOT).data == large
    assert min(size_of(encoded(photo((900, 4800), "BMP"), scaling.PREDICTED).data)) == 900


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("turned", [1, 3, 6, 8])
def test_a_smaller_image_is_as_upright_as_the_large_one(
    form: str, turned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its EXIF block says, whatever its format."""
    monkeypatch.setattr(scaling, "SHORT_FILE", 0)
    data = photo((280, 200), form, turned)

    sent = encoded(data, 64).data

    assert sent != data
    upright = decode(data)
    for smaller in (decode(sent), decode(encoded(Image.open(io.BytesIO(data)), 64).data)):
        same = np.asarray(upright.resize(smaller.size), dtype=np.float32)
        assert smaller.width / smaller.height == pytest.approx(upright.width / upright.height, rel=0.03)
        assert np.abs(np.asarray(smaller) - same).mean() < 12


@pytest.mark.parametrize("mode", ["RGBA", "P", "CMYK", "LA", "I;16", "1"])
def test_images_that_the_service_converts_are_sent_as_they_are(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transparency, palettes, deep greys and printers' colours: it does so in its own way."""
    monkeypatch.setattr(scaling, "SHORT_FILE", 0)
    image = Image.new("L", (300, 300)).convert("I;16") if mode == "I;16" else Image.new("RGB", (300, 300)).convert(mode)
    out = io.BytesIO()
    image.save(out, "TIFF")

    assert encoded(out.getvalue(), 64).data == out.getvalue()


def test_an_old_pillow_scales_nothing(large: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 10.1 it does not say whether an image has transparency."""
    monkeypatch.delattr(Image.Image, "has_transparency_data")

    with Image.open(io.BytesIO(large)) as image:
        assert size_of(encoded(image, 1024).data) == image.size


@pytest.mark.parametrize("broken", [b"nonsense" * 50_000, b"\xff\xd8\xff\xe0" + bytes(400_000)])
def test_what_is_no_image_is_left_to_the_service(broken: bytes) -> None:
    """It says better what is wrong."""
    assert encoded(broken, 1024).data == broken


def test_the_network_sees_nearly_the_same_pixels(large: bytes) -> None:
    """Of every view, in levels of 255; with a filter in place of halving they differ four times as much."""
    sent = encoded(large, scaling.PREDICTED).data

    before, after = (fixed_views(decode(data, short_side=256), FRAMING, 6).float() for data in (large, sent))
    out = io.BytesIO()
    filtered = Image.open(io.BytesIO(large)).resize((1268, 1024), Image.Resampling.LANCZOS)
    filtered.save(out, "JPEG", quality=95)
    other = fixed_views(decode(out.getvalue(), short_side=256), FRAMING, 6).float()

    assert (before - after).abs().mean() < 1.0
    assert (before - other).abs().mean() > 2 * (before - after).abs().mean()
    assert centre_view(decode(sent, short_side=256), FRAMING).shape == (3, 224, 224)


def test_the_answers_are_the_same(client: Any, connect: Callable[..., Any], service: Any, large: bytes) -> None:
    """With and without scaling: the same class, at nearly the same distance."""
    whole = connect(service.url, scale_down=False).model(client.model_name)
    client.classes.teach("large", large)
    client.classes.teach("other", photo((300, 240), seed=4))

    small, full = client.predict(large), whole.predict(large)

    assert small.top[0].label == full.top[0].label == "large"
    assert small.top[0].distance == pytest.approx(full.top[0].distance, abs=0.002)
    assert small.confidence == pytest.approx(full.confidence, abs=0.01)
