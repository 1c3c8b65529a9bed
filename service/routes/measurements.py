"""`/versions/{number}/accuracy`, `/map` and `/versions/compare`: what versions make of images."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query, Request

from learners.version_loader import LoadedVersion
from service.app_context import AppContext
from service.auth import requires
from service.cancellation import while_wanted
from service.dependencies import Context, ModelName, VersionInPath
from service.inbox_changes import changed_samples
from service.measurement_schemas import ClassAccuracy, Comparison, Confused, ShotRef, VersionAccuracy, VersionMap
from service.problems import responses
from service.schemas import ClassName
from service.stored_features import StoredRef
from store import bank_rows, catalogue, classes, images, measurements, versions
from store.measurements import Measured

router = APIRouter(tags=["versions"])

MOST_PAIRS = 100
MOST_SHOTS = 20  # of a pair
MOST_PROTOTYPES = 5_000
BINS = 10
FEWEST_TO_CALIBRATE = 20
MapLimit = Annotated[int, Query(ge=0, le=2_000, description="Most shots to show; the first of every class come first.")]
FromVersion = Annotated[int, Query(alias="from", ge=0, lt=2**31, description="Number of a version.", examples=[0])]
ToVersion = Annotated[int, Query(ge=0, lt=2**31, description="Number of another.", examples=[0])]


@router.get(
    "/versions/compare",
    response_model=Comparison,
    responses=responses(401, 403, 404, 409, 422, 503),
    dependencies=[Depends(requires("predict"))],
    summary="Compare two versions",
)
async def compare_versions(
    request: Request, context: Context, model: ModelName, before: FromVersion, to: ToVersion
) -> Comparison:
    """Accuracy of each class in either version, the classes that only one of them knows, and what would change in the
    inbox."""
    compared = await run_sync(_compared, context, model, before, to)
    changing = changed_samples(context, model, before, to)
    changed = await while_wanted(request, changing, context.settings.answer_seconds)
    return Comparison.model_validate({**compared, "samples": changed})


@router.get(
    "/versions/{number}/accuracy",
    response_model=VersionAccuracy,
    responses=responses(401, 403, 404, 422, 503),
    dependencies=[Depends(requires("predict"))],
    summary="Show what a version was measured to be worth",
)
def version_accuracy(context: Context, model: ModelName, number: VersionInPath) -> VersionAccuracy:
    """On images that it was not made from, as they were measured when it, or an ancestor, was published.

    Images that were deleted since do not count.
    """
    with context.database.read() as db:
        model_id = catalogue.get(db, model).id
        versions.get(db, model_id, number)
        found = measurements.newest(db, model_id, number)
        names = classes.names(db, model_id)
    counts = measurements.count(found)
    low, high = counts.interval if found else (None, None)
    return VersionAccuracy(
        version=number,
        images=counts.images,
        right=counts.right,
        refused=counts.refused,
        accuracy=_rounded(counts.right / counts.images) if found else None,
        low=_rounded(low),
        high=_rounded(high),
        classes=[_class_accuracy(own, part, names) for own, part in sorted(measurements.by_class(found).items())],
        confused=_confused(found, names),
        calibration_error=_calibration_error(found),
        measured_at_version=max((one.version for one in found), default=None),
    )


@router.get(
    "/versions/{number}/map",
    response_model=VersionMap,
    responses=responses(401, 403, 404, 409, 422, 503),
    dependencies=[Depends(requires("predict"))],
    summary="Show a version in two dimensions",
)
async def version_map(
    request: Request, context: Context, model: ModelName, number: VersionInPath, limit: MapLimit = 500
) -> VersionMap:
    """Its prototypes, and some shots, along the two directions in which prototypes differ most. The axes stay from
    version to version."""
    version = context.versions.ready(model, number)
    if version is None:
        loading = context.versions.load(model, number)
        version = await while_wanted(request, loading, context.settings.answer_seconds)
    return await while_wanted(request, _map(context, version, limit), context.settings.answer_seconds)


async def _map(context: AppContext, version: LoadedVersion, limit: int) -> VersionMap:
    axes = await run_sync(context.maps.axes, version)
    known = version.classifier
    shots = await run_sync(_shots, context, version, limit)
    refs = [StoredRef(sha256, partial(small_form, context, shot)) for shot, _, sha256 in shots]
    features = await context.features.of(version.network, refs)
    step = -(-len(known) // MOST_PROTOTYPES) or 1
    # Classes of few images are favoured by longer vectors; on the map all have the same length.
    points = known.space.comparable(known.prototypes[::step])
    class_ids, places = known.class_ids[::step], axes.project(points).tolist()
    seen = axes.project(known.space.comparable(known.space.embed(features))).tolist()
    names = context.versions.newest_names(version)
    about = [
        {"class_id": own, "label": names.get(own) or version.name(own), "x": _rounded(x), "y": _rounded(y)}
        for own, (x, y) in zip(class_ids, places, strict=True)
    ]
    dots = [
        {"class_id": own, "shot_id": shot, "x": _rounded(x), "y": _rounded(y)}
        for (shot, own, _), (x, y) in zip(shots, seen, strict=True)
    ]
    explained = [_rounded(share) for share in axes.explained]
    return VersionMap.model_validate(
        {"version": version.number, "axes": {"explained": explained}, "prototypes": about, "shots": dots}
    )


def _shots(context: AppContext, version: LoadedVersion, limit: int) -> list[tuple[int, int, str]]:
    """Of classes that the version knows."""
    with context.database.read() as db:
        found = images.some_of_each(db, version.model_id, None, limit)
    return [one for one in found if one[1] in version.classifier.known_ids]


def small_form(context: AppContext, image_id: int) -> bytes:
    with context.database.read() as db:
        return images.small_form(db, image_id)


def _class_accuracy(class_id: int, found: Sequence[Measured], names: Mapping[int, str]) -> ClassAccuracy:
    about = {"class_id": class_id, "label": names.get(class_id, f"class {class_id}")}
    return ClassAccuracy.model_validate({**about, **(measurements.summary(found) or {})})


def _confused(found: Sequence[Measured], names: Mapping[int, str]) -> list[Confused]:
    wrong = [one for one in found if not one.right]
    pairs = Counter((one.class_id, one.nearest) for one in wrong).most_common(MOST_PAIRS)
    return [
        Confused(
            class_id=own,
            label=names.get(own, f"class {own}"),
            as_class_id=other,
            as_label=names.get(other, f"class {other}"),
            count=count,
            shots=[
                ShotRef(class_id=own, shot_id=one.image) for one in wrong if (one.class_id, one.nearest) == (own, other)
            ][:MOST_SHOTS],
        )
        for (own, other), count in pairs
    ]


def _calibration_error(found: Sequence[Measured]) -> float | None:
    if len(found) < FEWEST_TO_CALIBRATE:
        return None
    bins: dict[int, list[Measured]] = {}
    for one in found:
        bins.setdefault(min(BINS - 1, int(one.confidence * BINS)), []).append(one)
    gaps = (abs(sum(one.confidence for one in part) - sum(one.right for one in part)) for part in bins.values())
    return _rounded(sum(gaps) / len(found))


def _compared(context: AppContext, model: str, before: int, to: int) -> dict[str, Any]:
    with context.database.read() as db:
        model_id = catalogue.get(db, model).id
        numbers = [versions.get(db, model_id, number).number for number in (before, to)]
        known = [set(bank_rows.class_ids(db, model_id, number)) for number in numbers]
        found = [measurements.by_class(measurements.newest(db, model_id, number)) for number in numbers]
        names = classes.names(db, model_id)

    sides = (("from", found[0]), ("to", found[1]))

    def named(class_ids: set[int]) -> list[ClassName]:
        return [ClassName(class_id=own, label=names.get(own, f"class {own}")) for own in sorted(class_ids)]

    changes = [
        {
            **one.model_dump(),
            **{side: measurements.summary(part.get(one.class_id, [])) for side, part in sides},
        }
        for one in named({*found[0], *found[1]})
    ]
    added, removed = named(known[1] - known[0]), named(known[0] - known[1])
    return {"from": before, "to": to, "classes": changes, "added": added, "removed": removed}


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
