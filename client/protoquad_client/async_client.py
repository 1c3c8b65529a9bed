"""`AsyncClient`: the service as an object, for asyncio; the names are those of `Client`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from copy import copy
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from protoquad_client.answers import About, Event, Prediction, SampleClass, WhoAmI
from protoquad_client.archive_files import Source, Target
from protoquad_client.async_resources import (
    AsyncClasses,
    AsyncInbox,
    AsyncKeys,
    AsyncModels,
    AsyncSessions,
    AsyncShots,
    AsyncVersions,
    AsyncWebhooks,
)
from protoquad_client.batching import Result, Steps, in_order_async, in_places, predicting
from protoquad_client.config import Config
from protoquad_client.errors import InvalidImage, NotReady, Problem, ServiceDead, ServiceUnreachable
from protoquad_client.event_stream import EventReader
from protoquad_client.images import Image, batches
from protoquad_client.operations import deployment, sessions
from protoquad_client.operations.predictions import predict
from protoquad_client.requests import DEFAULT_MODEL, Parsed, Request

if TYPE_CHECKING:
    import httpx2


class AsyncClient:
    """Talks to one service about one model. For one event loop."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        model: str = DEFAULT_MODEL,
        timeout: float = 30.0,
        retries: int = 2,
        scale_down: bool = True,
        http_client: "httpx2.AsyncClient | None" = None,
    ) -> None:
        """
        url: of the service; PROTOQUAD_URL unless set, http://127.0.0.1:8000 without that.
        key: an API key; PROTOQUAD_KEY unless set.
        model: the name of the model that it is about.
        timeout: seconds for a connection, and for an answer; teaching, and making or moving models, may take longer.
        retries: how often a request is repeated that got no answer, or a 429 or 503.
        scale_down: whether large images are made smaller before they are sent; needs Pillow.
        http_client: another client of httpx2, with proxies or certificates of your own; it is not closed.
        """
        from protoquad_client.async_transport import (
            AsyncTransport,  # here, because httpx2 takes most of the time of an import
        )

        self.config = Config.of(url, key, timeout=timeout, retries=retries, scale_down=scale_down)
        self._transport = AsyncTransport(self.config, http_client)
        self._set_model(model)

    def _set_model(self, name: str) -> None:
        self.model_name = name
        self.classes = AsyncClasses(self)
        self.shots = AsyncShots(self)
        self.versions = AsyncVersions(self)
        self.sessions = AsyncSessions(self)
        self.inbox = AsyncInbox(self)
        self.keys = AsyncKeys(self)
        self.models = AsyncModels(self)
        self.webhooks = AsyncWebhooks(self)

    def model(self, name: str) -> "AsyncClient":
        """The same for another model, on the same connections."""
        other = copy(self)
        other._set_model(name)
        return other

    async def predict(
        self,
        image: Image,
        *,
        top_k: int | None = None,
        version: int | None = None,
        views: int | None = None,
        explain: bool = False,
    ) -> Prediction:
        """What the image shows: the nearest class, or unknown."""
        (one,) = await asyncio.to_thread(self.config.predicted, [image])
        (found,) = await self.send(predict([one], top_k, version, views, explain))
        return found

    @overload
    def predict_many(
        self,
        images: Iterable[Image],
        *,
        batch: int = 16,
        parallel: int = 4,
        top_k: int | None = None,
        version: int | None = None,
        views: int | None = None,
        refused: Literal["raise"] = "raise",
    ) -> AsyncIterator[Prediction]: ...

    @overload
    def predict_many(
        self,
        images: Iterable[Image],
        *,
        batch: int = 16,
        parallel: int = 4,
        top_k: int | None = None,
        version: int | None = None,
        views: int | None = None,
        refused: Literal["yield"],
    ) -> AsyncIterator[Prediction | InvalidImage]: ...

    def predict_many(
        self,
        images: Iterable[Image],
        *,
        batch: int = 16,
        parallel: int = 4,
        top_k: int | None = None,
        version: int | None = None,
        views: int | None = None,
        refused: Literal["raise", "yield"] = "raise",
    ) -> AsyncIterator[Prediction | InvalidImage]:
        """A prediction for each image, in order, while the images are read: `parallel` requests of `batch` images.

        An image that cannot be used ends it with InvalidImage, or with `refused="yield"` takes the place of its
        prediction. `InvalidImage.images` counts from the first image of all.
        """

        async def work(numbered: tuple[int, list[Image]]) -> list[Prediction | InvalidImage]:
            found = await asyncio.to_thread(self.config.predicted, numbered[1])
            placed = list(enumerate(found, start=numbered[0]))
            steps = predicting(placed, lambda some: predict(some, top_k, version, views), refused)
            return await self._driven(steps)

        return in_order_async(work, batches(images, batch), parallel)

    def events(self, last: str | None = None) -> AsyncIterator[Event]:
        """All that happens to the model, without end; from the event `last` on. Reconnects by itself."""
        return self.follow(sessions.model_events(), last)

    async def about(self) -> About:
        """Release, limits, workers and what waits."""
        return await self.send(deployment.about())

    async def whoami(self) -> WhoAmI:
        """What the key may do."""
        return await self.send(deployment.whoami())

    async def samples(self) -> tuple[SampleClass, ...]:
        """Images that come with the service, to try it with."""
        return await self.send(deployment.samples())

    async def sample_image(self, path: str) -> bytes:
        """One of the images of `samples`."""
        return await self.send(deployment.sample_image(path))

    async def metrics(self) -> str:
        """As Prometheus reads them."""
        return await self.send(deployment.metrics())

    async def alive(self) -> bool:
        """Whether the service's process works."""
        return await self._is_well(deployment.alive())

    async def ready(self) -> bool:
        """Whether the service can answer."""
        return await self._is_well(deployment.ready())

    # For resources, and for requests that have no method: see `protoquad_client.operations`

    async def send(self, request: Request[Parsed]) -> Parsed:
        return await self._transport.send(request, self.model_name)

    async def upload(self, request: Request[Parsed], source: Source) -> Parsed:
        return await self._transport.upload(request, self.model_name, source)

    async def download(self, request: Request[Any], target: Target) -> None:
        await self._transport.download(request, self.model_name, target)

    def stream(self, request: Request[Any], reader: EventReader, seconds: float) -> AsyncGenerator[list[Event], None]:
        return self._transport.events(request, self.model_name, reader, seconds)

    def follow(
        self, request: Request[Any], last: str | None, ended: Callable[[], Awaitable[bool]] | None = None
    ) -> AsyncIterator[Event]:
        return self._transport.follow(request, self.model_name, last, ended)

    async def _is_well(self, request: Request[None]) -> bool:
        try:
            await self.send(request)
        except (ServiceUnreachable, NotReady, ServiceDead):
            return False
        return True

    async def _driven(self, steps: Steps[dict[int, Result]]) -> list[Result]:
        """What the steps come to, in order, with each of their requests sent."""
        take: Callable[[], Request[list[Prediction]]] = partial(next, steps)
        while True:
            try:
                request = take()
            except StopIteration as stop:
                return in_places(stop.value)
            try:
                take = partial(steps.send, await self.send(request))
            except Problem as problem:
                take = partial(steps.throw, problem)

    async def close(self) -> None:
        """Close all connections, those of `model(…)` too."""
        await self._transport.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self.config.url!r}, model={self.model_name!r})"
