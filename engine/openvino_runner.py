"""Runs OpenVINO graphs on the CPU, one image per call.

A batch in one call would be slower by a fifth: what the early layers make of eight images fits into no cache, and a
graph whose batch size may vary works out its shapes in every call.
"""

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.compiled_module import CompiledModule
from engine.cores import usable_cores


def run_on_cores(graph: Any, *, latency: bool, cores: int | None = None) -> CompiledModule:
    """Compile a graph for one image.

    `latency`: compile it a second time, so that an image that is alone is computed by all cores. That takes twice the
    time and memory, and is worth it for the trunk only.
    """
    cores = cores or usable_cores()
    throughput = ThroughputRunner(graph, cores)
    return LatencyRunner(graph, throughput, cores) if latency and cores > 1 else throughput


class LatencyRunner:
    """An image that is alone gets all cores; several images get one core each."""

    def __init__(self, graph: Any, throughput: "ThroughputRunner", cores: int) -> None:
        self.throughput = throughput
        self._on_all_cores = GraphRunner(graph, cores)

    def __call__(self, batch: Tensor) -> Tensor:
        return self._on_all_cores(batch) if len(batch) == 1 else self.throughput(batch)


class ThroughputRunner:
    """A graph for one image, computed for many: each core takes the next image as soon as it is free.

    Several images are started ahead, so that no core waits for Python.
    """

    def __init__(self, graph: Any, cores: int) -> None:
        self._compiled = _compile(graph, {"NUM_STREAMS": cores, "INFERENCE_NUM_THREADS": cores})
        self._shape = tuple(self._compiled.output(0).shape)[1:]
        self._ahead = 2 * cores
        self._of_thread = threading.local()

    def __call__(self, batch: Tensor) -> Tensor:
        images = np.ascontiguousarray(batch.numpy())
        results = np.empty((len(images), *self._shape), np.float32)
        requests = self._requests(len(images))
        with ExitStack() as stack:  # on any error, no request may go on writing to the results
            for request in requests:
                stack.callback(request.wait)
            for place in range(len(images)):
                request = requests[place % len(requests)]
                request.wait()
                request.set_input_tensor(0, _shared(images[place : place + 1]))
                request.set_output_tensor(0, _shared(results[place : place + 1]))
                request.start_async()
        return torch.from_numpy(results)

    def _requests(self, images: int) -> list[Any]:
        """The requests of this thread: one that is busy refuses a second caller."""
        requests: list[Any] = self._of_thread.__dict__.setdefault("requests", [])
        while len(requests) < min(images, self._ahead):
            requests.append(self._compiled.create_infer_request())
        return requests


class GraphRunner:
    """A graph of any inputs, each call computed by all cores.

    Each calling thread has a request of its own: one that is busy refuses a second caller, and making one allocates
    its buffers.
    """

    def __init__(self, graph: Any, cores: int) -> None:
        self._compiled = _compile(graph, {"NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": cores})
        self._of_thread = threading.local()

    def __call__(self, *inputs: Tensor) -> Tensor:
        request = getattr(self._of_thread, "request", None)
        if request is None:
            request = self._of_thread.request = self._compiled.create_infer_request()
        # Set one by one: `infer` would keep what it is given until the thread's next call, which may never come.
        shared = [_shared(np.ascontiguousarray(tensor.numpy())) for tensor in inputs]  # must outlive the inference
        for place, tensor in enumerate(shared):
            request.set_input_tensor(place, tensor)
        result = torch.from_numpy(request.infer(share_outputs=True)[0])
        return result.clone()  # the next call of this thread writes to the same memory


def _compile(graph: Any, settings: Mapping[str, int]) -> Any:
    import openvino

    return openvino.compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32", **settings})


def _shared(array: "np.ndarray[Any, Any]") -> Any:
    """The array as an OpenVINO tensor, without a copy."""
    import openvino

    return openvino.Tensor(array, shared_memory=True)
