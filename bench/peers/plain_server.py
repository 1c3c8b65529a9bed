"""Plain FastAPI and torch without batching: the obvious first version of such a service.

`python -m bench.peers.plain_server PORT BACKBONE PROTOTYPES`. The route is a plain function, so FastAPI runs requests
in parallel threads; each classifies its own image.
"""

import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI, UploadFile

from bench.peers.torch_classifier import Classifier


def create_app(classifier: Classifier) -> FastAPI:
    app = FastAPI()

    @app.post("/predict")
    def predict(image: UploadFile) -> dict[str, int]:
        inputs = classifier.input_of(image.file.read())
        return {"class_id": classifier.classes(inputs[None])[0]}

    return app


if __name__ == "__main__":
    port, backbone, prototypes = sys.argv[1:]
    uvicorn.run(create_app(Classifier(backbone, Path(prototypes))), port=int(port), log_level="warning")
