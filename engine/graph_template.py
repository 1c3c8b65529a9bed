"""What a module computes, without its weights: made once, then bound to the weights of each version.

Replicas serve a new version within a second. Converting a module for OpenVINO takes two, and torch keeps every module
that it has traced in memory; binding weights to a template takes a tenth of a second and leaves nothing behind.
"""

import tempfile
import warnings
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from core.errors import WeightsMismatch
from engine.avx2_kernels import prefer_avx2_kernels
from engine.compiled_module import CompiledModule, Engine, choose_engine
from engine.openvino_runner import run_on_cores
from engine.torch_runner import TorchRunner

_BATCH = "batch"  # name of the input that is no weight


class GraphTemplate(Protocol):
    def bind(self, weights: Mapping[str, Tensor], *, latency: bool) -> CompiledModule:
        """Compile the module with these weights, given by their names in it. Raises WeightsMismatch.

        `latency`: an image that is alone is to be computed by all cores; see `run_on_cores`.
        """


def compile_module(
    module: nn.Module, example: Tensor, *, device: torch.device, engine: Engine = "auto", latency: bool = True
) -> CompiledModule:
    """Compile a module with its present weights. `example`: a batch of one."""
    template: GraphTemplate
    if choose_engine(engine, device) == "torch":
        template = TorchTemplate(module, device)
    else:
        template = OpenVinoTemplate.of(module, example)
    return template.bind(module.state_dict(), latency=latency)


class TorchTemplate:
    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self._module = module
        self._device = device

    def bind(self, weights: Mapping[str, Tensor], *, latency: bool) -> CompiledModule:
        del latency  # torch divides every call among the cores
        _require_matching(weights, {name: tuple(weight.shape) for name, weight in self._module.state_dict().items()})
        module = deepcopy(self._module)
        module.load_state_dict(weights)
        return TorchRunner(module, self._device)


class OpenVinoTemplate:
    """A graph whose weights are inputs, until constants replace them."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    @classmethod
    def of(cls, module: nn.Module, example: Tensor) -> "OpenVinoTemplate":
        with tempfile.TemporaryDirectory(prefix="protoquad-") as folder:
            file = Path(folder) / "graph.xml"
            export_graph(module, example, file)
            return cls.read(file)

    @classmethod
    def read(cls, file: Path) -> "OpenVinoTemplate":
        """Read what `export_graph` has written, on this machine or another."""
        import openvino

        xml = prefer_avx2_kernels(file.read_bytes())
        return cls(openvino.Core().read_model(xml, file.with_suffix(".bin").read_bytes()))

    def bind(self, weights: Mapping[str, Tensor], *, latency: bool) -> CompiledModule:
        from openvino import opset13

        graph = self._graph.clone()
        inputs = {parameter.get_friendly_name(): parameter for parameter in graph.get_parameters()}
        del inputs[_BATCH]
        _require_matching(weights, {name: tuple(parameter.get_shape()) for name, parameter in inputs.items()})
        for name, parameter in inputs.items():
            parameter.output(0).replace(opset13.constant(weights[name].detach().numpy()).output(0))
            graph.remove_parameter(parameter)
        graph.reshape([1, *graph.input(0).partial_shape[1:]])
        return run_on_cores(graph, latency=latency)


def _require_matching(weights: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    given = {name: tuple(weight.shape) for name, weight in weights.items()}
    different = [name for name in {**given, **shapes} if given.get(name) != shapes.get(name)]
    if different:
        raise WeightsMismatch(
            f"the weights belong to another network: {different[0]} is missing, unknown or of another shape"
        )


class _WeightsAsInputs(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.names = list(module.state_dict())
        self._module = [module]  # in a list, where torch does not look for weights

    def forward(self, batch: Tensor, *weights: Tensor) -> Tensor:
        named = dict(zip(self.names, weights, strict=True))
        result: Tensor = torch.func.functional_call(self._module[0], named, (batch,))
        return result


@torch.no_grad()
def export_graph(module: nn.Module, example: Tensor, file: Path) -> None:
    """Write the graph of a module to `file`, whose name ends in .xml, and a .bin beside it."""
    import openvino

    module.eval()
    weights = tuple(module.state_dict().values())
    batch = torch.cat([example, example])  # torch would take a batch size of one for a constant
    images = {0: torch.export.Dim("batch")}
    shapes = (images, (None,) * len(weights)) if weights else (images,)  # of a trunk that only normalises
    bare = _WeightsAsInputs(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own modules
        program = torch.export.export(bare, (batch, *weights), dynamic_shapes=shapes, strict=False)
        graph = openvino.convert_model(program)
    inputs = graph.get_parameters()
    for parameter, name in zip(inputs, [_BATCH, *bare.names], strict=True):
        parameter.set_friendly_name(name)
    sizes = [[-1, *example.shape[1:]], *(list(weight.shape) for weight in weights)]
    graph.reshape({one.output(0): openvino.PartialShape(size) for one, size in zip(inputs, sizes, strict=True)})
    openvino.save_model(graph, file, compress_to_fp16=False)
