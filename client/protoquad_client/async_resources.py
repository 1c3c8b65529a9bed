"""What an asynchronous client can do, one class for each resource; the names are those of `resources`."""

from asyncio import sleep, to_thread
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from protoquad_client.answers import (
    OVER,
    Class,
    Delivery,
    Event,
    Item,
    Key,
    Model,
    NewKey,
    NewWebhook,
    Page,
    Sample,
    Scope,
    SessionState,
    Shot,
    Taught,
    Webhook,
    WebhookEvent,
)
from protoquad_client.archive_files import File, Source, Target
from protoquad_client.errors import ProtoquadError, WaitTimeout
from protoquad_client.event_stream import Waiting
from protoquad_client.images import Image
from protoquad_client.operations import base, classes, deployment, inbox, models, sessions, shots, versions, webhooks
from protoquad_client.operations.classes import Order, Sort
from protoquad_client.pages import AsyncPages
from protoquad_client.requests import Parsed, Request
from protoquad_client.versions import Comparison, Version, VersionAccuracy, VersionMap

if TYPE_CHECKING:
    from protoquad_client.async_client import AsyncClient


@dataclass(frozen=True, slots=True)
class AsyncSession(SessionState):
    """A session as it was when the service answered, and what can be done with it."""

    sessions: "AsyncSessions" = field(repr=False, compare=False, kw_only=True)

    async def wait(self, timeout: float | None = None) -> "AsyncSession":
        """The session once it is over, however it ended. Raises WaitTimeout after `timeout` seconds."""
        return await self.sessions.wait(self.id, timeout)

    def events(self, last: str | None = None) -> AsyncIterator[Event]:
        """Its steps as they happen, until it is over."""
        return self.sessions.events(self.id, last)

    async def cancel(self) -> "AsyncSession":
        return await self.sessions.cancel(self.id)


class AsyncResource:
    def __init__(self, client: "AsyncClient") -> None:
        self._client = client

    async def _send(self, request: Request[Parsed]) -> Parsed:
        return await self._client.send(request)

    def _pages(self, page: Callable[[str | None], Request[Page[Item]]]) -> AsyncPages[Item]:
        return AsyncPages(lambda cursor: self._send(page(cursor)))

    async def _taught(self, request: Request[Taught[SessionState]]) -> Taught[AsyncSession]:
        found = await self._send(request)
        session = self._client.sessions.bound(found.session)
        return Taught(found.class_, session, found.version, found.outliers)


class AsyncClasses(AsyncResource):
    async def teach(
        self, name: str, images: Iterable[Image] | Image, *, idempotency_key: str | None = None
    ) -> Taught[AsyncSession]:
        """A new class; it is served when this returns. A key of your own makes it safe to repeat for a day."""
        found = await to_thread(self._client.config.shots, images)
        return await self._taught(classes.teach(name, found, idempotency_key))

    async def add_shots(
        self, class_id: int, images: Iterable[Image] | Image, *, idempotency_key: str | None = None
    ) -> Taught[AsyncSession]:
        """More images of a class."""
        found = await to_thread(self._client.config.shots, images)
        return await self._taught(classes.add_shots(class_id, found, idempotency_key))

    def list(
        self, search: str | None = None, sort: Sort | None = None, order: Order | None = None
    ) -> AsyncPages[Class]:
        """`search`: part of the name, in any case."""
        return self._pages(partial(classes.page, search=search, sort=sort, order=order))

    async def get(self, class_id: int) -> Class:
        return await self._send(classes.get(class_id))

    async def find(self, name: str) -> Class | None:
        """The class of exactly this name."""
        async for one in self.list(search=name):
            if one.name == name:
                return one
        return None

    async def rename(self, class_id: int, name: str) -> Class:
        """In all versions; makes no new one."""
        return await self._send(classes.rename(class_id, name))

    async def delete(self, class_id: int) -> None:
        """With its images, for good."""
        await self._send(classes.delete(class_id))

    async def merge(self, class_id: int, into: int) -> Taught[AsyncSession]:
        """All images of a class become another's, and it is deleted."""
        return await self._taught(classes.merge(class_id, into))


class AsyncShots(AsyncResource):
    def list(self, class_id: int) -> AsyncPages[Shot]:
        return self._pages(partial(shots.page, class_id))

    async def get(self, class_id: int, shot_id: int) -> Shot:
        return await self._send(shots.get(class_id, shot_id))

    async def image(self, class_id: int, shot_id: int) -> bytes:
        """As it was sent."""
        return await self._send(shots.image(class_id, shot_id))

    async def thumbnail(self, class_id: int, shot_id: int) -> bytes:
        """A WebP of at most 256 pixels."""
        return await self._send(shots.thumbnail(class_id, shot_id))

    async def delete(self, class_id: int, shot_id: int) -> Taught[AsyncSession]:
        """For good; not the last one of a class."""
        return await self._taught(shots.delete(class_id, shot_id))

    async def move(
        self, class_id: int, shot_id: int, *, to: int | None = None, to_new: str | None = None
    ) -> Taught[AsyncSession]:
        """To another class, or to a new one of this name."""
        return await self._taught(shots.move(class_id, shot_id, to, to_new))


class AsyncVersions(AsyncResource):
    def list(self) -> AsyncPages[Version]:
        """Newest first."""
        return self._pages(versions.page)

    async def get(self, number: int) -> Version:
        return await self._send(versions.get(number))

    async def activate(self, number: int) -> Version:
        """Roll back or forward, on every replica."""
        return await self._send(versions.activate(number))

    async def accuracy(self, number: int) -> VersionAccuracy:
        """What it was measured to be worth: per class, and which it confuses."""
        return await self._send(versions.accuracy(number))

    async def map(self, number: int, limit: int | None = None) -> VersionMap:
        """Prototypes and at most `limit` shots in two dimensions."""
        return await self._send(versions.map_(number, limit))

    async def compare(self, from_: int, to: int) -> Comparison:
        """Two versions, class by class."""
        return await self._send(versions.compare(from_, to))


class AsyncSessions(AsyncResource):
    def list(self) -> AsyncPages[AsyncSession]:
        """Newest first."""
        return AsyncPages(self._page)

    async def get(self, session_id: int) -> AsyncSession:
        return self.bound(await self._send(sessions.get(session_id)))

    async def cancel(self, session_id: int) -> AsyncSession:
        """Ends a queued session at once, a running one between two steps."""
        return self.bound(await self._send(sessions.cancel(session_id)))

    async def start_base(
        self,
        file: File | None = None,
        *,
        folder: str | None = None,
        epochs: int | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncSession:
        """A base session, from a zip of class folders, or from a folder of the service's machine."""
        if (file is None) == (folder is None):
            raise ValueError("a base session learns from a zip (`file`) or from a `folder`: give one of them")
        if folder is not None:
            return self.bound(await self._send(base.from_folder(folder, epochs, idempotency_key)))
        assert file is not None
        with Source(file) as source:
            return self.bound(await self._client.upload(base.from_zip(epochs, idempotency_key), source))

    async def events(self, session_id: int, last: str | None = None) -> AsyncIterator[Event]:
        """Its steps as they happen, until it is over; those after the event `last`. Reconnects by itself."""
        request = sessions.events(session_id)

        async def ended() -> bool:
            return (await self.get(session_id)).over

        async for event in self._client.follow(request, last, ended):
            yield event
            if event.name in OVER:
                return

    async def wait(self, session_id: int, timeout: float | None = None) -> AsyncSession:
        """The session once it is over, however it ended. Raises WaitTimeout after `timeout` seconds."""
        waiting = Waiting(session_id, timeout)
        while True:
            try:
                found = self.bound(await self._send(sessions.get_within(session_id, waiting.seconds_to_ask())))
                if found.over:
                    return found
                waiting.asked()
            except ProtoquadError as error:
                waiting.asked_in_vain(error)
            if waiting.may_listen:
                await self._listen(session_id, waiting)
            await sleep(waiting.pause())

    async def _listen(self, session_id: int, waiting: Waiting) -> None:
        """Until the session may be over, or the stream is."""
        stream = self._client.stream(sessions.events(session_id), waiting.reader, waiting.seconds_to_listen())
        try:
            async with aclosing(stream):
                async for events in stream:
                    if waiting.heard(events):
                        return
        except WaitTimeout:
            raise
        except ProtoquadError:
            waiting.listened_in_vain()

    def bound(self, state: SessionState) -> AsyncSession:
        """With what can be done with it."""
        known: dict[str, Any] = {one.name: getattr(state, one.name) for one in fields(SessionState)}
        return AsyncSession(**known, sessions=self)

    async def _page(self, cursor: str | None) -> Page[AsyncSession]:
        page = await self._send(sessions.page(cursor))
        return Page(tuple(self.bound(one) for one in page.items), page.next, page.total)


class AsyncInbox(AsyncResource):
    def list(self, sort: inbox.Sort | None = None) -> AsyncPages[Sample]:
        """`margin`: the most uncertain first; `newest` unless set."""
        return self._pages(partial(inbox.page, sort=sort))

    async def image(self, sample_id: int) -> bytes:
        return await self._send(inbox.image(sample_id))

    async def thumbnail(self, sample_id: int) -> bytes:
        return await self._send(inbox.thumbnail(sample_id))

    async def resolve(
        self, samples: Sequence[int], *, class_id: int | None = None, name: str | None = None
    ) -> Taught[AsyncSession]:
        """Make shots of them: of a class, or of a new one of this name."""
        return await self._taught(inbox.resolve(samples, class_id, name))

    async def dismiss(self, samples: Sequence[int]) -> None:
        """Erase them."""
        for request in inbox.dismiss(samples):
            await self._send(request)

    async def clear(self) -> None:
        """Erase all."""
        await self._send(inbox.clear())


class AsyncKeys(AsyncResource):
    def list(self) -> AsyncPages[Key]:
        return self._pages(deployment.keys)

    async def create(self, name: str, scopes: Sequence[Scope]) -> NewKey:
        """Its `key` is shown only in this answer."""
        return await self._send(deployment.create_key(name, scopes))

    async def revoke(self, key_id: str) -> None:
        await self._send(deployment.revoke_key(key_id))


class AsyncModels(AsyncResource):
    def list(self) -> AsyncPages[Model]:
        return self._pages(models.page)

    async def get(self, name: str) -> Model:
        return await self._send(models.get(name))

    async def create(self, name: str, backbone: str | None = None) -> Model:
        """Takes minutes if the backbone is new to the service."""
        return await self._send(models.create(name, backbone))

    async def delete(self, name: str) -> None:
        """With all that belongs to it, for good."""
        await self._send(models.delete(name))

    async def export(self, name: str, file: File) -> int:
        """Write the model's archive to a file, as it arrives; the number of its bytes."""
        with Target(file) as target:
            await self._client.download(models.export(name), target)
        return target.size

    async def import_(self, file: File, name: str | None = None) -> Model:
        """Send an archive, as it is read; under its own name unless another is given."""
        with Source(file) as source:
            return await self._client.upload(models.import_(name), source)


class AsyncWebhooks(AsyncResource):
    def list(self) -> AsyncPages[Webhook]:
        return self._pages(webhooks.page)

    async def create(self, url: str, events: Sequence[WebhookEvent] | None = None) -> NewWebhook:
        """An address that is told of these events, of all unless set. Its `secret` is shown only in this answer."""
        return await self._send(webhooks.create(url, events))

    async def delete(self, webhook_id: str) -> None:
        """With what waits to be delivered."""
        await self._send(webhooks.delete(webhook_id))

    async def test(self, webhook_id: str) -> Delivery:
        """Send it an event of type `webhook.test` now."""
        return await self._send(webhooks.test(webhook_id))
