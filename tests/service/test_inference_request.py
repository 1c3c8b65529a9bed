"""An inference request is read the same however its bytes arrive, and nothing but a refusal comes of other bytes."""

import base64
import json
import struct
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.errors import UnusableImages
from service.image_fields import ImageFields
from service.inference_protocol.request import InferenceReader
from service.inference_protocol.schemas import RequestHead
from service.problems import Problem

FUZZ = settings(max_examples=120, deadline=None, derandomize=True, database=None)
MAX_IMAGES = 4
REFUSALS = (Problem, RequestValidationError, UnusableImages)
images_of_a_request = st.lists(st.binary(max_size=20), min_size=1, max_size=MAX_IMAGES)
cuts = st.lists(st.integers(0, 400), max_size=6)


def read(body: bytes, head_length: int | None, at: list[int]) -> tuple[RequestHead, list[bytes]]:
    """The request, arriving in pieces that end at these places."""
    fields = ImageFields("image", MAX_IMAGES, has_name=False)
    reader = InferenceReader(fields, head_length)
    ends = sorted({min(cut, len(body)) for cut in at} | {len(body)})
    start = 0
    for end in ends:
        if end > start:
            reader.write(body[start:end])
        start = end
    return reader.finish(), [upload.data for upload in fields.images]


def outcome(body: bytes, head_length: int | None, at: list[int]) -> Any:
    try:
        return read(body, head_length, at)
    except REFUSALS as refusal:
        return type(refusal)


def tensor(images: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(image)) + image for image in images)


def head(images: list[bytes], **more: Any) -> dict[str, Any]:
    return {"id": "seven", "inputs": [{"name": "image", "shape": [len(images)], "datatype": "BYTES", **more}]}


def binary_request(images: list[bytes]) -> tuple[bytes, int]:
    data = tensor(images)
    text = json.dumps(head(images, parameters={"binary_data_size": len(data)})).encode()
    return text + data, len(text)


def json_request(images: list[bytes]) -> bytes:
    data = [base64.b64encode(image).decode() for image in images]
    return json.dumps({**head(images, data=data), "outputs": [{"name": "label"}], "parameters": {"views": 2}}).encode()


@FUZZ
@given(images_of_a_request, cuts)
def test_binary_images_are_read_however_they_arrive(images: list[bytes], at: list[int]) -> None:
    """Cut within the JSON, a length or an image."""
    body, length = binary_request(images)

    found, read_images = read(body, length, at)

    assert read_images == images
    assert (found.id, found.inputs[0].shape) == ("seven", [len(images)])


@FUZZ
@given(images_of_a_request, cuts, st.booleans())
def test_images_in_json_are_read_however_they_arrive(images: list[bytes], at: list[int], measured: bool) -> None:
    """With or without a header that says how long the JSON is."""
    body = json_request(images)

    found, read_images = read(body, len(body) if measured else None, at)

    assert read_images == images
    assert (found.parameters.views, [output.name for output in found.outputs]) == (2, ["label"])


@FUZZ
@given(st.binary(max_size=120), st.integers(0, 60), st.integers(0, 2**33), cuts)
@example(b"\xff\xff\xff\xff", 0, 4, [])
def test_any_bytes_for_a_tensor_are_its_images_or_refused(data: bytes, shape: int, size: int, at: list[int]) -> None:
    """Against a reading of the format that has all bytes at once."""
    text = json.dumps(head([], shape=[shape], parameters={"binary_data_size": size})).encode()

    found = outcome(text + data, len(text), at)

    expected = _elements(data) if size == len(data) else None
    if expected is None or not 0 < len(expected) <= MAX_IMAGES or len(expected) != shape:
        assert found is Problem
    else:
        assert found[1] == expected


def _elements(data: bytes) -> list[bytes] | None:
    found = []
    while data:
        length = int.from_bytes(data[:4], "little")
        if len(data) < 4 + length:
            return None
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


mutations = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), min_size=1, max_size=4)


@FUZZ
@given(images_of_a_request, mutations, st.booleans(), st.integers(-3, 3), cuts)
def test_damaged_requests_are_read_or_refused(
    images: list[bytes], changes: list[tuple[int, int]], binary: bool, shift: int, at: list[int]
) -> None:
    """And the same is made of them in one piece and in many."""
    body, length = binary_request(images) if binary else (json_request(images), None)
    damaged = bytearray(body)
    for place, byte in changes:
        damaged[place % len(damaged)] = byte
    length = length and max(1, length + shift)

    whole, pieces = outcome(bytes(damaged), length, []), outcome(bytes(damaged), length, at)

    assert pieces == whole


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(["id", "parameters", "inputs", "outputs", "name", "shape", "datatype", "data", "other"])
requests = st.dictionaries(
    fields, json_values | st.lists(st.dictionaries(fields, json_values, max_size=4), max_size=2), max_size=4
)


@FUZZ
@given(requests, cuts)
def test_any_json_is_read_or_refused(sent: dict[str, Any], at: list[int]) -> None:
    """Whatever its fields hold."""
    body = json.dumps(sent).encode()

    found = outcome(body, None, at)

    assert found in REFUSALS or isinstance(found[0], RequestHead)


@FUZZ
@given(st.binary(max_size=60), st.none() | st.integers(1, 80), cuts)
def test_any_bytes_are_refused(body: bytes, length: int | None, at: list[int]) -> None:
    """None of them is a request."""
    assert outcome(body, length, at) in REFUSALS


@pytest.mark.parametrize("nested", [[["QQ=="]], [[["QQ=="]]]])
def test_lists_within_lists_are_read(nested: Any) -> None:
    """As a tensor of that shape has them."""
    body = json.dumps(head([b"A"], data=nested)).encode()

    assert read(body, None, [])[1] == [b"A"]
