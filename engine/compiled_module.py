"""Runs a frozen network as fast as the device allows.

On a CPU that is OpenVINO, which is four to five times as fast as eager torch on the default backbone; on CUDA it is
torch in channels-last order. The weights are taken as they are at the time of the call: compile again after training.
"""

import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from core.errors import WeightsMismatch
from engine.avx2_kernels import read_graph, reread, write_graph
from engine.cores import usable_cores

Engine = Literal["auto", "openvino", "torch"]
CompiledModule = Callable[[Tensor], Tensor]


def compiled(
    module: nn.Module, example: Tensor, *, device: torch.device, engine: Engine = "auto", heavy: bool = True
) -> CompiledModule:
    """A function that computes `module` for any batch size, without gradients, answering on the CPU.

    For what is kept as long as the process lives: torch holds on to what it has traced, weights and all. What comes and
    goes is bound to a blueprint. Heavy: see there.
    """
    if chosen(engine, device) == "torch":
        return _torch_forward(module, device)
    import openvino

    graph = reread(openvino.convert_model(module.eval(), example_input=example))
    graph.reshape([1, *example.shape[1:]])
    return _on_cores(graph, heavy=heavy)


class GraphTemplate(Protocol):
    """What a module computes, apart from its weights: made once, then bound to any weights in an instant.

    A service gets new weights with every version and has to serve them within a second; conversion alone takes two.
    """

    def bound(self, weights: Mapping[str, Tensor], *, heavy: bool) -> CompiledModule:
        """As `compiled`, with these weights by their names in the module; nothing else of them is kept.

        Heavy: one picture alone is worth all cores, which takes compiling twice and holding the weights twice.
        """


class TorchTemplate:
    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self.module = module
        self.device = device

    def bound(self, weights: Mapping[str, Tensor], *, heavy: bool) -> CompiledModule:
        del heavy  # torch shares the cores out anew in each call
        _require_fitting(weights, {name: tuple(weight.shape) for name, weight in self.module.state_dict().items()})
        copy = deepcopy(self.module)
        copy.load_state_dict(weights)
        return _torch_forward(copy, self.device)


class OpenVinoTemplate:
    """For OpenVINO: a graph whose weights are inputs, until constants take their places."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    @classmethod
    def of(cls, module: nn.Module, example: Tensor) -> "OpenVinoTemplate":
        return cls(reread(_exported(module.eval(), example)))

    @classmethod
    def read(cls, file: Path) -> "OpenVinoTemplate":
        return cls(read_graph(file))

    def write(self, file: Path) -> None:
        """As `file`, which ends in .xml, and a .bin beside it."""
        write_graph(self._graph, file)

    def bound(self, weights: Mapping[str, Tensor], *, heavy: bool) -> CompiledModule:
        from openvino import opset13

        graph = self._graph.clone()
        places = {place.get_friendly_name(): place for place in graph.get_parameters()}
        del places[_BATCH]
        _require_fitting(weights, {name: tuple(place.get_shape()) for name, place in places.items()})
        for name, place in places.items():
            place.output(0).replace(opset13.constant(weights[name].detach().numpy()).output(0))
            graph.remove_parameter(place)
        graph.reshape([1, *graph.input(0).partial_shape[1:]])
        return _on_cores(graph, heavy=heavy)


def _require_fitting(weights: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    given = {name: tuple(weight.shape) for name, weight in weights.items()}
    strange = [name for name in {**given, **shapes} if given.get(name) != shapes.get(name)]
    if strange:
        raise WeightsMismatch(f"these weights are of another network: {strange[0]} is missing or of another shape")


def chosen(engine: Engine, device: torch.device) -> Engine:
    if engine == "auto":
        return "openvino" if device.type == "cpu" else "torch"
    return engine


def _torch_forward(module: nn.Module, device: torch.device) -> CompiledModule:
    frozen = deepcopy(module).to(device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    half = device.type == "cuda"  # whose tensor cores are made for it

    @torch.no_grad()
    def forward(batch: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.float16, enabled=half):
            result: Tensor = frozen(batch.to(device))
        return result.float().cpu()

    return forward


def _on_cores(graph: Any, *, heavy: bool) -> CompiledModule:
    """On OpenVINO, one picture at a time: a batch in one call would be slower by a fifth.

    What early layers make of eight pictures fits into no cache, and where the size of a batch may vary, each call
    begins with working out the shapes.
    """
    cores = usable_cores()
    side_by_side = _SideBySide(graph)
    if not heavy or cores == 1:
        return side_by_side
    return _Hurried(Requests(graph, {"NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": cores}), side_by_side)


class _Hurried:
    """A picture alone has all cores, of several each has one."""

    def __init__(self, on_all: CompiledModule, on_one_core: CompiledModule) -> None:
        self._on_all = on_all
        self.on_one_core = on_one_core

    def __call__(self, batch: Tensor) -> Tensor:
        return self._on_all(batch) if len(batch) == 1 else self.on_one_core(batch)


class _SideBySide:
    """A graph for one picture, computed for many: each core takes the next as soon as it is free.

    Several are given out ahead, so that no core waits for Python.
    """

    def __init__(self, graph: Any) -> None:
        self._network = _on_cpu(graph, one_core_each())
        self._shape = tuple(self._network.output(0).shape)[1:]
        self._ahead = 2 * usable_cores()
        self._own = threading.local()

    def __call__(self, batch: Tensor) -> Tensor:
        pictures = np.ascontiguousarray(batch.numpy())
        results = np.empty((len(pictures), *self._shape), np.float32)
        requests = self._requests(len(pictures))
        with ExitStack() as ending:  # whatever fails, none may write on after the results are gone
            for request in requests:
                ending.callback(request.wait)
            for place in range(len(pictures)):
                request = requests[place % len(requests)]
                request.wait()
                request.set_input_tensor(0, _lent(pictures[place : place + 1]))
                request.set_output_tensor(0, _lent(results[place : place + 1]))
                request.start_async()
        return torch.from_numpy(results)

    def _requests(self, pictures: int) -> list[Any]:
        """This thread's, for one that is busy refuses a second caller; no more than it has had use for."""
        found: list[Any] = self._own.__dict__.setdefault("requests", [])
        while len(found) < min(pictures, self._ahead):
            found.append(self._network.create_infer_request())
        return found


def one_core_each() -> dict[str, int]:
    """Settings for callers side by side."""
    return {"NUM_STREAMS": usable_cores(), "INFERENCE_NUM_THREADS": usable_cores()}


class Requests:
    """A compiled graph with a request for each thread that asks.

    A request refuses a second caller while it is busy, and making one allocates its buffers.
    """

    def __init__(self, graph: Any, settings: Mapping[str, int]) -> None:
        self._network = _on_cpu(graph, settings)
        self._own = threading.local()

    def __call__(self, *inputs: Tensor) -> Tensor:
        request = getattr(self._own, "request", None)
        if request is None:
            request = self._own.request = self._network.create_infer_request()
        # Set one by one: handed to `infer`, they would be held on to until the thread asks again, if it ever does.
        given = [_lent(np.ascontiguousarray(tensor.numpy())) for tensor in inputs]
        for place, tensor in enumerate(given):
            request.set_input_tensor(place, tensor)
        result = torch.from_numpy(request.infer(share_outputs=True)[0])
        return result.clone()  # the next call of the same thread writes to the same place


def _on_cpu(graph: Any, settings: Mapping[str, int]) -> Any:
    import openvino

    return openvino.compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32", **settings})


def _lent(array: "np.ndarray[Any, Any]") -> Any:
    """The array as OpenVINO takes it, where it lies."""
    import openvino

    return openvino.Tensor(array, shared_memory=True)


def on_one_core(forward: CompiledModule) -> CompiledModule:
    """The same function for a caller beside others, who have the other cores; where there is no such, itself."""
    found: CompiledModule = getattr(forward, "on_one_core", forward)
    return found


def warmed(forward: CompiledModule, example: Tensor) -> Tensor:
    """The first call is slow, on all cores and on one: it must not be a caller's."""
    results = [one(example) for one in {forward, on_one_core(forward)}]
    return results[0]


_BATCH = "batch"


class _Bare(nn.Module):
    """A module whose weights are inputs like any other."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.names = list(module.state_dict())
        self._module = [module]  # in a list, where torch does not look for weights

    def forward(self, batch: Tensor, *weights: Tensor) -> Tensor:
        named = dict(zip(self.names, weights, strict=True))
        result: Tensor = torch.func.functional_call(self._module[0], named, (batch,))
        return result


@torch.no_grad()
def _exported(module: nn.Module, example: Tensor) -> Any:
    import openvino

    weights = tuple(module.state_dict().values())
    two = torch.cat([example, example])  # of a batch of one it would be taken for granted that there is one
    shapes = ({0: torch.export.Dim("batch")}, (None,) * len(weights))
    bare = _Bare(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own parts
        program = torch.export.export(bare, (two, *weights), dynamic_shapes=shapes, strict=False)
        graph = openvino.convert_model(program)
    places = graph.get_parameters()
    for place, name in zip(places, [_BATCH, *bare.names], strict=True):
        place.set_friendly_name(name)
    sizes = [[-1, *example.shape[1:]], *(list(weight.shape) for weight in weights)]
    graph.reshape({place.output(0): openvino.PartialShape(size) for place, size in zip(places, sizes, strict=True)})
    return graph
