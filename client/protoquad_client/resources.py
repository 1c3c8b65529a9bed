"""What a client can do with a model and its deployment, one class for each resource."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from functools import partial
from time import sleep
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
from protoquad_client.pages import Pages
from protoquad_client.requests import Parsed, Request
from protoquad_client.versions import Comparison, Version, VersionAccuracy, VersionMap

if TYPE_CHECKING:
    from protoquad_client.client import Client


@dataclass(frozen=True, slots=True)
class Session(SessionState):
    """A session as it was when the service answered, and what can be done with it."""

    sessions: "Sessions" = field(repr=False, compare=False, kw_only=True)

    def wait(self, timeout: float | None = None) -> "Session":
        """The session once it is over, however it ended. Raises WaitTimeout after `timeout` seconds."""
        return self.sessions.wait(self.id, timeout)

    def events(self, last: str | None = None) -> Iterator[Event]:
        """Its steps as they happen, until it is over."""
        return self.sessions.events(self.id, last)

    def cancel(self) -> "Session":
        return self.sessions.cancel(self.id)


class Resource:
    def __init__(self, client: "Client") -> None:
        self._client = client

    def _send(self, request: Request[Parsed]) -> Parsed:
        return self._client.send(request)

    def _pages(self, page: Callable[[str | None], Request[Page[Item]]]) -> Pages[Item]:
        return Pages(lambda cursor: self._send(page(cursor)))

    def _taught(self, request: Request[Taught[SessionState]]) -> Taught[Session]:
        found = self._send(request)
        session = self._client.sessions.bound(found.session)
        return Taught(found.class_, session, found.version, found.outliers)


class Classes(Resource):
    def teach(
        self, name: str, images: Iterable[Image] | Image, *, idempotency_key: str | None = None
    ) -> Taught[Session]:
        """A new class; it is served when this returns. A key of your own makes it safe to repeat for a day."""
        found = self._client.config.shots(images)
        return self._taught(classes.teach(name, found, idempotency_key))

    def add_shots(
        self, class_id: int, images: Iterable[Image] | Image, *, idempotency_key: str | None = None
    ) -> Taught[Session]:
        """More images of a class."""
        found = self._client.config.shots(images)
        return self._taught(classes.add_shots(class_id, found, idempotency_key))

    def list(self, search: str | None = None, sort: Sort | None = None, order: Order | None = None) -> Pages[Class]:
        """`search`: part of the name, in any case."""
        return self._pages(partial(classes.page, search=search, sort=sort, order=order))

    def get(self, class_id: int) -> Class:
        return self._send(classes.get(class_id))

    def find(self, name: str) -> Class | None:
        """The class of exactly this name."""
        return next((one for one in self.list(search=name) if one.name == name), None)

    def rename(self, class_id: int, name: str) -> Class:
        """In all versions; makes no new one."""
        return self._send(classes.rename(class_id, name))

    def delete(self, class_id: int) -> None:
        """With its images, for good."""
        self._send(classes.delete(class_id))

    def merge(self, class_id: int, into: int) -> Taught[Session]:
        """All images of a class become another's, and it is deleted."""
        return self._taught(classes.merge(class_id, into))


class Shots(Resource):
    def list(self, class_id: int) -> Pages[Shot]:
        return self._pages(partial(shots.page, class_id))

    def get(self, class_id: int, shot_id: int) -> Shot:
        return self._send(shots.get(class_id, shot_id))

    def image(self, class_id: int, shot_id: int) -> bytes:
        """As it was sent."""
        return self._send(shots.image(class_id, shot_id))

    def thumbnail(self, class_id: int, shot_id: int) -> bytes:
        """A WebP of at most 256 pixels."""
        return self._send(shots.thumbnail(class_id, shot_id))

    def delete(self, class_id: int, shot_id: int) -> Taught[Session]:
        """For good; not the last one of a class."""
        return self._taught(shots.delete(class_id, shot_id))

    def move(self, class_id: int, shot_id: int, *, to: int | None = None, to_new: str | None = None) -> Taught[Session]:
        """To another class, or to a new one of this name."""
        return self._taught(shots.move(class_id, shot_id, to, to_new))


class Versions(Resource):
    def list(self) -> Pages[Version]:
        """Newest first."""
        return self._pages(versions.page)

    def get(self, number: int) -> Version:
        return self._send(versions.get(number))

    def activate(self, number: int) -> Version:
        """Roll back or forward, on every replica."""
        return self._send(versions.activate(number))

    def accuracy(self, number: int) -> VersionAccuracy:
        """What it was measured to be worth: per class, and which it confuses."""
        return self._send(versions.accuracy(number))

    def map(self, number: int, limit: int | None = None) -> VersionMap:
        """Prototypes and at most `limit` shots in two dimensions."""
        return self._send(versions.map_(number, limit))

    def compare(self, from_: int, to: int) -> Comparison:
        """Two versions, class by class."""
        return self._send(versions.compare(from_, to))


class Sessions(Resource):
    def list(self) -> Pages[Session]:
        """Newest first."""
        return Pages(self._page)

    def get(self, session_id: int) -> Session:
        return self.bound(self._send(sessions.get(session_id)))

    def cancel(self, session_id: int) -> Session:
        """Ends a queued session at once, a running one between two steps."""
        return self.bound(self._send(sessions.cancel(session_id)))

    def start_base(
        self,
        file: File | None = None,
        *,
        folder: str | None = None,
        epochs: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """A base session, from a zip of class folders, or from a folder of the service's machine."""
        if (file is None) == (folder is None):
            raise ValueError("a base session learns from a zip (`file`) or from a `folder`: give one of them")
        if folder is not None:
            return self.bound(self._send(base.from_folder(folder, epochs, idempotency_key)))
        assert file is not None
        with Source(file) as source:
            return self.bound(self._client.upload(base.from_zip(epochs, idempotency_key), source))

    def events(self, session_id: int, last: str | None = None) -> Iterator[Event]:
        """Its steps as they happen, until it is over; those after the event `last`. Reconnects by itself."""
        request = sessions.events(session_id)
        for event in self._client.follow(request, last, ended=lambda: self.get(session_id).over):
            yield event
            if event.name in OVER:
                return

    def wait(self, session_id: int, timeout: float | None = None) -> Session:
        """The session once it is over, however it ended. Raises WaitTimeout after `timeout` seconds."""
        waiting = Waiting(session_id, timeout)
        while True:
            try:
                found = self.bound(self._send(sessions.get_within(session_id, waiting.seconds_to_ask())))
                if found.over:
                    return found
                waiting.asked()
            except ProtoquadError as error:
                waiting.asked_in_vain(error)
            if waiting.may_listen:
                self._listen(session_id, waiting)
            sleep(waiting.pause())

    def _listen(self, session_id: int, waiting: Waiting) -> None:
        """Until the session may be over, or the stream is."""
        stream = self._client.stream(sessions.events(session_id), waiting.reader, waiting.seconds_to_listen())
        try:
            with closing(stream):
                for events in stream:
                    if waiting.heard(events):
                        return
        except WaitTimeout:
            raise
        except ProtoquadError:
            waiting.listened_in_vain()

    def bound(self, state: SessionState) -> Session:
        """With what can be done with it."""
        known: dict[str, Any] = {one.name: getattr(state, one.name) for one in fields(SessionState)}
        return Session(**known, sessions=self)

    def _page(self, cursor: str | None) -> Page[Session]:
        page = self._send(sessions.page(cursor))
        return Page(tuple(self.bound(one) for one in page.items), page.next, page.total)


class Inbox(Resource):
    def list(self, sort: inbox.Sort | None = None) -> Pages[Sample]:
        """`margin`: the most uncertain first; `newest` unless set."""
        return self._pages(partial(inbox.page, sort=sort))

    def image(self, sample_id: int) -> bytes:
        return self._send(inbox.image(sample_id))

    def thumbnail(self, sample_id: int) -> bytes:
        return self._send(inbox.thumbnail(sample_id))

    def resolve(
        self, samples: Sequence[int], *, class_id: int | None = None, name: str | None = None
    ) -> Taught[Session]:
        """Make shots of them: of a class, or of a new one of this name."""
        return self._taught(inbox.resolve(samples, class_id, name))

    def dismiss(self, samples: Sequence[int]) -> None:
        """Erase them."""
        for request in inbox.dismiss(samples):
            self._send(request)

    def clear(self) -> None:
        """Erase all."""
        self._send(inbox.clear())


class Keys(Resource):
    def list(self) -> Pages[Key]:
        return self._pages(deployment.keys)

    def create(self, name: str, scopes: Sequence[Scope]) -> NewKey:
        """Its `key` is shown only in this answer."""
        return self._send(deployment.create_key(name, scopes))

    def revoke(self, key_id: str) -> None:
        self._send(deployment.revoke_key(key_id))


class Models(Resource):
    def list(self) -> Pages[Model]:
        return self._pages(models.page)

    def get(self, name: str) -> Model:
        return self._send(models.get(name))

    def create(self, name: str, backbone: str | None = None) -> Model:
        """Takes minutes if the backbone is new to the service."""
        return self._send(models.create(name, backbone))

    def delete(self, name: str) -> None:
        """With all that belongs to it, for good."""
        self._send(models.delete(name))

    def export(self, name: str, file: File) -> int:
        """Write the model's archive to a file, as it arrives; the number of its bytes."""
        with Target(file) as target:
            self._client.download(models.export(name), target)
        return target.size

    def import_(self, file: File, name: str | None = None) -> Model:
        """Send an archive, as it is read; under its own name unless another is given."""
        with Source(file) as source:
            return self._client.upload(models.import_(name), source)


class Webhooks(Resource):
    def list(self) -> Pages[Webhook]:
        return self._pages(webhooks.page)

    def create(self, url: str, events: Sequence[WebhookEvent] | None = None) -> NewWebhook:
        """An address that is told of these events, of all unless set. Its `secret` is shown only in this answer."""
        return self._send(webhooks.create(url, events))

    def delete(self, webhook_id: str) -> None:
        """With what waits to be delivered."""
        self._send(webhooks.delete(webhook_id))

    def test(self, webhook_id: str) -> Delivery:
        """Send it an event of type `webhook.test` now."""
        return self._send(webhooks.test(webhook_id))
