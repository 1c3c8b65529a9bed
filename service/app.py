"""The application: its context made in the lifespan, routes for the default model and for a named one, middleware."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from functools import cache

import structlog
import torch
from anyio.to_thread import run_sync
from fastapi import Depends, FastAPI, Request, Response
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from starlette.routing import Route

from console import routes as console
from core.classifier import Certainty
from engine.backbone_cache import BackboneCache, choose_device
from engine.batching import ONE_THREAD, Parallelism, for_cores
from engine.cores import usable_cores
from engine.predictor import Predictor
from engine.version_cache import VersionCache
from learners.version_loader import VersionLoader
from messaging.listener import Listener
from messaging.notifier import make_notifier
from service import errors
from service.app_context import AppContext
from service.auth import KeyRing
from service.dependencies import named_model
from service.engine_spans import watch_batch
from service.inference_protocol import routes as inference_protocol
from service.inference_protocol.errors import ProtocolErrors
from service.limits import BodyLimit
from service.metrics import Metrics
from service.request_middleware import RequestMiddleware
from service.routes import (
    about,
    archives,
    base,
    classes,
    events,
    health,
    inbox,
    keys,
    measurements,
    models,
    predict,
    sessions,
    shots,
    versions,
    webhooks,
)
from store import catalogue
from store.catalogue import DEFAULT
from store.database import Database
from store.errors import NameTaken
from store.settings import Settings
from tracing.spans import tracer

log = structlog.get_logger()

SECONDS_TO_STOP = 5.0
SECONDS_TO_GATHER = 0.05  # a burst of changes is one poll
DESCRIPTION = """
Learns image classes from a handful of images and does not forget the ones it knew.

1. `POST /classes` with a name and five images: the class is servable when the answer arrives.
2. `POST /predict` with an image.
3. `GET /sessions/{id}/events`: watch the class being refined. Every version is measured before it becomes active.

The routes act on the model `default`; the same routes under `/models/{model}` act on another.
"""


def create_app(settings: Settings, database: Database) -> FastAPI:
    """The service over a migrated database."""
    app = FastAPIOffline(  # /docs with its own scripts: a machine without internet shows it too
        redoc_url=None,
        static_url="/docs-assets",
        title="protoquad",
        version="0.1.0",
        description=DESCRIPTION,
        lifespan=_lifespan,
        generate_unique_id_function=_operation_id,
        # Its own spans would hold query strings, and its logs the texts of errors; ours do not (`tracing`).
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.settings, app.state.database = settings, database
    app.state.keyring = KeyRing(database)
    app.state.metrics = Metrics(database)
    errors.install(app)
    app.add_middleware(
        BodyLimit,
        max_bytes=settings.max_request_bytes,
        zip_bytes=settings.max_zip_bytes,
        seconds=settings.body_seconds,
        all_bytes=settings.max_bodies_bytes,
    )
    app.add_middleware(ProtocolErrors)  # outside the limits, so that what they refuse passes it too
    app.add_middleware(RequestMiddleware, metrics=app.state.metrics)
    # Most requests are predictions: their route comes first.
    for resource in (predict, classes, shots, sessions, measurements, versions, events, inbox, base, webhooks):
        app.include_router(resource.router)
        app.include_router(resource.router, prefix="/models/{model}", dependencies=[Depends(named_model)])
    for shared in (archives, models, keys, about, health, inference_protocol, console):
        app.include_router(shared.router)
    _answer_document(app)
    return app


def _answer_document(app: FastAPI) -> None:
    """Write the OpenAPI document once: FastAPI writes it for every caller, which holds up others for milliseconds."""
    document = cache(lambda: json.dumps(app.openapi()).encode())

    async def openapi(_: Request) -> Response:
        return Response(document(), media_type="application/json")

    app.router.routes.insert(0, Route("/openapi.json", openapi, include_in_schema=False))


def _operation_id(route: APIRoute) -> str:
    return route.name if not route.path_format.startswith("/models/{model}/") else f"{route.name}_of_model"


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    context = await run_sync(_make_context, app)
    app.state.context = context
    news, loop = asyncio.Event(), asyncio.get_running_loop()
    polling = asyncio.create_task(_poll_forever(app, context, news))
    log.info("ready", model=DEFAULT, version=context.versions.active(DEFAULT).number, home=str(settings.home))
    try:
        with _listening(settings.broker_url, lambda: loop.call_soon_threadsafe(news.set)):
            yield
    finally:
        context.stopping = True
        context.backbones.close()
        news.set()
        await asyncio.wait({polling}, timeout=SECONDS_TO_STOP)  # it may wait for a database that does not answer
        polling.cancel()
        await run_sync(context.predictor.close)
        await run_sync(context.notifier.close)
        await run_sync(context.webhooks.close)
        if context.capture is not None:
            await run_sync(context.capture.close)


def _make_context(app: FastAPI) -> AppContext:
    settings: Settings = app.state.settings
    database: Database = app.state.database
    metrics: Metrics = app.state.metrics
    _have_default_model(database, settings)
    app.state.keyring.refresh()
    backbones = BackboneCache(
        choose_device(settings.device),
        settings.engine,
        settings.prepared,
        settings.prepare_seconds,
        weights=settings.weights,
    )
    app.state.backbones = backbones  # so that a signal can stop the service while it starts
    versions = VersionCache(VersionLoader(database, backbones), pinned_classes=settings.pinned_classes)
    predictor = Predictor(
        max_queued=settings.queue_images,
        max_pixels=settings.max_pixels,
        parallelism=_parallelism(backbones),
        on_batch=metrics.batched,
        watch_batch=None if tracer() is None else watch_batch,
    )
    metrics.queue_images.set_function(lambda: predictor.queued)
    with database.read() as db:
        backbone = catalogue.get(db, DEFAULT).backbone
    backbones.compiled(backbone)  # a start waits until it is prepared, however long that takes
    versions.refresh(DEFAULT)
    notifier = make_notifier(settings.broker_url)
    return AppContext(settings, database, backbones, versions, predictor, metrics, notifier)


def _parallelism(backbones: BackboneCache) -> Parallelism:
    if backbones.engine == "torch":
        return ONE_THREAD
    torch.set_num_threads(1)  # of each thread of the engine: each has a core
    return for_cores(usable_cores())


def _have_default_model(database: Database, settings: Settings) -> None:
    """When several replicas start on a new database at once, one creates it and the others find it there."""
    with contextlib.suppress(NameTaken), database.write() as db:
        if catalogue.find(db, DEFAULT) is None:
            catalogue.create(db, DEFAULT, settings.backbone, Certainty().temperature)


def _listening(url: str, on_news: Callable[[], object]) -> contextlib.AbstractContextManager[object]:
    return Listener(url, on_news) if url else contextlib.nullcontext()


async def _poll_forever(app: FastAPI, context: AppContext, news: asyncio.Event) -> None:
    """Catch up with other processes: new heads, names, keys. While the database is away, nothing changes."""
    failing = False
    while not context.stopping:
        await _set_within(news, context.settings.poll_seconds)
        if news.is_set() and not context.stopping:
            await asyncio.sleep(SECONDS_TO_GATHER)
        news.clear()
        try:
            await run_sync(app.state.keyring.refresh)  # first: a revoked key must not wait for a model's problem
            await run_sync(context.versions.poll)
            failing = False
        except Exception as error:
            if not failing:
                reason = str(error).partition("\n")[0]
                log.warning("cannot poll for changes; serving goes on", kind=type(error).__name__, error=reason)
            failing = True


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
