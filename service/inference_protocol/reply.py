"""Predictions as the tensors of the protocol, in JSON or binary, as the caller asked."""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fastapi import Response
from pydantic_core import to_json

from service.image_fields import unusable
from service.inference_protocol.schemas import Datatype, RequestHead, TensorMetadata
from service.problems import shortened

HEAD_LENGTH = "Inference-Header-Content-Length"
NO_CLASS = -1  # class_id of an unknown image; distance where there is no class to be near to
TOP = 5  # classes, if the outputs `top_…` are asked for without `top_k`

Body = Mapping[str, Any]  # of one prediction, as `PredictionBody` documents it


class _Output(NamedTuple):
    datatype: Datatype
    value: Callable[[Body], Any]


def _distance(candidate: Body) -> float:
    distance: float = candidate["distance"]
    return distance if math.isfinite(distance) else float(NO_CLASS)


_OUTPUTS: dict[str, _Output] = {
    "label": _Output("BYTES", lambda body: body["label"] or ""),
    "class_id": _Output("INT64", lambda body: NO_CLASS if body["unknown"] else body["class_id"]),
    "confidence": _Output("FP32", lambda body: _finite(body["confidence"])),
    "unknown": _Output("BOOL", lambda body: body["unknown"]),
    "distance": _Output("FP32", lambda body: _distance(body["top"][0]) if body["top"] else float(NO_CLASS)),
}
_TOP_OUTPUTS: dict[str, _Output] = {
    "top_label": _Output("BYTES", lambda candidate: candidate["label"]),
    "top_class_id": _Output("INT64", lambda candidate: candidate["class_id"]),
    "top_confidence": _Output("FP32", lambda candidate: _finite(candidate["confidence"])),
    "top_distance": _Output("FP32", _distance),
}
OUTPUTS = [
    *(TensorMetadata(name=name, datatype=output.datatype, shape=[-1]) for name, output in _OUTPUTS.items()),
    *(TensorMetadata(name=name, datatype=output.datatype, shape=[-1, -1]) for name, output in _TOP_OUTPUTS.items()),
]


def _finite(confidence: float) -> float:
    return confidence if math.isfinite(confidence) else 0.0


def top_k(head: RequestHead) -> int:
    """How many classes the answer needs."""
    if head.parameters.top_k is not None:
        return head.parameters.top_k
    return TOP if any(output.name in _TOP_OUTPUTS for output in head.outputs) else 1


def wanted(head: RequestHead) -> dict[str, bool]:
    """The outputs to answer with, by name, and whether each is to be binary."""
    by_default = head.parameters.binary_data_output
    if not head.outputs:
        names = [*_OUTPUTS, *(_TOP_OUTPUTS if head.parameters.top_k is not None else ())]
        return dict.fromkeys(names, by_default)
    asked: dict[str, bool] = {}
    for output in head.outputs:
        if output.name not in _OUTPUTS and output.name not in _TOP_OUTPUTS:
            known = ", ".join([*_OUTPUTS, *_TOP_OUTPUTS])
            raise unusable("outputs", f"there is no output '{shortened(output.name)}'; there are {known}")
        binary = output.parameters.binary_data
        asked[output.name] = by_default if binary is None else binary
    return asked


def reply(head: RequestHead, outputs: Mapping[str, bool], answer: Mapping[str, Any]) -> Response:
    """`answer`: as `PredictionsBody` documents it."""
    tails: list[bytes] = []
    described = []
    for name, binary in outputs.items():
        tensor = _tensor(name, answer["predictions"])
        if binary:
            tails.append(_binary(tensor["datatype"], tensor.pop("data")))
            tensor["parameters"] = {"binary_data_size": len(tails[-1])}
        described.append(tensor)
    body = {"model_name": answer["model"], "model_version": str(answer["version"])}
    if head.id is not None:
        body["id"] = head.id
    text = to_json({**body, "outputs": described})
    if not tails:
        return Response(text, media_type="application/json")
    return Response(
        b"".join([text, *tails]), headers={HEAD_LENGTH: str(len(text))}, media_type="application/octet-stream"
    )


def _tensor(name: str, predictions: Sequence[Body]) -> dict[str, Any]:
    """With its elements in one list, row by row."""
    if name in _OUTPUTS:
        output, shape = _OUTPUTS[name], [len(predictions)]
        data = [output.value(body) for body in predictions]
    else:
        output, shape = _TOP_OUTPUTS[name], [len(predictions), len(predictions[0]["top"])]
        data = [output.value(candidate) for body in predictions for candidate in body["top"]]
    return {"name": name, "datatype": output.datatype, "shape": shape, "data": data}


def _binary(datatype: Datatype, data: Sequence[Any]) -> bytes:
    if datatype == "BYTES":
        texts = [text.encode() for text in data]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    form = {"INT64": "q", "FP32": "f", "BOOL": "?"}[datatype]
    return struct.pack(f"<{len(data)}{form}", *data)
