"""Runs a module on torch, in half precision where CUDA's tensor cores are made for it."""

from copy import deepcopy

import torch
from torch import Tensor, nn


class TorchRunner:
    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self._module = deepcopy(module).to(device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
        self._device = device

    @torch.no_grad()
    def __call__(self, batch: Tensor) -> Tensor:
        with torch.autocast(self._device.type, torch.float16, enabled=self._device.type == "cuda"):
            result: Tensor = self._module(batch.to(self._device))
        return result.float().cpu()
