"""OpenVINO's graphs as files, and the kernels that they ask for.

Which kernel computes a layer is OpenVINO's choice, and a good one on most processors. On those with AVX2 and nothing
newer it takes general ones, written for the batched products of larger machines; those written for AVX2 alone keep
pictures in blocks of eight channels, and compute the trunk of EfficientNet-Lite0 in four fifths of the time.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

_FOR_AVX2 = {"Convolution": "cpu:jit_avx2_1x1,cpu:jit_avx2", "GroupConvolution": "cpu:jit_avx2_dw"}

_PIXELS = "u8"
_PRIORITY = "primitives_priority"


def write_graph(graph: Any, file: Path) -> None:
    """As `file`, which ends in .xml, and a .bin beside it."""
    import openvino

    openvino.save_model(graph, file, compress_to_fp16=False)


def read_graph(file: Path) -> Any:
    """What was written, asking for the kernels that are best on this machine's processor."""
    import openvino

    description = _asking_for(preferred_kernels(), file.read_bytes())
    return openvino.Core().read_model(description, file.with_suffix(".bin").read_bytes())


def reread(graph: Any) -> Any:
    """The graph as reading it from a file would give it: only there can kernels be asked for."""
    with tempfile.TemporaryDirectory(prefix="protoquad-") as folder:
        file = Path(folder) / "graph.xml"
        write_graph(graph, file)
        return read_graph(file)


def preferred_kernels() -> Mapping[str, str]:
    """By the type of a layer; others are left to OpenVINO."""
    return _FOR_AVX2 if torch.backends.cpu.get_cpu_capability() == "AVX2" else {}


def _asking_for(kernels: Mapping[str, str], description: bytes) -> bytes:
    """Whatever it asked for where it was written."""
    graph = ElementTree.fromstring(description)
    gains = _gains(graph)
    for layer in graph.iterfind("layers/layer"):
        _forget(layer)
        kernel = kernels.get(layer.get("type", "")) if gains else None
        if kernel is not None:
            ElementTree.SubElement(_about(layer), "attribute", name=_PRIORITY, version="0", value=kernel)
    return ElementTree.tostring(graph)


def _about(layer: ElementTree.Element) -> ElementTree.Element:
    found = layer.find("rt_info")
    if found is None:
        found = ElementTree.Element("rt_info")
        layer.insert(1, found)  # after the layer's own data
    return found


def _forget(layer: ElementTree.Element) -> None:
    for about in layer.iterfind("rt_info"):
        for past in about.findall(f"attribute[@name='{_PRIORITY}']"):
            about.remove(past)


def _gains(graph: ElementTree.Element) -> bool:
    """A network of depthwise convolutions that begins with pictures.

    Activations come unblocked, and for those there are only slow kernels; a ResNet loses a twentieth.
    """
    inputs = graph.iterfind("layers/layer[@type='Parameter']/data")
    depthwise = graph.find("layers/layer[@type='GroupConvolution']")
    return depthwise is not None and any(data.get("element_type") == _PIXELS for data in inputs)
