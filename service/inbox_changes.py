"""What would change in the inbox if another version answered."""

from functools import partial
from typing import Any

from anyio.to_thread import run_sync

from core.classifier import Prediction
from learners.blobs import from_blob
from learners.version_loader import LoadedVersion
from service.app_context import AppContext
from service.stored_features import StoredRef
from store import samples
from store.errors import Conflict
from store.models import ModelId
from store.samples import SampleFacts

LOOKED_AT = 200  # newest samples
SHOWN = 100


async def changed_samples(context: AppContext, model: str, before: int, to: int) -> list[dict[str, Any]]:
    """Samples that the two versions answer differently; none if one of them cannot be served any more."""
    found = await run_sync(_newest, context, model)
    if not found:
        return []
    answers = []
    for number in (before, to):
        try:
            version = context.versions.ready(model, number) or await context.versions.load(model, number)
        except Conflict:
            return []
        answers.append(await _answers(context, version, found))
    pairs = zip(found, *answers, strict=True)
    changed = [
        {"sample_id": one.id, "from": was, "to": is_now}
        for one, was, is_now in pairs
        if (was["label"], was["unknown"]) != (is_now["label"], is_now["unknown"])
    ]
    return changed[:SHOWN]


def _newest(context: AppContext, model: str) -> list[SampleFacts]:
    active = context.versions.active(model)
    with context.database.read() as db:
        found = samples.everything(db, active.model_id)[:LOOKED_AT]
    for one in found:
        context.features.remember((active.model_id, one.weights), one.sha256, from_blob(one.feature))
    return found


async def _answers(context: AppContext, version: LoadedVersion, found: list[SampleFacts]) -> list[dict[str, Any]]:
    refs = [StoredRef(one.sha256, partial(_data, context, version.model_id, one.id)) for one in found]
    features = await context.features.of(version.network, refs)
    predictions = await run_sync(version.classifier.predict, features, 1)
    return [_body(one, version) for one in predictions]


def _body(one: Prediction, version: LoadedVersion) -> dict[str, Any]:
    label = None if one.class_id is None else version.name(one.class_id)
    confidence = round(one.top[0].confidence, 6) if one.top else 0.0
    return {"label": label, "unknown": one.unknown, "confidence": confidence}


def _data(context: AppContext, model_id: ModelId, sample: int) -> bytes:
    with context.database.read() as db:
        return samples.data(db, model_id, sample)
