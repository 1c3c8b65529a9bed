"""Faster OpenVINO kernels for processors with AVX2 and nothing newer.

There OpenVINO takes general kernels, written for the batched products of larger machines. Those written for AVX2 are
faster: the trunk of EfficientNet-Lite0 takes 11.9 instead of 14.2 core-milliseconds. A kernel can be asked for only in
the XML of a graph.
"""

from xml.etree import ElementTree

import torch

_KERNELS = {"Convolution": "cpu:jit_avx2_1x1,cpu:jit_avx2", "GroupConvolution": "cpu:jit_avx2_dw"}  # by type of layer


def prefer_avx2_kernels(xml: bytes) -> bytes:
    """The XML of a graph, with kernels for AVX2 where they are faster."""
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        return xml
    graph = ElementTree.fromstring(xml)
    if not _is_faster_with(graph):
        return xml
    for layer in graph.iterfind("layers/layer"):
        kernels = _KERNELS.get(layer.get("type", ""))
        if kernels is not None:
            attributes = _runtime_attributes(layer)
            ElementTree.SubElement(attributes, "attribute", name="primitives_priority", version="0", value=kernels)
    return ElementTree.tostring(graph)


def _is_faster_with(graph: ElementTree.Element) -> bool:
    """True of a network with depthwise convolutions whose input is images.

    The kernels take blocks of eight channels. Activations come unblocked, and a ResNet loses a twentieth.
    """
    inputs = graph.iterfind("layers/layer[@type='Parameter']/data")
    depthwise = graph.find("layers/layer[@type='GroupConvolution']")
    return depthwise is not None and any(data.get("element_type") == "u8" for data in inputs)


def _runtime_attributes(layer: ElementTree.Element) -> ElementTree.Element:
    found = layer.find("rt_info")
    if found is None:
        found = ElementTree.Element("rt_info")
        layer.insert(1, found)  # after the layer's own data
    return found
