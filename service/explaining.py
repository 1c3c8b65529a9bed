"""Why an answer was given: the stored shots that are nearest to the image, among those of the nearest classes."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from anyio.to_thread import run_sync

from core.classifier import Prediction
from engine.seen_features import SeenPrediction
from learners.version_loader import LoadedVersion
from service.app_context import AppContext
from service.stored_features import StoredRef
from store import images

CLASSES = 3  # nearest ones whose shots are looked at
SHOTS = 200  # that are looked at for one request
NEIGHBOURS = 6
DIGITS = 6


async def neighbours(
    context: AppContext, version: LoadedVersion, predictions: Sequence[Prediction]
) -> list[list[dict[str, Any]]]:
    """For each prediction the nearest shots, nearest first. Asks the database, unlike the prediction itself."""
    near = [{int(one.class_id) for one in prediction.top[:CLASSES]} for prediction in predictions]
    shots = await run_sync(_shots, context, version, sorted(set().union(*near)))
    refs = [StoredRef(sha256, partial(_small_form, context, shot)) for shot, _, sha256 in shots]
    features = await context.features.of(version.network, refs)
    names, space = context.versions.newest_names(version), version.classifier.space
    embeddings = space.embed(features)
    found: list[list[dict[str, Any]]] = []
    for prediction, own in zip(predictions, near, strict=True):
        if not shots or not isinstance(prediction, SeenPrediction):
            found.append([])
            continue
        (distances,) = space.distances(space.embed(prediction.feature[None]), embeddings).tolist()
        ranked = sorted((far, shot, c) for far, (shot, c, _) in zip(distances, shots, strict=True) if c in own)
        found.append(
            [
                {
                    "class_id": class_id,
                    "label": names.get(class_id) or version.name(class_id),
                    "shot_id": shot,
                    "distance": round(far, DIGITS),
                }
                for far, shot, class_id in ranked[:NEIGHBOURS]
            ]
        )
    return found


def _shots(context: AppContext, version: LoadedVersion, class_ids: list[int]) -> list[tuple[int, int, str]]:
    with context.database.read() as db:
        return images.some_of_each(db, version.model_id, class_ids, SHOTS)


def _small_form(context: AppContext, image_id: int) -> bytes:
    with context.database.read() as db:
        return images.small_form(db, image_id)
