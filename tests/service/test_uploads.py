"""Pictures and names come out of a request as they were put in, and whatever else is sent is refused with a reason."""

import asyncio
import base64
import itertools
import json
import time
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI, Request
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.images import decode
from service import errors, uploads
from service.errors import Problem
from service.image_fields import ImageFields
from service.json_images import JsonReader
from service.spool import Spool
from service.uploads import PICTURES_BODY, SHOTS_BODY, TINY_PICTURE, clean_name, model_name

FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)
PICTURE = base64.b64decode(TINY_PICTURE)
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
        return {"name": shots.name, "pictures": [told(one) for one in shots.pictures]}

    @app.post("/predict", openapi_extra={"requestBody": PICTURES_BODY("images")})
    async def predict(request: Request) -> list[Any]:
        return [told(one) for one in await uploads.read_pictures(request, field="images", max_images=3)]

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


def shot(content: bytes = PICTURE, filename: str = "a.png", field: str = "shots") -> bytes:
    return part(field, content, "Content-Type: image/png", filename=filename)


def refusal(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    return body


# What is accepted


def test_a_form_brings_a_name_and_pictures_in_order(ask: Ask) -> None:
    """Bytes arrive as they were sent, with their file names."""
    files = [("shots", ("a.png", b"\x00first\r\n")), ("shots", ("b.jpg", b"second"))]

    response = ask(APP, "POST", "/classes", data={"name": " red panda "}, files=files)

    pictures = [[0, "a.png", encoded(b"\x00first\r\n")], [1, "b.jpg", encoded(b"second")]]
    assert response.json() == {"name": "red panda", "pictures": pictures}


def test_json_brings_a_name_and_pictures_in_order(ask: Ask) -> None:
    """The same as a form, without file names."""
    response = ask(APP, "POST", "/classes", json={"name": "red panda", "shots": [encoded(b"one"), encoded(b"two")]})

    pictures = [[0, None, encoded(b"one")], [1, None, encoded(b"two")]]
    assert response.json() == {"name": "red panda", "pictures": pictures}


@pytest.mark.parametrize(
    "body", [{"json": {"images": [TINY_PICTURE]}}, {"files": [("images", ("a.png", PICTURE))]}], ids=["json", "form"]
)
def test_pictures_alone_need_no_name(ask: Ask, body: dict[str, Any]) -> None:
    """A prediction takes its one field, by either road."""
    response = ask(APP, "POST", "/predict", **body)

    assert [picture for *_, picture in response.json()] == [TINY_PICTURE]


@pytest.mark.parametrize(
    "text",
    [
        f"data:image/png;base64,{TINY_PICTURE}",
        f"DATA:image/png;name=a.png;BASE64,{TINY_PICTURE}",
        "\n".join(TINY_PICTURE[start : start + 20] for start in range(0, len(TINY_PICTURE), 20)),
        f"  \t{TINY_PICTURE}\r\n",
    ],
)
def test_base64_is_taken_as_people_have_it(ask: Ask, text: str) -> None:
    """Out of a data URI, or broken into lines as `base64` prints it."""
    response = ask(APP, "POST", "/predict", json={"images": [text]})

    assert response.json() == [[0, None, TINY_PICTURE]]


@pytest.mark.parametrize("road", ["json", "form"])
def test_a_large_picture_arrives_whole(ask: Ask, road: str) -> None:
    """Size changes where it is decoded and nothing else."""
    data = bytes(range(256)) * (LARGE // 256)
    body = {"json": {"images": [encoded(data)]}} if road == "json" else {"files": [("images", ("a", data))]}

    response = ask(APP, "POST", "/predict", **body)

    assert response.json()[0][2] == encoded(data)


def test_a_picture_without_a_file_name_is_known_by_its_type(ask: Ask) -> None:
    """Some libraries leave the name out of a part that is plainly a file."""
    content = form(part("images", PICTURE, "Content-Type: image/png"))

    response = ask(APP, "POST", "/predict", content=content, headers=FORM)

    assert response.json() == [[0, None, TINY_PICTURE]]


def test_an_empty_file_is_left_to_the_decoder(ask: Ask) -> None:
    """Which says of each picture what is wrong with it, this one among the others."""
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
        ({"shots": [TINY_PICTURE]}, "name of the class is missing"),
        ({"name": 7, "shots": [TINY_PICTURE]}, "'name' is a number"),
        ({"name": None, "shots": [TINY_PICTURE]}, "'name' is null"),
        ({"name": "", "shots": [TINY_PICTURE]}, "name is empty"),
        ({"name": "a"}, "no picture in 'shots'"),
        ({"name": "a", "shots": []}, "no picture in 'shots'"),
        ({"name": "a", "shots": TINY_PICTURE}, "'shots' is a string"),
        ({"name": "a", "shots": {"0": TINY_PICTURE}}, "'shots' is an object"),
        ({"name": "a", "shots": [TINY_PICTURE] * 4}, "more than 3 pictures"),
        ({"name": "a", "shot": [TINY_PICTURE]}, "'name' (text) and 'shots'"),
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
def test_no_tree_is_built_of_what_does_not_fit(ask: Ask, content: bytes) -> None:
    """The first byte that does not fit ends it: what follows costs nothing, however deep or long it is."""
    began = time.process_time()
    response = ask(APP, "POST", "/classes", content=content, headers=JSON)

    assert response.status_code in (400, 422)
    assert time.process_time() - began < 1


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

    assert [data for *_, data in response.json()["pictures"]] == [encoded(image) for image in images]
    assert spool.in_memory < 8_000_000
    assert [blob.read() for blob in blobs] == images


def test_a_field_that_comes_twice_in_json_is_refused(ask: Ask) -> None:
    """Most parsers would quietly take the last."""
    content = f'{{"name": "cat", "shots": ["{TINY_PICTURE}"], "name": "dog"}}'

    response = ask(APP, "POST", "/classes", content=content, headers=JSON)

    assert "'name' comes 2 times" in refusal(response, 422)["detail"]


NAME = part("name", b"cat")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (form(shot()), "name of the class is missing"),
        (form(NAME, NAME, shot()), "'name' comes twice"),
        (form(part("name", b"\xff"), shot()), "not UTF-8"),
        (form(part("name", b"cat", filename="cat.txt"), shot()), "'name' holds a file"),
        (form(NAME), "no picture in 'shots'"),
        (form(NAME, part("shots", TINY_PICTURE.encode())), "'shots' holds text where a file is expected"),
        (form(NAME, *[shot()] * 4), "more than 3 pictures"),
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


def test_each_picture_that_is_not_base64_is_named(ask: Ask) -> None:
    """By its index and its own reason; the good ones are not listed."""
    entries = [TINY_PICTURE, "https://example.org/cat.png", 7]

    body = refusal(ask(APP, "POST", "/predict", json={"images": entries}), 422)

    assert [one["index"] for one in body["images"]] == [1, 2]
    assert "not base64" in body["images"][0]["reason"]
    assert "a number" in body["images"][1]["reason"]
    assert body["type"] == "/problems/invalid-image"


@pytest.mark.parametrize("text", ["a", "ab=", "äöü=", "\ud800aaa", "a-_b", "data:image/png,abcd", "data:;base64,?"])
def test_base64_is_strict(ask: Ask, text: str) -> None:
    """Nothing is skipped over: a picture that lost a character would be another picture."""
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
    st.none() | st.booleans() | st.floats() | st.text() | st.just(TINY_PICTURE),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["name", "shots", "x"]), inner),
    max_leaves=8,
)


@FUZZ
@given(content=st.dictionaries(st.sampled_from(["name", "shots"]), ANYTHING) | ANYTHING)
@example(content={"name": "\ud800", "shots": [TINY_PICTURE]})
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
@given(pictures=st.lists(st.binary(max_size=200), min_size=1, max_size=3))
def test_both_roads_bring_the_same_bytes(ask: Ask, pictures: list[bytes]) -> None:
    """Whatever the bytes, line ends and boundaries among them."""
    as_json = ask(APP, "POST", "/predict", json={"images": [encoded(one) for one in pictures]})
    as_form = ask(APP, "POST", "/predict", files=[("images", ("a", one)) for one in pictures])

    expected = [encoded(one) for one in pictures]
    assert [one for *_, one in as_json.json()] == [one for *_, one in as_form.json()] == expected


# Names


@pytest.mark.parametrize(
    "name",
    ["cat", "Straße", "日本の城", "خط عربي", "👩‍👩‍👧‍👦", "\U0001fae8", "a b/c?d=<e>", "x" * 200, "👍" * 200],
)
def test_names_of_any_script_are_kept(name: str) -> None:
    """Including emoji joined of several, and one that is younger than this Python's tables."""
    assert clean_name(name) == name


def test_a_name_is_trimmed_and_composed() -> None:
    """Two ways to write é are one name, or a class could be taught twice under what looks like one."""
    decomposed = unicodedata.normalize("NFD", "café")

    assert clean_name(f" \t{decomposed}\n") == "café"
    assert len(clean_name(unicodedata.normalize("NFD", "é" * 200))) == 200


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "is empty"),
        (" \n\t ", "is empty"),
        ("\u200b", "is empty"),
        ("x" * 201, "201 characters"),
        ("x" * 1_000_000, "1000000 characters"),
        ("a\x00b", "U+0000"),
        ("a\nb", "U+000A"),
        ("a\u2028b", "U+2028"),
        ("a\x7fb", "U+007F"),
        ("a\ud800b", "U+D800"),
        ("a\u202eb", "U+202E"),
        ("a\u2066b", "U+2066"),
        ("a\uffffb", "U+FFFF"),
        ("a\u0378b", "U+0378"),
    ],
)
def test_a_name_that_cannot_be_shown_is_refused(name: str, told: str) -> None:
    """Told by its length or its character, with what to do."""
    with pytest.raises(Problem, match="name") as refused:
        clean_name(name)

    assert refused.value.status == 422
    assert told in refused.value.detail


@FUZZ
@given(st.text(max_size=250))
def test_a_cleaned_name_is_clean(name: str) -> None:
    """Cleaning twice changes nothing, and what comes out can be stored and shown."""
    try:
        cleaned = clean_name(name)
    except Problem:
        return

    assert clean_name(cleaned) == cleaned
    assert 1 <= len(cleaned) <= 200
    assert cleaned.encode().decode() == cleaned
    assert len(cleaned.splitlines()) == 1


@pytest.mark.parametrize("name", ["default", "a", "0", "birds-2_b", "x" * 63])
def test_a_model_name_fits_into_an_address(name: str) -> None:
    """Without escaping, on every file system and in every shell."""
    assert model_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "ä", "-a", "_a", "a b", "a/b", "..", "a\n", "x" * 64, "\ud800"])
def test_another_model_name_is_refused(name: str) -> None:
    """With the characters that may be used."""
    with pytest.raises(Problem, match="a-z") as refused:
        model_name(name)

    assert refused.value.status == 422


# OpenAPI


@pytest.mark.parametrize(("path", "field"), [("/classes", "shots"), ("/predict", "images")])
def test_the_documented_example_is_accepted(ask: Ask, path: str, field: str) -> None:
    """Whoever copies it out of /docs gets an answer, and its picture can be decoded."""
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
