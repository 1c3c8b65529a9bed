"""A graph reads as it was written, and asks for the kernels that are best for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import openvino
import pytest
import torch
from torch import Tensor, nn

from engine import avx2_kernels as graphs
from engine.avx2_kernels import preferred_kernels, read_graph, reread, write_graph
from engine.compiled_module import compiled

KERNELS = {"Convolution": "cpu:jit_avx2_1x1,cpu:jit_avx2", "GroupConvolution": "cpu:jit_avx2_dw"}


class OfPictures(nn.Module):
    """A convolution of pixels, one of each channel by itself (or not), and one that mixes them."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1, groups=groups), nn.Conv2d(16, 32, 1)
        )

    def forward(self, pictures: Tensor) -> Tensor:
        result: Tensor = self.layers(pictures.float() / 255)
        return result


def converted(module: nn.Module, dtype: torch.dtype = torch.uint8) -> Any:
    return openvino.convert_model(module.eval(), example_input=torch.zeros(1, 3, 32, 32, dtype=dtype))


def asked_for(graph: Any) -> set[str]:
    """The types of layers that ask for a kernel."""
    return {
        layer.get_type_name()
        for layer in graph.get_ops()
        if any(key.startswith("primitives_priority") for key in layer.get_rt_info())
    }


def kernels(graph: Any) -> set[str]:
    graph.reshape([1, 3, 32, 32])
    layers = openvino.compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).get_runtime_model().get_ops()
    return {layer.get_rt_info()["primitiveType"].astype(str) for layer in layers}


@pytest.fixture
def as_on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine whose best vector instructions are these."""

    def machine(capability: str) -> None:
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)

    return machine


@pytest.mark.parametrize(("capability", "expected"), [("AVX2", KERNELS), ("AVX512", {}), ("DEFAULT", {})])
def test_kernels_are_asked_for_where_avx2_is_the_best_there_is(
    as_on: Any, capability: str, expected: Mapping[str, str]
) -> None:
    as_on(capability)
    assert preferred_kernels() == expected


def test_a_network_of_depthwise_convolutions_asks_for_them(as_on: Any, tmp_path: Path) -> None:
    as_on("AVX2")
    write_graph(converted(OfPictures(groups=16)), tmp_path / "graph.xml")

    assert asked_for(read_graph(tmp_path / "graph.xml")) == {"Convolution", "GroupConvolution"}


@pytest.mark.parametrize(("groups", "dtype"), [(1, torch.uint8), (16, torch.float32)])
def test_others_are_left_to_openvino(as_on: Any, groups: int, dtype: torch.dtype) -> None:
    """One without depthwise convolutions, and one that does not begin with pixels."""
    as_on("AVX2")
    assert asked_for(reread(converted(OfPictures(groups), dtype))) == set()


def test_what_was_asked_for_where_it_was_written_does_not_count(as_on: Any) -> None:
    """Machines may share a folder of prepared backbones."""
    as_on("AVX2")
    written = reread(reread(converted(OfPictures(groups=16))))
    assert asked_for(written) == {"Convolution", "GroupConvolution"}

    as_on("AVX512")
    assert asked_for(reread(written)) == set()


def test_no_kernel_is_asked_for_on_another_processor(as_on: Any) -> None:
    as_on("AVX512")
    assert asked_for(reread(converted(OfPictures(groups=16)))) == set()


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2", reason="the processor is not one with AVX2 alone"
)
def test_what_is_asked_for_is_what_computes() -> None:
    """Without this OpenVINO could have another name for it, and nobody would notice."""
    assert {"jit_avx2_1x1_f32", "jit_avx2_dw_f32"} <= kernels(reread(converted(OfPictures(groups=16))))


@pytest.mark.parametrize("preferred", [KERNELS, {}])
def test_the_answers_are_the_same_up_to_rounding(monkeypatch: pytest.MonkeyPatch, preferred: Mapping[str, str]) -> None:
    module = OfPictures(groups=16)
    pictures = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        expected = module(pictures)
    monkeypatch.setattr(graphs, "preferred_kernels", lambda: preferred)

    found = compiled(module, pictures[:1], device=torch.device("cpu"), engine="openvino")(pictures)

    assert (found - expected).abs().max() < 1e-5
