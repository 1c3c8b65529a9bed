"""Plain FastAPI and torch without batching: the first thing that everybody writes.

`python -m bench.peers.plain_server PORT BACKBONE PROTOTYPES`. The route is a plain function, so FastAPI runs requests
in threads side by side; each classifies its own picture.
"""

import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI, UploadFile

from bench.peers.classifier import Classifier


def create_app(classifier: Classifier) -> FastAPI:
    app = FastAPI()

    @app.post("/predict")
    def predict(image: UploadFile) -> dict[str, int]:
        picture = classifier.picture(image.file.read())
        return {"class_id": classifier.classes(picture[None])[0]}

    return app


if __name__ == "__main__":
    port, backbone, prototypes = sys.argv[1:]
    uvicorn.run(create_app(Classifier(backbone, Path(prototypes))), port=int(port), log_level="warning")
