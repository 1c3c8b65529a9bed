"""Runs a frozen network as fast as the device allows.

On a CPU that is OpenVINO, which is four to five times as fast as eager torch on the default backbone; on CUDA it is
torch in channels-last order. The weights are taken as they are at the time of the call: compile again after training.
"""

import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

Engine = Literal["auto", "openvino", "torch"]
Forward = Callable[[Tensor], Tensor]


def compiled(module: nn.Module, example: Tensor, *, device: torch.device, engine: Engine = "auto") -> Forward:
    """A function that computes `module` for any batch size, without gradients, answering on the CPU.

    For what is kept as long as the process lives: torch holds on to what it has traced, weights and all. What comes and
    goes is bound to a `Blueprint`.
    """
    if _chosen(engine, device) == "torch":
        return _torch_forward(module, device)
    import openvino

    model = openvino.convert_model(module.eval(), example_input=example)
    model.reshape([-1, *example.shape[1:]])
    return _openvino_forward(model)


class Blueprint:
    """What a module computes, apart from its weights: converted once, then bound to any weights in an instant.

    A service gets new weights with every version and has to serve them within a second; conversion alone takes two.
    """

    def __init__(self, module: nn.Module, example: Tensor, *, device: torch.device, engine: Engine = "auto") -> None:
        self.device = device
        self._model = None if _chosen(engine, device) == "torch" else _exported(module.eval(), example)

    def bound(self, module: nn.Module) -> Forward:
        """As `compiled`; the module is built like the blueprint's, and nothing of it is kept but its weights."""
        if self._model is None:
            return _torch_forward(module, self.device)
        from openvino import opset13

        model = self._model.clone()
        _, *places = model.get_parameters()
        for place, weight in zip(places, module.state_dict().values(), strict=True):
            place.output(0).replace(opset13.constant(weight.numpy()).output(0))
            model.remove_parameter(place)
        return _openvino_forward(model)


def _chosen(engine: Engine, device: torch.device) -> Engine:
    if engine == "auto":
        return "openvino" if device.type == "cpu" else "torch"
    return engine


def _torch_forward(module: nn.Module, device: torch.device) -> Forward:
    frozen = deepcopy(module).to(device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]

    @torch.no_grad()
    def forward(batch: Tensor) -> Tensor:
        result: Tensor = frozen(batch.to(device))
        return result.float().cpu()

    return forward


def _openvino_forward(model: Any) -> Forward:
    import openvino

    network: Any = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def forward(batch: Tensor) -> Tensor:
        # A request of its own for every call: the network's shared one refuses a second thread while it is busy.
        output = network.create_infer_request().infer([np.ascontiguousarray(batch.numpy())])[0]
        return torch.from_numpy(output.copy())

    return forward


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own parts
        program = torch.export.export(_Bare(module), (two, *weights), dynamic_shapes=shapes, strict=False)
        return openvino.convert_model(program)
