"""Teaching: pictures in, a servable class out, one transaction in between.

A class is written on top of the version that this process serves. Where another process has moved on, this one catches
up first and tries again; pictures are looked at anew only if the network itself has changed.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar
from weakref import WeakValueDictionary

import torch
from anyio.to_thread import run_sync
from torch import Tensor

from core.images import Framing
from engine.decoding import DecodedImage, EncodedImage
from engine.network import Network
from engine.predictor import Predictor
from engine.version_cache import LoadedVersion, VersionCache
from learners.stored_images import VIEWS_AT_ONCE, encoded, stored_encoded, views_to_teach_with
from learners.teaching import Changes, Idempotency, Lesson, Moved, Outcome
from service.errors import Problem
from service.schemas import ClassBody
from service.uploads import Upload
from store.errors import LimitReached, NameTaken
from store.models import Version
from store.settings import Settings

Answer = TypeVar("Answer")
ATTEMPTS = 50


class Teacher:
    """Changes what a model knows, one change of a model at a time in this process."""

    def __init__(self, changes: Changes, settings: Settings, version_cache: VersionCache, predictor: Predictor) -> None:
        self.changes = changes
        self.settings = settings
        self.version_cache = version_cache
        self.predictor = predictor
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # of models that change now
        self._in_flight: set[tuple[str, str]] = set()

    async def teach(
        self, model: str, name: str, uploads: Sequence[Upload], request_id: str, key: str | None = None
    ) -> Outcome:
        """A new class."""
        lesson = Lesson(uploads, request_id, await _idempotency(key, "teach", name, uploads))
        return await self._once(model, lesson.again, lambda: self._teach(model, name, lesson))

    async def add_shots(
        self, model: str, class_id: int, uploads: Sequence[Upload], request_id: str, key: str | None = None
    ) -> Outcome:
        """More pictures of a class; it waits for a session again."""
        lesson = Lesson(uploads, request_id, await _idempotency(key, "shots", str(class_id), uploads))
        return await self._once(model, lesson.again, lambda: self._add_shots(model, class_id, lesson))

    async def delete(self, model: str, class_id: int) -> None:
        async with self._lock(model):
            await self._on_head(model, lambda served: run_sync(self.changes.delete, served, class_id))

    async def rename(self, model: str, class_id: int, name: str) -> ClassBody:
        async with self._lock(model):
            return await run_sync(self.changes.rename, model, class_id, name)

    async def activate(self, model: str, number: int, request_id: str) -> Version:
        async with self._lock(model):
            return await run_sync(self.changes.activate, model, number, request_id)

    def _lock(self, model: str) -> asyncio.Lock:
        return self._locks.setdefault(model, asyncio.Lock())

    async def _once(self, model: str, again: Idempotency | None, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        if again is None:
            return await work()
        known = await run_sync(self.changes.recalled, model, again)
        if known is not None:
            return known
        mark = (model, again.key)
        if mark in self._in_flight:
            raise _in_flight(again.key)
        self._in_flight.add(mark)
        try:
            return await work()
        except (NameTaken, LimitReached):  # by the same request, which was answered since we looked
            known = await run_sync(self.changes.recalled, model, again)
            if known is None:
                raise
            return known
        finally:
            self._in_flight.discard(mark)

    async def _teach(self, model: str, name: str, lesson: Lesson) -> Outcome:
        served = await run_sync(self.version_cache.current, model)
        await run_sync(self.changes.require_free, served.model_id, name)
        new = await self._seen(lesson.uploads, served.network.framing)
        features = _Features(self.predictor, [one.view for one in new])
        kept = replace(lesson, scaled=[one.small_form for one in new])

        def write(served: LoadedVersion, seen: Tensor) -> Outcome:
            return self.changes.teach(served, name, kept, seen)

        return await self._written(model, served, features, write)

    async def _add_shots(self, model: str, class_id: int, lesson: Lesson) -> Outcome:
        served = await run_sync(self.version_cache.current, model)
        framing = served.network.framing
        stored = await run_sync(self.changes.stored_shots, served.model_id, class_id, len(lesson.uploads))
        new = await self._seen(lesson.uploads, framing)
        augmented = new[0].view.shape[0] - 1

        def load(key: int) -> EncodedImage:
            return stored_encoded(self.changes.stored_shot(key), framing, augmented)

        old = await asyncio.wrap_future(self.predictor.decoder.decode(stored, load))
        features = _Features(self.predictor, [one.view for one in (*old, *new)])
        kept = replace(lesson, scaled=[one.small_form for one in new])

        def write(served: LoadedVersion, seen: Tensor) -> Outcome:
            return self.changes.add_shots(served, class_id, kept, len(stored), seen)

        return await self._written(model, served, features, write)

    async def _written(
        self,
        model: str,
        served: LoadedVersion,
        features: "_Features",
        write: Callable[[LoadedVersion, Tensor], Outcome],
    ) -> Outcome:
        await features.under(served.network)  # before the lock: the long part is done side by side

        async def attempt(served: LoadedVersion) -> Outcome:
            seen = await features.under(served.network)
            return await run_sync(write, served, seen)

        async with self._lock(model):
            return await self._on_head(model, attempt)

    async def _on_head(self, model: str, work: Callable[[LoadedVersion], Awaitable[Answer]]) -> Answer:
        for _ in range(ATTEMPTS):
            try:
                return await work(await run_sync(self.version_cache.current, model))
            except Moved:
                await run_sync(self.version_cache.refresh, model)
        detail = "other replicas change this model all the time; try again in a moment"
        raise Problem(503, "The model is busy", detail, slug="busy", headers={"Retry-After": "1"})

    async def _seen(self, uploads: Sequence[Upload], framing: Framing) -> list[DecodedImage]:
        augmented = views_to_teach_with(len(uploads))

        def load(upload: Upload) -> EncodedImage:
            return encoded(upload.data, framing, augmented, self.settings.max_pixels, keep_small_form=True)

        return await asyncio.wrap_future(self.predictor.decoder.decode_uploads(uploads, load))


async def _idempotency(key: str | None, verb: str, subject: str, uploads: Sequence[Upload]) -> Idempotency | None:
    return None if key is None else Idempotency(key, await run_sync(_fingerprint, verb, subject, uploads))


def _fingerprint(verb: str, subject: str, uploads: Sequence[Upload]) -> str:
    digests = [hashlib.sha256(upload.data).hexdigest() for upload in uploads]
    return hashlib.sha256("\0".join([verb, subject, *digests]).encode()).hexdigest()


def _in_flight(key: str) -> Problem:
    detail = f"a request with the Idempotency-Key '{key}' is being answered; ask again in a moment"
    headers = {"Retry-After": "1"}
    return Problem(409, "The request is in flight", detail, slug="idempotency-key-in-flight", headers=headers)


class _Features:
    """Features of pictures under whichever network is asked for, computed once for each."""

    def __init__(self, predictor: Predictor, pictures: Sequence[Tensor]) -> None:
        self.predictor = predictor
        self.pictures = pictures  # each (v, 3, s, s)
        self._known: dict[Network, Tensor] = {}

    async def under(self, network: Network) -> Tensor:
        """(n, v, M)"""
        if network not in self._known:
            parts = []
            step = max(1, VIEWS_AT_ONCE // len(self.pictures[0]))
            for start in range(0, len(self.pictures), step):  # a few at a time, so that predictions come between
                some = torch.stack(list(self.pictures[start : start + step]))
                found = await asyncio.wrap_future(self.predictor.features(network, list(some.flatten(0, 1))))
                parts.append(torch.stack(found).unflatten(0, some.shape[:2]))
            self._known[network] = torch.cat(parts)
        return self._known[network]
