"""An edge graph answers as the classifier on the network does, whatever the network, the space and the runtime."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import openvino
import pytest
import torch
from PIL import Image
from torch import nn

from core.backbones import build, join
from core.backbones.backbone import IMAGENET, Backbone, Normalise
from core.bank import ClassId, PrototypeBank
from core.classifier import Certainty, NearestClassMean, Prediction
from core.images import Framing, centre_view
from core.space import METRICS, Metric, Space, Whitening
from engine.edge import graph as edge
from engine.edge.answering import Answering, EdgeAnswer
from engine.edge.graph import EdgeGraph, Format, metadata_of, open_edge_graph

CLASSES = 7
LABELS = ["mug", 'a "quoted" <name> & more', "naïve 🦉", *(f"class {number}" for number in range(4))]
BACKBONE = (
    "timm:test_convnext+timm:test_vit"  # both kinds of network, and the framing of a pair: an export takes seconds
)
FORMS: tuple[Format, ...] = ("onnx", "openvino")
ENDINGS = {"onnx": "graph.onnx", "openvino": "graph.xml"}


def classifier_of(backbone: Backbone, metric: Metric, *, fitted: bool) -> NearestClassMean:
    """Prototypes from random images; each class with a number of shots and a leeway of its own."""
    side, generator = backbone.framing.size, torch.Generator().manual_seed(2)
    images = torch.randint(0, 256, (CLASSES, 3, side, side), dtype=torch.uint8, generator=generator)
    ids = [ClassId(3 + 2 * number) for number in range(CLASSES)]
    space = Space(metric)
    with torch.no_grad():
        features = backbone(images)
        if fitted:
            projection = torch.eye(backbone.dim) + 0.1 * torch.randn(backbone.dim, backbone.dim, generator=generator)
            whitening = Whitening(space.embed(features).mean(0), projection)
            space = Space(metric, whitening, allowance=0.4, by_class=True)
        prototypes = space.embed(features)
    bank = PrototypeBank.empty(backbone.dim).with_classes(ids, prototypes, shots=range(1, CLASSES + 1))
    held_out = {class_id: torch.rand(4, generator=generator) for class_id in ids}
    return NearestClassMean(space, bank, Certainty(0.07, 0.65), held_out)


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    """A pair with two framings, of a small ConvNeXt and a network as small as one can be: an export takes seconds."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        trunk = nn.Sequential(Normalise(IMAGENET), nn.Conv2d(3, 8, 5, stride=3), nn.GELU())
        tail = nn.Sequential(nn.Conv2d(8, 16, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        tiny = Backbone("tiny", Framing(24), 16, trunk, tail, pretrained=False)
        return join(tiny, build("timm:test_convnext"))


@pytest.fixture(scope="module")
def classifier(backbone: Backbone) -> NearestClassMean:
    """In a space as sessions fit it."""
    return classifier_of(backbone, "whitened", fitted=True)


@pytest.fixture(scope="module")
def folder(backbone: Backbone, classifier: NearestClassMean, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph in both forms."""
    found: Path = tmp_path_factory.mktemp("edge")
    graph = EdgeGraph(backbone, classifier)
    metadata = metadata_of(LABELS, [int(one) for one in classifier.class_ids], backbone.framing, {"version": 3})
    for form in FORMS:
        graph.write(found / ENDINGS[form], form, metadata)
    return found


def images() -> list[Image.Image]:
    generator = np.random.default_rng(3)
    sizes = [(40, 40), (333, 160), (161, 340), (7, 5)]
    return [Image.fromarray(generator.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]


def require_same(found: EdgeAnswer, expected: Prediction, classifier: NearestClassMean) -> None:
    ids = [classifier.class_ids[place] for place in found.top[0].tolist()]
    assert ids == [candidate.class_id for candidate in expected.top]
    assert found.distances[0].tolist() == pytest.approx([one.distance for one in expected.top], abs=1e-3)
    assert found.confidences[0].tolist() == pytest.approx([one.confidence for one in expected.top], abs=5e-3)
    assert found.limit.tolist() == pytest.approx([expected.limit], abs=1e-6)
    assert found.unknown.tolist() == [expected.unknown]


@torch.no_grad()
@pytest.mark.parametrize("form", FORMS)
def test_it_answers_as_the_classifier_does(
    folder: Path, backbone: Backbone, classifier: NearestClassMean, form: Format
) -> None:
    """Nearest classes in order, their distances and confidences, the limit and what is beyond it."""
    model = open_edge_graph(folder / ENDINGS[form], form)

    answers = []
    for image in images():
        features = backbone(centre_view(image, backbone.framing)[None])
        (expected,) = classifier.predict(features, top_k=CLASSES)
        found = model(np.asarray(image))

        require_same(found, expected, classifier)
        assert torch.allclose(found.all_distances, classifier.distances(features), atol=1e-3)
        answers.append((int(found.top[0, 0]), bool(found.unknown)))
    assert len({unknown for _, unknown in answers}) == 2, answers


@torch.no_grad()
@pytest.mark.parametrize("metric", METRICS)
def test_every_space_answers_as_the_classifier_does(backbone: Backbone, metric: Metric) -> None:
    """Before it is exported."""
    classifier = classifier_of(backbone, metric, fitted=False)
    view = centre_view(images()[0], backbone.framing)[None]

    found = Answering(backbone, classifier)(view)

    (expected,) = classifier.predict(backbone(view), top_k=CLASSES)
    require_same(found, expected, classifier)


@torch.no_grad()
def test_what_is_not_a_number_is_unknown(backbone: Backbone) -> None:
    """As in the service."""
    classifier = classifier_of(backbone, "whitened", fitted=False)
    classifier.prototypes.fill_(float("nan"))

    found = Answering(backbone, classifier)(backbone.framing.blank())

    assert found.unknown.tolist() == [True]


@pytest.mark.parametrize("form", FORMS)
def test_it_carries_its_labels(folder: Path, classifier: NearestClassMean, form: Format) -> None:
    """As JSON, where each runtime has a place for it, whatever characters a name has."""
    file = folder / ENDINGS[form]
    if form == "onnx":
        found = onnxruntime.InferenceSession(file).get_modelmeta().custom_metadata_map
    else:
        found = openvino.Core().read_model(file).get_rt_info(["protoquad"]).value

    read = {name: json.loads(text) for name, text in found.items()}
    assert read["labels"] == LABELS
    assert read["class_ids"] == [int(one) for one in classifier.class_ids]
    assert read["version"] == 3


def test_it_says_nothing_of_the_machine_that_made_it(folder: Path) -> None:
    """Exporters note the source file of each node."""
    content = b"".join(file.read_bytes() for file in folder.iterdir())

    assert b".py" not in content
    assert b"site-packages" not in content


def test_a_graph_that_no_file_can_hold_is_refused(
    backbone: Backbone, classifier: NearestClassMean, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is made; an ONNX file has at most two gigabytes."""
    monkeypatch.setattr(edge, "LARGEST", 1000)

    with pytest.raises(edge.TooLargeForOnnx, match="bytes of weights and prototypes"):
        EdgeGraph(backbone, classifier)
