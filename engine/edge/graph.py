"""The whole graph of a version, from the pixels of an image to the answer, written as an ONNX or an OpenVINO file."""

import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from core.backbones import Backbone
from core.classifier import NearestClassMean
from core.errors import ProtoquadError
from core.images import Framing
from engine.cores import usable_cores
from engine.edge.answering import Answering, EdgeAnswer
from engine.edge.scaling import INPUT, OPSET, VIEW, scaling_graph

Format = Literal["onnx", "openvino"]
Metadata = Mapping[str, str]
Fact = str | int | float | None
EdgeModel = Callable[["np.ndarray[Any, Any]"], EdgeAnswer]
"""From the bytes of an upright RGB image (height, width, 3)."""

OUTPUTS = EdgeAnswer._fields
RT_INFO = "protoquad"  # where OpenVINO's file has the metadata
LARGEST = 2**31 - 2**20  # bytes of an ONNX file, with room for its nodes
INSTALL = "pip install 'protoquad[edge]'"


class NoEdgePackages(ProtoquadError):
    """What writes and runs ONNX graphs is not installed."""


class TooLargeForOnnx(ProtoquadError):
    """An ONNX file cannot hold as many bytes."""


def require_packages() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise NoEdgePackages(f"an edge graph needs the package {error.name}; install it with: {INSTALL}") from None


class EdgeGraph:
    """In memory, as an ONNX model."""

    def __init__(self, backbone: Backbone, classifier: NearestClassMean) -> None:
        weights = sum(tensor.nbytes for tensor in backbone.state_dict().values()) + classifier.prototypes.nbytes
        if weights > LARGEST:
            detail = f"the graph has {weights:,} bytes of weights and prototypes; ONNX files hold {LARGEST:,}"
            raise TooLargeForOnnx(detail)
        self._model = _joined(scaling_graph(backbone.framing), _answering_graph(backbone, classifier))

    def write(self, file: Path, form: Format, metadata: Metadata) -> None:
        """One file; for OpenVINO its name ends in .xml, and there is a .bin beside it."""
        if form == "onnx":
            _save_onnx(self._model, file, metadata)
            return
        with tempfile.TemporaryDirectory(prefix="protoquad-") as folder:
            source = Path(folder) / "graph.onnx"
            _save_onnx(self._model, source, {})
            _save_openvino(source, file, metadata)


def open_edge_graph(file: Path, form: Format) -> EdgeModel:
    return _open_onnx(file) if form == "onnx" else _open_openvino(file)


@torch.no_grad()
def _answering_graph(backbone: Backbone, classifier: NearestClassMean) -> Any:
    answering = Answering(backbone, classifier).eval()
    with _hushed():
        program = torch.onnx.export(
            answering,
            (backbone.framing.blank(),),
            input_names=[VIEW],
            output_names=list(OUTPUTS),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # it is when it writes to a file itself
    return program.model_proto


@contextmanager
def _hushed() -> Iterator[None]:
    """Without what exporters say about each node that they simplify."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its own modules
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _joined(scaling: Any, answering: Any) -> Any:
    from onnx import compose

    answering.ir_version = scaling.ir_version
    model = compose.merge_models(scaling, answering, io_map=[(VIEW, VIEW)], name="protoquad")
    del model.opset_import[1:]  # both have the same
    # Torch notes from which line of which file each node comes; that is nobody's concern, and paths may be private.
    graph = model.graph
    for part in (graph, *graph.node, *graph.initializer, *graph.value_info, *graph.input, *graph.output):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    return model


def _save_onnx(model: Any, file: Path, metadata: Metadata) -> None:
    import onnx

    onnx.helper.set_model_props(model, dict(metadata))
    model.producer_name = "protoquad"
    onnx.checker.check_model(model)
    file.write_bytes(model.SerializeToString())


def _save_openvino(source: Path, file: Path, metadata: Metadata) -> None:
    import openvino

    graph = openvino.Core().read_model(source)
    for name, value in metadata.items():
        graph.set_rt_info(value, [RT_INFO, name])
    openvino.save_model(graph, file, compress_to_fp16=False)


def _open_onnx(file: Path) -> EdgeModel:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda pixels: _answer(session.run(list(OUTPUTS), {INPUT: pixels[None]}))


def _open_openvino(file: Path) -> EdgeModel:
    import openvino

    compiled = openvino.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda pixels: _answer([compiled(pixels[None])[name] for name in OUTPUTS])


def _answer(arrays: list["np.ndarray[Any, Any]"]) -> EdgeAnswer:
    return EdgeAnswer(*(torch.from_numpy(np.array(array)) for array in arrays))


def metadata_of(labels: list[str], class_ids: list[int], framing: Framing, facts: Mapping[str, Fact]) -> Metadata:
    """As text: every value is JSON."""
    values = {"labels": labels, "class_ids": class_ids, "short_side": framing.short_side, **facts}
    return {name: json.dumps(value) for name, value in values.items()}
