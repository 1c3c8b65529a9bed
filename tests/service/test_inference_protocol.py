"""`/v2`: the Open Inference Protocol, asked by Triton's own client, and by clients that mean harm."""

import base64
import json
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

Draw = Callable[..., bytes]
LOOKS = ("red", "green", "blue")


@pytest.fixture
def client(service: Any) -> Iterator[Any]:
    with triton.InferenceServerClient(service.url.removeprefix("http://")) as opened:
        yield opened


@pytest.fixture
def taught(learner: Any) -> Any:
    """A model that knows three colours."""
    learner.taught(*LOOKS)
    return learner


def tensor(images: list[bytes], *, binary: bool = True) -> list[Any]:
    """The input as Triton's client sends it: as bytes, or in base64 within the JSON."""
    found = triton.InferInput("image", [len(images)], "BYTES")
    sent = images if binary else [base64.b64encode(image) for image in images]
    found.set_data_from_numpy(np.array(sent, dtype=np.object_), binary_data=binary)
    return [found]


def described(images: int = 1, **changed: Any) -> dict[str, Any]:
    return {"name": "image", "shape": [images], "datatype": "BYTES", **changed}


def binary_body(images: list[bytes], **changed: Any) -> tuple[bytes, dict[str, str]]:
    """A request with a binary tensor, and its header."""
    data = b"".join(struct.pack("<I", len(image)) + image for image in images)
    parameters = {"binary_data_size": len(data)}
    head = json.dumps({"inputs": [described(len(images), parameters=parameters, **changed)]}).encode()
    return head + data, {"Inference-Header-Content-Length": str(len(head))}


def json_body(image: bytes, **changed: Any) -> dict[str, Any]:
    return {"inputs": [described(data=[base64.b64encode(image).decode()], **changed)]}


def refusal(answer: Any, status: int) -> str:
    """What the error says; it has the protocol's form."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json()) == ["error"]
    text: str = answer.json()["error"]
    return text


# Triton's client


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_tritons_client_gets_what_predict_answers(taught: Any, client: Any, draw: Draw, binary: bool) -> None:
    """Images as bytes or in base64, answers as tensors; an unknown image has no label."""
    looks = ["blue", "stripes"]
    expected = taught.predict(*looks)

    outputs = [
        triton.InferRequestedOutput(name, binary_data=binary)
        for name in ("label", "class_id", "confidence", "unknown", "distance")
    ]
    images = tensor([draw(look) for look in looks], binary=binary)
    answer = client.infer(taught.name, images, outputs=outputs, request_id="seven")

    known, strange = expected["predictions"]
    labels = [label.decode() if binary else label for label in answer.as_numpy("label")]
    assert labels == ["blue", ""]
    assert answer.as_numpy("class_id").tolist() == [known["class_id"], -1]
    assert answer.as_numpy("unknown").tolist() == [False, True]
    assert answer.as_numpy("confidence").tolist() == pytest.approx([known["confidence"], strange["confidence"]])
    nearest = [one["top"][0]["distance"] for one in (known, strange)]
    assert answer.as_numpy("distance").tolist() == pytest.approx(nearest)
    said = answer.get_response()
    assert (said["model_name"], said["model_version"]) == (taught.name, str(expected["version"]))
    assert said["id"] == "seven"


def test_tritons_client_asks_for_everything_at_once(taught: Any, client: Any, draw: Draw) -> None:
    """Without a list of outputs it gets all of them, binary; with `top_k` the nearest classes as well."""
    expected = taught.predict("red", "green", top_k=2)["predictions"]

    answer = client.infer(taught.name, tensor([draw("red"), draw("green")]), parameters={"top_k": 2})

    assert [label.decode() for label in answer.as_numpy("label")] == ["red", "green"]
    found = answer.as_numpy("top_class_id")
    assert found.tolist() == [[one["class_id"] for one in body["top"]] for body in expected]
    assert answer.as_numpy("top_distance").shape == (2, 2)
    assert answer.get_output("top_label")["datatype"] == "BYTES"


def test_tritons_client_asks_a_pinned_version(taught: Any, client: Any, draw: Draw) -> None:
    """It answers as it did; which versions there are is in the metadata."""
    taught.taught("yellow")

    answers = [client.infer(taught.name, tensor([draw("yellow")]), model_version=version) for version in ("2", "")]
    labels = [answer.as_numpy("label")[0] for answer in answers]

    metadata = client.get_model_metadata(taught.name)
    assert labels[1] == b"yellow" != labels[0]
    assert [answer.get_response()["model_version"] for answer in answers] == ["2", "4"]
    assert metadata["versions"] == ["4", "3", "2", "1", "0"]
    assert client.get_model_metadata(taught.name, "2")["versions"] == ["2"]
    assert metadata["inputs"] == [{"name": "image", "datatype": "BYTES", "shape": [-1]}]
    assert {"name": "unknown", "datatype": "BOOL", "shape": [-1]} in metadata["outputs"]


def test_tritons_client_finds_the_server_and_its_models_ready(taught: Any, client: Any) -> None:
    """Also a version that is not in memory; one that does not exist is not ready."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert client.is_model_ready(taught.name)
    assert client.is_model_ready(taught.name, "1")
    assert not client.is_model_ready(taught.name, "77")
    assert not client.is_model_ready("nobody")


def test_tritons_client_is_told_what_is_wrong(taught: Any, client: Any) -> None:
    """In the words of the service."""
    with pytest.raises(InferenceServerException, match="image 0: this is not a known image format") as refused:
        client.infer(taught.name, tensor([b"not an image"]))

    assert refused.value.status() == "422"


# Other clients


def test_several_views_count_as_in_predict(taught: Any, draw: Draw) -> None:
    """Where a parameter is null it is as if it were left out, as some clients send it."""
    (expected,) = taught.predict("red", views=3)["predictions"]
    body = {**json_body(draw("red")), "id": None, "outputs": None, "parameters": {"views": 3, "top_k": None}}

    answer = taught.service.http.post(f"/v2/models/{taught.name}/infer", json=body).json()

    values = {output["name"]: output["data"] for output in answer["outputs"]}
    assert values == {
        "label": ["red"],
        "class_id": [expected["class_id"]],
        "confidence": [expected["confidence"]],
        "unknown": [False],
        "distance": [expected["top"][0]["distance"]],
    }
    assert "id" not in answer


def test_data_may_have_the_shape_of_its_tensor(taught: Any, draw: Draw) -> None:
    """A list of lists, with fields in any order."""
    red, blue = (base64.b64encode(draw(look)).decode() for look in ("red", "blue"))
    sent = {"data": [[red], [blue]], "datatype": "BYTES", "shape": [2, 1], "name": "image"}

    answer = taught.service.http.post(f"/v2/models/{taught.name}/infer", json={"inputs": [sent]}).json()

    assert answer["outputs"][0]["data"] == ["red", "blue"]


def test_a_model_without_classes_knows_nothing(learner: Any, draw: Draw) -> None:
    """Numbers stand for what is not there: JSON has no word for it."""
    answer = learner.service.http.post(f"/v2/models/{learner.name}/infer", json=json_body(draw("red"))).json()

    values = {output["name"]: output["data"] for output in answer["outputs"]}
    assert values == {"label": [""], "class_id": [-1], "confidence": [0.0], "unknown": [True], "distance": [-1.0]}


def test_what_is_inferred_goes_to_the_inbox_too(start: Any, draw: Draw, until: Any) -> None:
    """If the operator has asked for that: it is a prediction like any other."""
    service = start(capture="all")

    assert service.http.post("/v2/models/default/infer", json=json_body(draw("red"))).status_code == 200

    until(lambda: len(service.http.get("/inbox").json()["items"]) == 1, "the image is in the inbox")


# What is refused

IMAGE = b"not an image"
SHAPES = [[2], [0], [-1], [2**40], [2**30] * 8, [1] * 9, "1", [1.5], [True], None]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_a_shape_that_is_not_that_of_the_images_is_refused(service: Any, shape: Any, binary: bool) -> None:
    """However large: nothing is allocated for it."""
    if binary:
        content, headers = binary_body([IMAGE], shape=shape)
        answer = service.http.post("/v2/models/default/infer", content=content, headers=headers)
    else:
        answer = service.http.post("/v2/models/default/infer", json=json_body(IMAGE, shape=shape))

    assert "shape" in refusal(answer, 422) or "more than 64 images" in answer.json()["error"]


def lengths(*numbers: int) -> bytes:
    return b"".join(struct.pack("<i", number) for number in numbers)


@pytest.mark.parametrize(
    ("tensor", "size", "why"),
    [
        (lengths(-1), 4, "image 0 has 4294967295 bytes"),
        (lengths(5) + b"abc", 7, "image 0 has 5 bytes, and 3 are left"),
        (b"\x01\x00", 2, "within the length"),
        (lengths(3) + b"abc", 6, "longer than its JSON"),
        (lengths(3) + b"abc", 8, "ends 1 bytes before"),
        (b"", 7, "ends 7 bytes before"),
        (lengths(1) + b"a" + lengths(0), 9, "the shape [1] of 'image' is not that of its 2 images"),
        (lengths(3) + b"abc", -7, "binary_data_size"),
        (lengths(3) + b"abc", 10**30, "before the 1000"),
        (lengths(3) + b"abc", "7", "binary_data_size"),
        (lengths(*[0] * 100), 400, "more than 64 images"),
        (b"", 0, "there is no image"),
    ],
)
def test_a_binary_tensor_that_is_not_one_is_refused(service: Any, tensor: bytes, size: Any, why: str) -> None:
    """Lengths that are negative, cut off, too long or too many."""
    head = json.dumps({"inputs": [described(parameters={"binary_data_size": size})]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}

    answer = service.http.post("/v2/models/default/infer", content=head + tensor, headers=headers)

    assert answer.status_code in (400, 422)
    assert why in refusal(answer, answer.status_code)


@pytest.mark.parametrize("sent", ["-1", "0", "1e3", "٣", "9" * 40, "", "10, 10", "1000000"])
def test_a_length_of_the_json_that_cannot_be_is_refused(service: Any, sent: str) -> None:
    """It must be one number, and not more than the body."""
    headers = {"Inference-Header-Content-Length": sent.encode()}

    content, _ = binary_body([IMAGE])
    answer = service.http.post("/v2/models/default/infer", content=content, headers=headers)

    assert refusal(answer, 400)


@pytest.mark.parametrize(
    ("content", "status", "why"),
    [
        (b"", 400, "ends too early"),
        (b"[]", 422, "must be an object"),
        (b"{}", 422, "there is no input"),
        (b'{"inputs":[]}', 422, "there is no input"),
        (b'{"inputs":[{}]}', 422, "name"),
        (b'{"inputs":[{},{}]}', 422, "more than one input"),
        (b'{"inputs":' + b"[" * 100_000, 400, "is missing"),
        (b'{"parameters":' + b"[" * 100_000, 422, "more than 8"),
        (b'{"parameters":' + b'{"a":' * 100_000, 422, "more than 8"),
        (b'{"parameters":[' + b"1," * 100_000 + b"1]}", 422, "65536 bytes beside its images"),
        (b'{"' + b"a" * 100_000 + b'":1}', 422, "bytes"),
        (b'{"id":"' + b"a" * 100_000 + b'"}', 422, "65536 bytes beside its images"),
        (b'{"id":' + b"1" * 5_000 + b"}", 400, "not JSON"),
        (b'{"id":"\xff"}', 400, "not JSON"),
        (b'{"id":}', 400, "not JSON"),
        (b'{"id" 1}', 400, "':' is missing"),
        (b'{"inputs":[{"data":' + b"[" * 100_000, 422, "within more than 8 lists"),
        (b'{"inputs":[{"data":[' + b"[]," * 100_000, 422, "a list in 'data' is empty"),
        (b'{"inputs":[{"data":[' + b'"",' * 100_000, 422, "more than 64 images"),
        (b'{"inputs":[{"data":[1]}]}', 422, "image 0: this is a number"),
        (b'{"inputs":[{"data":["***"]}]}', 422, "image 0: this is not base64"),
        (b'{"inputs":[{"data":"x"}]}', 422, "must be a list"),
        (b'{"inputs":[{"name":"a","name":"b"}]}', 422, "'name' appears twice"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_json_that_is_no_request_is_refused(service: Any, content: bytes, status: int, why: str) -> None:
    """At the first byte that cannot be right, before anything is built of it."""
    answer = service.http.post("/v2/models/default/infer", content=content)

    assert why in refusal(answer, status)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"name": "pixels"}, "there is no input 'pixels'"),
        ({"datatype": "FP32"}, "must be BYTES"),
        ({"parameters": {"binary_data_size": 3}}, "Inference-Header-Content-Length"),
    ],
)
def test_another_input_is_refused(service: Any, draw: Draw, changed: dict[str, Any], why: str) -> None:
    """The one input is named in the answer."""
    answer = service.http.post("/v2/models/default/infer", json=json_body(draw("red"), **changed))

    assert why in refusal(answer, 400 if "parameters" in changed else 422)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"outputs": [{"name": "logits"}]}, "there is no output 'logits'"),
        ({"outputs": [{"name": "label", "parameters": {"classification": 3}}]}, "'classification'"),
        ({"parameters": {"top_k": 0}}, "top_k"),
        ({"parameters": {"views": "6"}}, "views"),
        ({"id": "\ud800"}, "unicode"),
        ({"id": 7}, "id"),
    ],
)
def test_what_cannot_be_answered_is_refused(service: Any, draw: Draw, more: dict[str, Any], why: str) -> None:
    """Rather than something else being answered."""
    content = json.dumps({**json_body(draw("red")), **more}).encode()

    answer = service.http.post("/v2/models/default/infer", content=content)

    assert why in refusal(answer, 422)


def test_compressed_bodies_are_refused(service: Any) -> None:
    """A few bytes could become any number."""
    headers = {"Content-Encoding": "gzip"}

    answer = service.http.post("/v2/models/default/infer", content=b"x", headers=headers)

    assert "encoding 'gzip'" in refusal(answer, 415)


@pytest.mark.parametrize(
    ("path", "status"),
    [("/v2/models/nobody", 404), ("/v2/models/No Body", 422), ("/v2/models/default/versions/x", 422), ("/v2/x", 404)],
)
def test_every_error_under_v2_has_the_form_of_the_protocol(service: Any, path: str, status: int) -> None:
    """Also those of the framework, of the limits and of the keys."""
    assert refusal(service.http.get(path), status)
    assert "type" in service.http.get("/v3").json()


def test_a_body_that_is_too_large_is_refused_in_the_same_form(start: Any, draw: Draw) -> None:
    """By its announced length, or while it arrives."""
    service = start(max_request_bytes=100_000)
    announced = service.http.post("/v2/models/default/infer", content=bytes(200_000))
    chunked = service.http.post("/v2/models/default/infer", content=(b" " * 50_000 for _ in range(4)))

    assert "larger than" in refusal(announced, 413)
    assert "larger than" in refusal(chunked, 413)
    assert service.http.post("/v2/models/default/infer", json=json_body(draw("red"))).status_code == 200


def test_a_key_is_asked_for_in_the_same_form(locked_service: Any) -> None:
    """With the challenge that HTTP wants."""
    answer = locked_service.http.post("/v2/models/default/infer")

    assert "no API key" in refusal(answer, 401)
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_full_queue_refuses_in_the_same_form(start: Any, draw: Draw, until: Any) -> None:
    """With the time to wait; the queue is that of /predict."""
    service = start(queue_images=1)
    infer = partial(service.http.post, "/v2/models/default/infer", json=json_body(draw("red")))

    with ThreadPoolExecutor() as pool:
        with service.held_up():
            accepted = pool.submit(service.learner().predict, "red")
            until(lambda: service.context.predictor.queued == 1, "an image waits")
            refused = infer()
        accepted.result()

    assert "wait" in refusal(refused, 503)
    assert refused.headers["retry-after"] == "1"
    assert infer().status_code == 200
