"""Teaching: pictures in, a servable class out, one transaction in between.

A class is written on top of the version that this process serves. Where another process has moved on, this one catches
up first and tries again; pictures are looked at anew only if the network itself has changed.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from anyio.to_thread import run_sync
from sqlalchemy.orm import Session
from torch import Tensor

from core.bank import ClassId
from core.images import Framing
from learners.blobs import from_blob
from learners.openness import openness
from learners.pictures import AT_ONCE, STORED, views_of
from learners.teaching import Taught, openness_with, taught
from service.decoding import each, looked_at
from service.engine.batching import Batcher, Overloaded
from service.engine.network import Network
from service.engine.shelf import Served, Shelf
from service.errors import Problem, overloaded
from service.schemas import ClassBody, Outlier, SessionBody, TaughtBody
from service.uploads import Upload
from store import catalogue, classes, idempotency, sessions, versions
from store.classes import Picture
from store.database import Database
from store.errors import LimitReached, NameTaken
from store.models import ClassRow, Model, ModelId, SessionId, Version, VersionNumber
from store.settings import Settings
from store.versions import PrototypeRow

Answer = TypeVar("Answer")
ATTEMPTS = 50
FAR = "this picture lies far from the others of its class; is it the right one?"


class Moved(Exception):
    """The head is not the version that was worked on."""


@dataclass(frozen=True)
class Idempotency:
    key: str
    fingerprint: str


@dataclass(frozen=True)
class Outcome:
    """An answer, and the session to wait for."""

    body: dict[str, Any]
    session_id: SessionId | None


class Teacher:
    """Changes what a model knows, one change of a model at a time in this process."""

    def __init__(self, database: Database, settings: Settings, shelf: Shelf, batcher: Batcher) -> None:
        self.database = database
        self.settings = settings
        self.shelf = shelf
        self.batcher = batcher
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._in_flight: set[tuple[str, str]] = set()

    async def teach(
        self, model: str, name: str, uploads: Sequence[Upload], request_id: str, key: str | None = None
    ) -> Outcome:
        """A new class."""
        again = self._idempotency(key, "teach", name, uploads)
        return await self._once(model, again, lambda: self._teach(model, name, uploads, request_id, again))

    async def add_shots(
        self, model: str, class_id: int, uploads: Sequence[Upload], request_id: str, key: str | None = None
    ) -> Outcome:
        """More pictures of a class; it waits for a session again."""
        again = self._idempotency(key, "shots", str(class_id), uploads)
        return await self._once(model, again, lambda: self._add_shots(model, class_id, uploads, request_id, again))

    async def delete(self, model: str, class_id: int) -> None:
        async with self._locks[model]:
            await self._on_head(model, lambda served: run_sync(self._delete, served, class_id))

    async def rename(self, model: str, class_id: int, name: str) -> ClassBody:
        async with self._locks[model]:
            body = await run_sync(self._rename, model, class_id, name)
            await run_sync(self.shelf.refresh, model)
        return body

    async def activate(self, model: str, number: int, request_id: str) -> Version:
        async with self._locks[model]:
            version = await run_sync(self._activate, model, number, request_id)
            await run_sync(self.shelf.refresh, model)
        return version

    def _idempotency(self, key: str | None, *parts: Any) -> Idempotency | None:
        if key is None:
            return None
        verb, subject, uploads = parts
        digests = [hashlib.sha256(upload.data).hexdigest() for upload in uploads]
        return Idempotency(key, hashlib.sha256("\0".join([verb, subject, *digests]).encode()).hexdigest())

    async def _once(self, model: str, again: Idempotency | None, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        if again is None:
            return await work()
        known = await run_sync(self._recalled, model, again)
        if known is not None:
            return known
        mark = (model, again.key)
        if mark in self._in_flight:
            raise _in_flight(again.key)
        self._in_flight.add(mark)
        try:
            return await work()
        except (NameTaken, LimitReached):  # by the same request, which was answered since we looked
            known = await run_sync(self._recalled, model, again)
            if known is None:
                raise
            return known
        finally:
            self._in_flight.discard(mark)

    def _recalled(self, model: str, again: Idempotency) -> Outcome | None:
        with self.database.read() as db:
            row = catalogue.get(db, model)
            known = idempotency.recall(db, row.id, again.key, again.fingerprint)
            return Outcome(known.answer, known.session_id) if known else None

    async def _teach(
        self, model: str, name: str, uploads: Sequence[Upload], request_id: str, again: Idempotency | None
    ) -> Outcome:
        served = await run_sync(self.shelf.current, model)
        await run_sync(self._require_free, served.model_id, name)
        pictures = await self._views(uploads, served.network.framing)
        features = _Features(self.batcher, pictures)
        await features.under(served.network)
        async with self._locks[model]:

            async def attempt(served: Served) -> Outcome:
                seen = await features.under(served.network)
                work = partial(self._write_class, served, name, uploads, seen, request_id, again)
                return await run_sync(work)

            return await self._on_head(model, attempt)

    async def _add_shots(
        self, model: str, class_id: int, uploads: Sequence[Upload], request_id: str, again: Idempotency | None
    ) -> Outcome:
        served = await run_sync(self.shelf.current, model)
        stored = await run_sync(self._stored, served.model_id, class_id, len(uploads))
        new = await self._views(uploads, served.network.framing)
        old = await each(lambda picture: views_of(picture.data, served.network.framing, max_pixels=STORED), stored)
        features = _Features(self.batcher, [*old, *new])
        await features.under(served.network)
        async with self._locks[model]:

            async def attempt(served: Served) -> Outcome:
                seen = await features.under(served.network)
                work = partial(self._write_shots, served, class_id, uploads, len(stored), seen, request_id, again)
                return await run_sync(work)

            return await self._on_head(model, attempt)

    async def _on_head(self, model: str, work: Callable[[Served], Awaitable[Answer]]) -> Answer:
        for _ in range(ATTEMPTS):
            try:
                return await work(await run_sync(self.shelf.current, model))
            except Moved:
                await run_sync(self.shelf.refresh, model)
        detail = "other replicas change this model all the time; try again in a moment"
        raise Problem(503, "The model is busy", detail, slug="busy", headers={"Retry-After": "1"})

    async def _views(self, uploads: Sequence[Upload], framing: Framing) -> list[Tensor]:
        return await looked_at(uploads, partial(views_of, framing=framing, max_pixels=self.settings.max_pixels))

    def _require_free(self, model_id: ModelId, name: str) -> None:
        with self.database.read() as db:
            classes.require_free(db, model_id, name)

    def _stored(self, model_id: ModelId, class_id: int, more: int) -> list[Picture]:
        with self.database.read() as db:
            classes.get(db, model_id, class_id)
            stored = classes.shots_of(db, model_id, [class_id])
        if len(stored) + more > self.settings.max_shots:
            raise LimitReached(
                f"class {class_id} has {len(stored)} shots; {more} more would be beyond {self.settings.max_shots}"
            )
        return stored

    def _write_class(
        self,
        served: Served,
        name: str,
        uploads: Sequence[Upload],
        features: Tensor,
        request_id: str,
        again: Idempotency | None,
    ) -> Outcome:
        with self.database.write() as db:
            model = self._head(db, served)
            known = again and idempotency.recall(db, model.id, again.key, again.fingerprint)
            if known:
                return Outcome(known.answer, known.session_id)
            classes.require_free(db, model.id, name)
            if len(served.classifier) >= self.settings.max_classes:
                raise LimitReached(f"the model has {len(served.classifier)} classes, of {self.settings.max_classes}")
            class_id = ClassId(model.last_class + 1)
            new = taught(served.classifier, class_id, features)
            session = self._enqueue(db, model, request_id)
            row = classes.add(
                db,
                model,
                name,
                shots=len(uploads),
                since=VersionNumber(model.last_version + 1),
                session_id=session,
            )
            classes.add_shots(db, model.id, row.id, [upload.data for upload in uploads])
            version = self._provisional(db, model, served, class_id, new)
            outcome = self._outcome(db, row, session, version, new, uploads, 0)
            self._remember(db, model.id, again, outcome)
        self.shelf.advance(served, version, [new.row(row.id)], {**served.names, row.id: name})
        return outcome

    def _write_shots(
        self,
        served: Served,
        class_id: int,
        uploads: Sequence[Upload],
        already: int,
        features: Tensor,
        request_id: str,
        again: Idempotency | None,
    ) -> Outcome:
        own = ClassId(class_id)
        with self.database.write() as db:
            model = self._head(db, served)
            known = again and idempotency.recall(db, model.id, again.key, again.fingerprint)
            if known:
                return Outcome(known.answer, known.session_id)
            row = classes.get(db, model.id, class_id)
            if classes.stored_shots(db, model.id, class_id) != already:
                raise Problem(409, "Conflict", f"class {class_id} was given other shots at the same time; try again")
            earlier = self._earlier(db, served, row, already)
            new = taught(served.classifier, own, features if earlier is None else features[already:], earlier=earlier)
            row.shots, row.revision = new.shots, row.revision + 1
            session = self._enqueue(db, model, request_id)
            if earlier is None:
                row.status, row.session_id = "provisional", session
            classes.add_shots(db, model.id, class_id, [upload.data for upload in uploads])
            version = self._provisional(db, model, served, own, new)
            outcome = self._outcome(db, row, session, version, new, uploads, len(new.held_out) - len(uploads))
            self._remember(db, model.id, again, outcome)
        self.shelf.advance(served, version, [new.row(class_id)], served.names)
        return outcome

    def _earlier(self, db: Session, served: Served, row: ClassRow, already: int) -> Tensor | None:
        """The prototype of a class that more pictures stand behind than are stored: those of a base session."""
        if row.shots <= already:
            return None
        known = versions.prototype(db, row.model_id, served.number, row.id)
        return from_blob(known.vector) if known and known.vector else None

    def _delete(self, served: Served, class_id: int) -> None:
        with self.database.write() as db:
            model = self._head(db, served)
            classes.erase(db, model.id, class_id)
            if class_id not in served.classifier.known_ids:
                return
            held_out = {c: found for c, found in served.held_out.items() if c != class_id}
            open_world = openness(held_out, torch.zeros(0))
            gone = [PrototypeRow(class_id, None, 0, restart=True)]
            version = versions.add(
                db,
                model,
                "delete",
                parent=served.version,
                classes=len(served.classifier) - 1,
                temperature=served.version.temperature,
                threshold=open_world.threshold,
                details={"class": class_id, "unknown": open_world.details()},
                prototypes=gone,
            )
        self.shelf.advance(served, version, gone, served.names)

    def _rename(self, model: str, class_id: int, name: str) -> ClassBody:
        with self.database.write() as db:
            row = catalogue.locked(db, catalogue.get(db, model).id)
            renamed = classes.rename(db, row, class_id, name)
            served = self.shelf.current(model)
            return ClassBody.of(renamed, known=class_id in served.classifier.known_ids)

    def _activate(self, model: str, number: int, request_id: str) -> Version:
        with self.database.write() as db:
            row = catalogue.locked(db, catalogue.get(db, model).id)
            version = versions.activate(db, row, number, classes.living(db, row.id))
            known = set(versions.class_ids(db, row.id, version.number))
            if any(waiting.id in known for waiting in classes.waiting(db, row.id)):
                self._enqueue(db, row, request_id)  # the session that was theirs may have found another head
            return version

    def _head(self, db: Session, served: Served) -> Model:
        """The model's row, locked; raises `Moved` unless its head is the version at hand."""
        model = catalogue.locked(db, served.model_id)
        if model.head != served.number:
            raise Moved
        return model

    def _enqueue(self, db: Session, model: Model, request_id: str) -> SessionId:
        settings = self.settings
        return sessions.enqueue(
            db, model, delay=settings.session_delay, patience=settings.session_patience, request_id=request_id
        ).id

    def _provisional(self, db: Session, model: Model, served: Served, class_id: ClassId, new: Taught) -> Version:
        open_world = openness_with(served.classifier, served.held_out, class_id, new)
        return versions.add(
            db,
            model,
            "provisional",
            parent=served.version,
            classes=len(served.classifier) + (class_id not in served.classifier.known_ids),
            temperature=served.version.temperature,
            threshold=open_world.threshold,
            details={"class": class_id, "unknown": open_world.details()},
            prototypes=[new.row(class_id)],
        )

    def _outcome(
        self,
        db: Session,
        row: ClassRow,
        session: SessionId,
        version: Version,
        new: Taught,
        uploads: Sequence[Upload],
        before: int,
    ) -> Outcome:
        outliers = [
            Outlier(
                index=uploads[place - before].index,
                filename=uploads[place - before].filename,
                distance=round(float(new.held_out[place]), 6),
                message=FAR,
            )
            for place in new.outliers
            if place >= before
        ]
        body = TaughtBody.model_validate(
            {
                "class": ClassBody.of(row, known=True),
                "session": SessionBody.of(sessions.get(db, row.model_id, session)),
                "version": version.number,
                "outliers": outliers,
            }
        )
        return Outcome(body.model_dump(mode="json", by_alias=True), session)

    def _remember(self, db: Session, model_id: ModelId, again: Idempotency | None, outcome: Outcome) -> None:
        if again:
            idempotency.remember(
                db,
                model_id,
                again.key,
                again.fingerprint,
                status=202,
                answer=outcome.body,
                session_id=outcome.session_id,
            )


def _in_flight(key: str) -> Problem:
    detail = f"a request with the Idempotency-Key '{key}' is being answered; ask again in a moment"
    headers = {"Retry-After": "1"}
    return Problem(409, "The request is in flight", detail, slug="idempotency-key-in-flight", headers=headers)


class _Features:
    """Features of pictures under whichever network is asked for, computed once for each."""

    def __init__(self, batcher: Batcher, pictures: Sequence[Tensor]) -> None:
        self.batcher = batcher
        self.pictures = pictures  # each (v, 3, s, s)
        self._known: dict[Network, Tensor] = {}

    async def under(self, network: Network) -> Tensor:
        """(n, v, M)"""
        if network not in self._known:
            parts = []
            for start in range(0, len(self.pictures), AT_ONCE):  # a few at a time, so that predictions come between
                some = torch.stack(list(self.pictures[start : start + AT_ONCE]))
                found = await self._through(network, some.flatten(0, 1))
                parts.append(found.unflatten(0, some.shape[:2]))
            self._known[network] = torch.cat(parts)
        return self._known[network]

    async def _through(self, network: Network, views: Tensor) -> Tensor:
        try:
            return await asyncio.wrap_future(self.batcher.submit(network, views))
        except Overloaded as error:
            raise overloaded(error) from error
