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

from core.classifier import Certainty
from engine.backbone_cache import BackboneCache, chosen_device
from engine.batching import ONE_THREAD, Parallelism, for_cores
from engine.cores import usable_cores
from engine.network_loader import NetworkLoader
from engine.predictor import Predictor
from engine.version_cache import VersionCache
from messaging.listener import Listener
from messaging.notifier import make_notifier
from service import errors
from service.auth import KeyRing
from service.dependencies import AppContext, named_model
from service.limits import BodyLimit
from service.metrics import Metrics, RequestDurations
from service.request_log import RequestLog
from service.routes import classes, health, models, predict, sessions, versions
from store import catalogue
from store.catalogue import DEFAULT
from store.database import Database
from store.errors import NameTaken
from store.settings import Settings

log = structlog.get_logger()

SECONDS_TO_STOP = 5.0
SECONDS_TO_GATHER = 0.05  # a burst of changes is one look; and whoever made one has been answered by then
DESCRIPTION = """
Learns image classes from a handful of pictures and does not forget the ones it knew.

1. `POST /classes` with a name and five pictures: the class is servable when the answer arrives.
2. `POST /predict` with a picture.
3. `GET /sessions/{id}/events`: watch the class being refined. Every version is measured before it is put in force.

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
    )
    app.state.settings, app.state.database = settings, database
    app.state.keyring = KeyRing(database)
    app.state.metrics = Metrics(database)
    errors.install(app)
    app.add_middleware(
        BodyLimit,
        max_bytes=settings.max_request_bytes,
        seconds=settings.body_seconds,
        all_bytes=settings.max_bodies_bytes,
    )
    app.add_middleware(RequestDurations, metrics=app.state.metrics)
    app.add_middleware(RequestLog)
    for resource in (predict, classes, sessions, versions):  # most requests are predictions: their route comes first
        app.include_router(resource.router)
        app.include_router(resource.router, prefix="/models/{model}", dependencies=[Depends(named_model)])
    app.include_router(models.router)
    app.include_router(health.router)
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
    watcher = asyncio.create_task(_watch(app, context, news))
    log.info("ready", model=DEFAULT, version=context.version_cache.current(DEFAULT).number, home=str(settings.home))
    try:
        with _listening(settings.broker_url, lambda: loop.call_soon_threadsafe(news.set)):
            yield
    finally:
        context.stopping = True
        context.version_cache.loader.networks.close()
        news.set()
        await asyncio.wait({watcher}, timeout=SECONDS_TO_STOP)  # it may be at the database, which may not answer
        watcher.cancel()
        await run_sync(context.predictor.close)
        await run_sync(context.notifier.close)


def _make_context(app: FastAPI) -> AppContext:
    settings: Settings = app.state.settings
    database: Database = app.state.database
    metrics: Metrics = app.state.metrics
    _have_default_model(database, settings)
    app.state.keyring.refresh()
    networks = BackboneCache(
        chosen_device(settings.device), settings.engine, settings.prepared, settings.prepare_seconds
    )
    app.state.networks = networks  # for whoever stops the service while it starts
    version_cache = VersionCache(database, NetworkLoader(networks), pinned_classes=settings.pinned_classes)
    predictor = Predictor(
        max_queued=settings.queue_images,
        max_pixels=settings.max_pixels,
        parallelism=_parallelism(networks),
        on_batch=metrics.batched,
    )
    metrics.queue_images.set_function(lambda: predictor.queued)
    with database.read() as db:
        backbone = catalogue.get(db, DEFAULT).backbone
    networks.kit(backbone)  # a start waits until it is prepared, however long that takes
    version_cache.refresh(DEFAULT)
    return AppContext(settings, database, version_cache, predictor, metrics, make_notifier(settings.broker_url))


def _parallelism(networks: BackboneCache) -> Parallelism:
    if networks.engine == "torch":
        return ONE_THREAD
    torch.set_num_threads(1)  # of each thread of the engine: they have a core each
    return for_cores(usable_cores())


def _have_default_model(database: Database, settings: Settings) -> None:
    """Of several replicas that start on a new database at once, one makes it and the others find it taken."""
    with contextlib.suppress(NameTaken), database.write() as db:
        if catalogue.find(db, DEFAULT) is None:
            catalogue.create(db, DEFAULT, settings.backbone, Certainty().temperature)


def _listening(url: str, on_news: Callable[[], object]) -> contextlib.AbstractContextManager[object]:
    return Listener(url, on_news) if url else contextlib.nullcontext()


async def _watch(app: FastAPI, context: AppContext, news: asyncio.Event) -> None:
    """Catch up with other processes: new heads, names, keys. A database that is away changes nothing."""
    troubled = False
    while not context.stopping:
        await _set_within(news, context.settings.poll_seconds)
        if news.is_set() and not context.stopping:
            await asyncio.sleep(SECONDS_TO_GATHER)
        news.clear()
        try:
            await run_sync(app.state.keyring.refresh)  # first: a revoked key must not outlive a model's trouble
            await run_sync(context.version_cache.poll)
            troubled = False
        except Exception as error:
            if not troubled:
                told = str(error).partition("\n")[0]
                log.warning("news cannot be read; serving goes on", kind=type(error).__name__, error=told)
            troubled = True


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
