"""LitServe in its usual configuration for a CPU: its batching on, one worker that uses all cores.

`python -m bench.peers.litserve_server PORT BACKBONE PROTOTYPES`.
"""

import sys
from pathlib import Path
from typing import Any

import litserve
import torch
from fastapi import Request
from torch import Tensor

from bench.peers.torch_classifier import Classifier

BATCH = 8  # on a CPU a larger batch is not faster per image, and each image waits longer
SECONDS_TO_FILL = 0.005  # a small part of the time that a batch takes to compute


class Api(litserve.LitAPI):  # type: ignore[misc]  # it carries no annotations
    def __init__(self, backbone: str, prototypes: str, **batching: Any) -> None:
        super().__init__(**batching)
        self.backbone = backbone
        self.prototypes = prototypes

    def setup(self, device: str) -> None:
        del device
        self.classifier = Classifier(self.backbone, Path(self.prototypes))

    def decode_request(self, request: Request, **_: Any) -> Tensor:
        form: Any = request  # declared as a request, so LitServe reads the form and passes its content
        return self.classifier.input_of(form["image"].file.read())

    def batch(self, inputs: list[Tensor]) -> Tensor:
        return torch.stack(inputs)

    def predict(self, batch: Tensor, **_: Any) -> list[int]:
        return self.classifier.classes(batch)

    def unbatch(self, output: list[int]) -> list[int]:
        return output

    def encode_response(self, output: int, **_: Any) -> dict[str, int]:
        return {"class_id": output}


if __name__ == "__main__":
    port, backbone, prototypes = sys.argv[1:]
    api = Api(backbone, prototypes, max_batch_size=BATCH, batch_timeout=SECONDS_TO_FILL)
    # A second worker would halve the cores of each.
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(port), generate_client_file=False, log_level="warning")
