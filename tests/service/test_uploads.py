"""Images and names are read from a request as they were sent; anything else is refused with a reason."""

import asyncio
import base64
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI, Request
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.images import decode
from service import errors, uploads
from service.image_fields import ImageFields
from service.json_images import JsonReader
from service.spool import Spool
from service.uploads import IMAGES_BODY, SHOTS_BODY, TINY_IMAGE

FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)
IMAGE = base64.b64decode(TINY_IMAGE)
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "multipart/form-data; boundary=edge"}
LARGE = 3_000_000  # beyond what is decoded on the event loop

Ask = Callable[..., Any]


def application() -> FastAPI:
    app = FastAPI()
    errors.install(app)

    @app.post("/classes", openapi_extra={"requestBody": SHOTS_BODY})
    async def classes(request: Request) -> dict[str, Any]:
        shots = await uploads.read_shots(request, max_images=3)
        return {"name": shots.name, "images": [told(one) for one in shots.images]}

    @app.post("/predict", openapi_extra={"requestBody": IMAGES_BODY("images")})
    async def predict(request: Request) -> list[Any]:
        return [told(one) for one in await uploads.read_images(request, field="images", max_images=3)]

    return app


def told(upload: uploads.Upload) -> list[Any]:
    return [upload.index, upload.filename, base64.b64encode(upload.data).decode()]


APP = application()


def part(name: str, content: bytes, *more: str, filename: str | None = None) -> bytes:
    disposition = f'form-data; name="{name}"' + (f'; filename="{filename}"' if filename is not None else "")
    head = "\r\n".join(["--edge", f"Content-Disposition: {disposition}", *more, "", ""])
    return head.encode() + content + b"\r\n"


def form(*parts: bytes, end: bytes = b"--edge--\r\n") -> bytes:
    return b"".join(parts) + end


def shot(content: bytes = IMAGE, filename: str = "a.png", field: str = "shots") -> bytes:
    return part(field, content, "Content-Type: image/png", filename=filename)


def refusal(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    return body


# What is accepted


def test_a_form_brings_a_name_and_images_in_order(ask: Ask) -> None:
    """Bytes arrive as they were sent, with their file names."""
    files = [("shots", ("a.png", b"\x00first\r\n")), ("shots", ("b.jpg", b"second"))]

    response = ask(APP, "POST", "/classes", data={"name": " red panda "}, files=files)

    images = [[0, "a.png", encoded(b"\x00first\r\n")], [1, "b.jpg", encoded(b"second")]]
    assert response.json() == {"name": "red panda", "images": images}


def test_json_brings_a_name_and_images_in_order(ask: Ask) -> None:
    """The same as a form, without file names."""
    response = ask(APP, "POST", "/classes", json={"name": "red panda", "shots": [encoded(b"one"), encoded(b"two")]})

    images = [[0, None, encoded(b"one")], [1, None, encoded(b"two")]]
    assert response.json() == {"name": "red panda", "images": images}


@pytest.mark.parametrize(
    "body", [{"json": {"images": [TINY_IMAGE]}}, {"files": [("images", ("a.png", IMAGE))]}], ids=["json", "form"]
)
def test_images_alone_need_no_name(ask: Ask, body: dict[str, Any]) -> None:
    """A prediction takes its one field, by either road."""
    response = ask(APP, "POST", "/predict", **body)

    assert [image for *_, image in response.json()] == [TINY_IMAGE]


@pytest.mark.parametrize(
    "text",
    [
        f"data:image/png;base64,{TINY_IMAGE}",
        f"DATA:image/png;name=a.png;BASE64,{TINY_IMAGE}",
        "\n".join(TINY_IMAGE[start : start + 20] for start in range(0, len(TINY_IMAGE), 20)),
        f"  \t{TINY_IMAGE}\r\n",
    ],
)
def test_base64_is_taken_as_people_have_it(ask: Ask, text: str) -> None:
    """Out of a data URI, or broken into lines as `base64` prints it."""
    response = ask(APP, "POST", "/predict", json={"images": [text]})

    assert response.json() == [[0, None, TINY_IMAGE]]


@pytest.mark.parametrize("road", ["json", "form"])
def test_a_large_image_arrives_whole(ask: Ask, road: str) -> None:
    """Size changes where it is decoded and nothing else."""
    data = bytes(range(256)) * (LARGE // 256)
    body = {"json": {"images": [encoded(data)]}} if road == "json" else {"files": [("images", ("a", data))]}

    response = ask(APP, "POST", "/predict", **body)

    assert response.json()[0][2] == encoded(data)


def test_a_image_without_a_file_name_is_known_by_its_type(ask: Ask) -> None:
    """Some libraries leave the name out of a part that is plainly a file."""
    content = form(part("images", IMAGE, "Content-Type: image/png"))

    response = ask(APP, "POST", "/predict", content=content, headers=FORM)

    assert response.json() == [[0, None, TINY_IMAGE]]


def test_an_empty_file_is_left_to_the_decoder(ask: Ask) -> None:
    """Which says of each image what is wrong with it, this one among the others."""
    response = ask(APP, "POST", "/predict", content=form(shot(b"", field="images")), headers=FORM)

    assert response.json() == [[0, "a.png", ""]]


# Types and syntax


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "image/png", "äöü", ";;;"])
def test_another_type_is_a_415_that_names_the_two(ask: Ask, kind: str | None) -> None:
    """Also where there is none at all."""
    headers = {} if kind is None else {"Content-Type": kind.encode()}

    response = ask(APP, "POST", "/classes", content=b"name=a", headers=headers)

    detail = refusal(response, 415)["detail"]
    assert "multipart/form-data" in detail
    assert "application/json" in detail


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"name": NaN}',
        b'{"name": Infinity}',
        b'{"name": "a\x00"}',
        b'{"name": "\xff"}',
        b'{"name": "a"} {}',
        b'{"name": "a",}',
        b'{"name" "a"}',
        b'{"shots": ["' + b"A" * 100_000,
        b'{"shots": ["\\x0000"]}',
        b'{"shots": ["\\u00',
    ],
    ids=lambda content: repr(content[:12]),
)
def test_what_is_not_json_is_a_400(ask: Ask, content: bytes) -> None:
    """Torn, with numbers that are none, with something behind it, or in no known encoding."""
    response = ask(APP, "POST", "/classes", content=content, headers=JSON)

    assert refusal(response, 400)["type"] == "/problems/malformed-body"


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"", FORM),
        (b"rubbish", FORM),
        (form(shot(), end=b""), FORM),
        (form(shot())[:-20], FORM),
        (b"--edge\r\nContent-Disposition: form-data\r\n\r\nx\r\n--edge--\r\n", FORM),
        (b"--edge\r\n\r\nx\r\n--edge--\r\n", FORM),
        (form(part("name", b"a", "X: " + "y" * 100_000), shot()), FORM),
        (form(part("name", b"cat", "Content-Length: 9"), shot()), FORM),
        (form(shot()), {"Content-Type": "multipart/form-data"}),
        (form(shot()), {"Content-Type": "multipart/form-data; boundary=" + "e" * 1000}),
        (form(shot()), {"Content-Type": "multipart/form-data; boundary=other"}),
    ],
)
def test_what_is_not_a_form_is_a_400(ask: Ask, content: bytes, headers: dict[str, str]) -> None:
    """A form that was cut short is not taken for a shorter one."""
    response = ask(APP, "POST", "/classes", content=content, headers=headers)

    assert refusal(response, 400)["type"] == "/problems/malformed-body"


# Fields


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"shots": [TINY_IMAGE]}, "name of the class is missing"),
        ({"name": 7, "shots": [TINY_IMAGE]}, "'name' is a number"),
        ({"name": None, "shots": [TINY_IMAGE]}, "'name' is null"),
        ({"name": "", "shots": [TINY_IMAGE]}, "name is empty"),
        ({"name": "a"}, "no image in 'shots'"),
        ({"name": "a", "shots": []}, "no image in 'shots'"),
        ({"name": "a", "shots": TINY_IMAGE}, "'shots' is a string"),
        ({"name": "a", "shots": {"0": TINY_IMAGE}}, "'shots' is an object"),
        ({"name": "a", "shots": [TINY_IMAGE] * 4}, "more than 3 images"),
        ({"name": "a", "shot": [TINY_IMAGE]}, "'name' (text) and 'shots'"),
        ({"name": [[]] * 9, "shots": []}, "'name' is a list"),
        ({"name": "a" * 20_000, "shots": []}, "'name' has more than"),
        ({"name": "a", "shots": [{"a": 1}]}, "this is an object and must be a string"),
        ([], "the body is a list"),
        (None, "the body is null"),
        (True, "the body is true or false"),
    ],
)
def test_json_that_does_not_fit_says_how(ask: Ask, content: Any, told: str) -> None:
    """What is there, and what was expected instead."""
    response = ask(APP, "POST", "/classes", content=json.dumps(content), headers=JSON)

    assert told in refusal(response, 422)["detail"]


@pytest.mark.parametrize(
    "content",
    [
        b"9" * 1_000_000,
        b"[" * 1_000_000,
        b'{"name":' * 200_000,
        b'{"shots": ' + b"[" * 1_000_000,
        b"{" + b"[]," * 10**6,
    ],
    ids=lambda content: repr(content[:12]),
)
def test_what_does_not_fit_is_refused_however_deep_it_is(ask: Ask, content: bytes) -> None:
    """A parser that built a tree of it would fail with an error of its own; `make test-hostile` judges the cost."""
    response = ask(APP, "POST", "/classes", content=content, headers=JSON)

    assert response.status_code in (400, 422)


@FUZZ
@given(
    images=st.lists(st.binary(max_size=40), min_size=1, max_size=3),
    cuts=st.lists(st.integers(1, 7), min_size=1),
    escape=st.sampled_from(["/", "+", "=", "A", ""]),
    short=st.booleans(),
)
def test_json_may_come_in_any_pieces_and_with_any_escapes(
    images: list[bytes], cuts: list[int], escape: str, short: bool
) -> None:
    """Wherever a piece ends, also amid an escape, the same bytes come out."""
    written = "/" if short and escape == "/" else f"u{ord(escape):04x}" if escape else ""
    body = json.dumps({"name": "Käfer \U0001f40d", "shots": [encoded(image) for image in images]})
    head, _, tail = body.partition('"shots"')
    content = (head + '"shots"' + (tail.replace(escape, "\\" + written) if escape not in ("", '"') else tail)).encode()
    fields = ImageFields("shots", 3, has_name=True)
    reader = JsonReader(fields)

    for size in itertools.cycle(cuts):
        piece, content = content[:size], content[size:]
        if not piece:
            break
        reader.write(piece)
    reader.finish()

    assert fields.name == "Käfer \U0001f40d"
    assert [image.data for image in fields.images] == images


def test_images_beyond_a_size_wait_in_a_file(ask: Ask) -> None:
    """Memory holds a few megabytes of a request; the bytes are the same."""
    images = [bytes([number]) * 5_000_000 for number in range(3)]

    response = ask(APP, "POST", "/classes", data={"name": "a"}, files=[("shots", ("a.png", one)) for one in images])
    spool = Spool()
    blobs = [spool.blob() for _ in images]
    for blob, image in zip(blobs, images, strict=True):
        blob.write(image)
        asyncio.run(spool.settle())

    assert [data for *_, data in response.json()["images"]] == [encoded(image) for image in images]
    assert spool.in_memory < 8_000_000
    assert [blob.read() for blob in blobs] == images


def test_a_field_that_comes_twice_in_json_is_refused(ask: Ask) -> None:
    """Most parsers would quietly take the last."""
    content = f'{{"name": "cat", "shots": ["{TINY_IMAGE}"], "name": "dog"}}'

    response = ask(APP, "POST", "/classes", content=content, headers=JSON)

    assert "'name' appears twice" in refusal(response, 422)["detail"]


NAME = part("name", b"cat")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (form(shot()), "name of the class is missing"),
        (form(NAME, NAME, shot()), "'name' appears twice"),
        (form(part("name", b"\xff"), shot()), "not UTF-8"),
        (form(part("name", b"cat", filename="cat.txt"), shot()), "'name' holds a file"),
        (form(NAME), "no image in 'shots'"),
        (form(NAME, part("shots", TINY_IMAGE.encode())), "'shots' holds text where a file is expected"),
        (form(NAME, *[shot()] * 4), "more than 3 images"),
        (form(NAME, shot(field="shot")), "'name' (text) and 'shots'"),
        (form(NAME, shot(), part("note", b"hello")), "no field 'note'"),
    ],
)
def test_a_form_that_does_not_fit_says_how(ask: Ask, content: bytes, told: str) -> None:
    """As JSON does; and the whole form is read before, or the answer might not be heard."""
    response = ask(APP, "POST", "/classes", content=content, headers=FORM)

    assert told in refusal(response, 422)["detail"]


@pytest.mark.parametrize("field", ["image", "name"])
def test_a_prediction_names_its_one_field(ask: Ask, field: str) -> None:
    """Whoever guessed wrong is told the right name."""
    response = ask(APP, "POST", "/predict", content=form(shot(field=field)), headers=FORM)

    assert f"no field '{field}' here; the one field is 'images'" in refusal(response, 422)["detail"]


def test_each_image_that_is_not_base64_is_named(ask: Ask) -> None:
    """By its index and its own reason; the good ones are not listed."""
    entries = [TINY_IMAGE, "https://example.org/cat.png", 7]

    body = refusal(ask(APP, "POST", "/predict", json={"images": entries}), 422)

    assert [one["index"] for one in body["images"]] == [1, 2]
    assert "not base64" in body["images"][0]["reason"]
    assert "a number" in body["images"][1]["reason"]
    assert body["type"] == "/problems/invalid-image"


@pytest.mark.parametrize("text", ["a", "ab=", "äöü=", "\ud800aaa", "a-_b", "data:image/png,abcd", "data:;base64,?"])
def test_base64_is_strict(ask: Ask, text: str) -> None:
    """Nothing is skipped over: a image that lost a character would be another image."""
    response = ask(APP, "POST", "/predict", content=json.dumps({"images": [text]}), headers=JSON)

    assert [one["index"] for one in refusal(response, 422)["images"]] == [0]


# Anything at all


@FUZZ
@given(content=st.binary(max_size=300))
def test_no_bytes_as_json_are_a_fault_of_ours(ask: Ask, content: bytes) -> None:
    """Whatever is sent, the answer is a problem of the sender's."""
    response = ask(APP, "POST", "/classes", content=content, headers=JSON)

    assert response.status_code in (400, 422)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.just(TINY_IMAGE),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["name", "shots", "x"]), inner),
    max_leaves=8,
)


@FUZZ
@given(content=st.dictionaries(st.sampled_from(["name", "shots"]), ANYTHING) | ANYTHING)
@example(content={"name": "\ud800", "shots": [TINY_IMAGE]})
@example(content={"\ud800": 1})
def test_no_json_is_a_fault_of_ours(ask: Ask, content: Any) -> None:
    """Of whatever shape, with whatever text."""
    response = ask(APP, "POST", "/classes", content=json.dumps(content), headers=JSON)

    assert response.status_code in (200, 400, 422)


@FUZZ
@given(
    parts=st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.just(b"--edge\r\n"),
            st.just(b"--edge--\r\n"),
            st.just(b"\r\n"),
            st.just(shot()),
            st.just(NAME),
            st.binary(max_size=30).map(lambda data: b"Content-Disposition: form-data; name=" + data + b"\r\n\r\n"),
        ),
        max_size=8,
    )
)
def test_no_bytes_as_a_form_are_a_fault_of_ours(ask: Ask, parts: list[bytes]) -> None:
    """Pieces of forms in any order, with rubbish between them."""
    response = ask(APP, "POST", "/classes", content=b"".join(parts), headers=FORM)

    assert response.status_code in (200, 400, 422)


@FUZZ
@given(kind=st.binary(max_size=60) | st.binary(max_size=40).map(lambda rest: b"multipart/form-data; boundary=" + rest))
def test_no_content_type_is_a_fault_of_ours(ask: Ask, kind: bytes) -> None:
    """Not even one that no server would let through."""
    response = ask(APP, "POST", "/classes", content=form(NAME, shot()), headers={"Content-Type": kind})

    assert response.status_code in (200, 400, 415, 422)


@FUZZ
@given(images=st.lists(st.binary(max_size=200), min_size=1, max_size=3))
def test_both_roads_bring_the_same_bytes(ask: Ask, images: list[bytes]) -> None:
    """Whatever the bytes, line ends and boundaries among them."""
    as_json = ask(APP, "POST", "/predict", json={"images": [encoded(one) for one in images]})
    as_form = ask(APP, "POST", "/predict", files=[("images", ("a", one)) for one in images])

    expected = [encoded(one) for one in images]
    assert [one for *_, one in as_json.json()] == [one for *_, one in as_form.json()] == expected


# Names


def test_a_class_name_is_cleaned_once_and_refused_with_its_reason(ask: Ask) -> None:
    """As the store cleans it, by either format; the answer names the field."""
    sent = [{"json": {"name": name, "shots": [TINY_IMAGE]}} for name in (" cafe\u0301 ", "a\u202eb")]
    accepted, refused = (ask(APP, "POST", "/classes", **body) for body in sent)

    body = refusal(refused, 422)
    assert accepted.json()["name"] == "caf\u00e9"
    assert (body["type"], body["title"]) == ("/problems/invalid-name", "The name cannot be used")
    assert body["errors"] == [{"where": "name", "reason": body["detail"]}]
    assert "U+202E" in body["detail"]


# OpenAPI


@pytest.mark.parametrize(("path", "field"), [("/classes", "shots"), ("/predict", "images")])
def test_the_documented_example_is_accepted(ask: Ask, path: str, field: str) -> None:
    """Whoever copies it out of /docs gets an answer, and its image can be decoded."""
    body = ask(APP, "GET", "/openapi.json").json()["paths"][path]["post"]["requestBody"]
    example = body["content"]["application/json"]["example"]

    response = ask(APP, "POST", path, json=example)

    assert response.status_code == 200
    assert decode(base64.b64decode(example[field][0])).size == (2, 2)
    assert set(body["content"]) == {"application/json", "multipart/form-data"}
    for content in body["content"].values():
        assert set(content["schema"]["required"]) == set(content["schema"]["properties"]) == set(example)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
