"""A graph asks for the kernels that are fastest for it on this processor."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import openvino
import pytest
import torch
from torch import Tensor, nn

from engine.graph_template import OpenVinoTemplate, compile_module, export_graph

Processor = Callable[[str], None]


class Convolutions(nn.Module):
    """A convolution of pixels, one of each channel by itself (or not), and one that mixes them."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1, groups=groups), nn.Conv2d(16, 32, 1)
        )

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.layers(images.float() / 255)
        return result


def template(groups: int, dtype: torch.dtype = torch.uint8) -> OpenVinoTemplate:
    return OpenVinoTemplate.of(Convolutions(groups), torch.zeros(1, 3, 32, 32, dtype=dtype))


def asking(graph: Any) -> set[str]:
    """The types of layers that ask for a kernel."""
    return {
        layer.get_type_name()
        for layer in graph.get_ops()
        if any(key.startswith("primitives_priority") for key in layer.get_rt_info())
    }


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Processor:
    """A machine whose best vector instructions are these."""

    def machine(capability: str) -> None:
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)

    return machine


def test_a_network_of_depthwise_convolutions_asks_for_them(processor: Processor) -> None:
    """Where AVX2 is the best that there is."""
    processor("AVX2")

    assert asking(template(groups=16)._graph) == {"Convolution", "GroupConvolution"}


@pytest.mark.parametrize("capability", ["AVX512", "DEFAULT"])
def test_other_processors_are_left_to_openvino(processor: Processor, capability: str) -> None:
    processor(capability)

    assert asking(template(groups=16)._graph) == set()


@pytest.mark.parametrize(("groups", "dtype"), [(1, torch.uint8), (16, torch.float32)])
def test_other_networks_are_left_to_openvino(processor: Processor, groups: int, dtype: torch.dtype) -> None:
    """One without depthwise convolutions, and one whose input is not pixels."""
    processor("AVX2")

    assert asking(template(groups, dtype)._graph) == set()


def test_a_file_asks_for_nothing(processor: Processor, tmp_path: Path) -> None:
    """Machines with different processors may share a folder of prepared backbones."""
    file = tmp_path / "graph.xml"
    processor("AVX2")
    export_graph(Convolutions(groups=16), torch.zeros(1, 3, 32, 32, dtype=torch.uint8), file)

    processor("AVX512")

    assert asking(OpenVinoTemplate.read(file)._graph) == set()


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2", reason="the processor is not one with AVX2 alone"
)
def test_the_kernels_that_are_asked_for_are_used() -> None:
    """Without this OpenVINO could have another name for them, and nobody would notice."""
    graph = template(groups=16)._graph
    graph.reshape({"batch": [1, 3, 32, 32]})
    layers = openvino.compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).get_runtime_model().get_ops()

    used = {layer.get_rt_info()["primitiveType"].astype(str) for layer in layers}

    assert {"jit_avx2_1x1_f32", "jit_avx2_dw_f32"} <= used


@pytest.mark.parametrize("capability", ["AVX2", "AVX512"])
def test_the_answers_are_the_same_up_to_rounding(processor: Processor, capability: str) -> None:
    module = Convolutions(groups=16)
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        expected = module(images)
    processor(capability)

    found = compile_module(module, images[:1], device=torch.device("cpu"), engine="openvino")(images)

    assert (found - expected).abs().max() < 1e-5
