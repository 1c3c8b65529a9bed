"""Teaching over HTTP: decode the uploads, embed them, and publish a class; one change of a model at a time."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from weakref import WeakValueDictionary

import torch
from anyio.to_thread import run_sync
from sqlalchemy.orm import Session
from torch import Tensor

from core.images import Framing
from engine.decoding import DecodedImage, EncodedImage
from engine.network import Network
from engine.predictor import Predictor
from learners.correction import Correcting, Correction
from learners.stored_images import VIEWS_AT_ONCE, encoded, stored_encoded, views_to_teach_with
from learners.taught_answer import Idempotency, Outcome
from learners.teaching import Lesson, Teaching
from learners.version_loader import LoadedVersion
from service.engine_spans import watch_of_request
from service.problems import Problem
from service.uploads import Upload
from store.errors import LimitReached, NameTaken
from store.models import ClassRow, Version
from tracing.spans import span

Also = Callable[[Session], None]


def _nothing(_: Session) -> None: ...


class Teacher:
    """One change of a model at a time in this process: two would only overtake each other at the database."""

    def __init__(self, teaching: Teaching, predictor: Predictor) -> None:
        self.teaching = teaching
        self.correcting = Correcting(teaching)
        self.predictor = predictor
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # of models that change now
        self._in_flight: set[tuple[str, str]] = set()

    async def teach(
        self,
        model: str,
        name: str,
        uploads: Sequence[Upload],
        request_id: str,
        key: str | None = None,
        also: Also = _nothing,
    ) -> Outcome:
        """A new class. `also` is done in the same transaction."""

        idempotency = await _idempotency(key, "teach", name, uploads)

        async def work() -> Outcome:
            head = await run_sync(self.teaching.cache.active, model)
            await run_sync(self.teaching.require_free, head.model_id, name)
            new = await self._decode(uploads, head.network.framing)
            features = _Features(self.predictor, [one.view for one in new])
            await features.compute(head.network)  # before the lock: callers share the engine
            lesson = Lesson(uploads, [one.small_form for one in new], features.under, request_id, idempotency, also)
            async with self._lock(model):
                return await run_sync(self.teaching.teach, model, name, lesson)

        return await self._once(model, idempotency, work)

    async def add_shots(
        self,
        model: str,
        class_id: int,
        uploads: Sequence[Upload],
        request_id: str,
        key: str | None = None,
        also: Also = _nothing,
    ) -> Outcome:
        """More shots of a class; it waits for a session again. `also` is done in the same transaction."""

        idempotency = await _idempotency(key, "shots", str(class_id), uploads)

        async def work() -> Outcome:
            head = await run_sync(self.teaching.cache.active, model)
            stored = await run_sync(self.teaching.stored_shots, head.model_id, class_id, len(uploads))
            new = await self._decode(uploads, head.network.framing)
            augmented = len(new[0].view) - 1
            old = await self._decode_stored(stored, head.network.framing, augmented)
            features = _Features(self.predictor, [one.view for one in (*old, *new)])
            await features.compute(head.network)
            lesson = Lesson(uploads, [one.small_form for one in new], features.under, request_id, idempotency, also)
            async with self._lock(model):
                return await run_sync(self.teaching.add_shots, model, class_id, len(stored), lesson)

        return await self._once(model, idempotency, work)

    async def correct(self, model: str, correction: Correction, request_id: str) -> Outcome:
        """Delete or move a shot, or merge a class into another; the classes wait for a session again."""
        correcting = self.correcting
        head = await run_sync(self.teaching.cache.active, model)
        plan = await run_sync(correcting.plan, head.model_id, correction)
        augmented = views_to_teach_with(plan.fewest)
        decoded = await self._decode_stored(plan.shots, head.network.framing, augmented)
        features = _Features(self.predictor, [one.view for one in decoded])
        await features.compute(head.network)
        async with self._lock(model):
            return await run_sync(correcting.correct, model, plan, features.under, request_id)

    async def delete(self, model: str, class_id: int) -> None:
        async with self._lock(model):
            await run_sync(self.teaching.delete, model, class_id)

    async def rename(self, model: str, class_id: int, name: str) -> tuple[ClassRow, LoadedVersion]:
        async with self._lock(model):
            return await run_sync(self.teaching.rename, model, class_id, name)

    async def activate(self, model: str, number: int, request_id: str) -> Version:
        async with self._lock(model):
            return await run_sync(self.teaching.activate, model, number, request_id)

    def _lock(self, model: str) -> asyncio.Lock:
        return self._locks.setdefault(model, asyncio.Lock())

    async def _once(self, model: str, key: Idempotency | None, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """The answer of the same request before, if there is one. Two requests with one key do not run at a time."""
        if key is None:
            return await work()
        known = await run_sync(self.teaching.recall, model, key)
        if known is not None:
            return known
        mark = (model, key.key)
        if mark in self._in_flight:
            raise _in_flight(key.key)
        self._in_flight.add(mark)
        try:
            return await work()
        except (NameTaken, LimitReached):  # by the same request, which another replica has answered since
            known = await run_sync(self.teaching.recall, model, key)
            if known is None:
                raise
            return known
        finally:
            self._in_flight.discard(mark)

    async def _decode(self, uploads: Sequence[Upload], framing: Framing) -> list[DecodedImage]:
        augmented, max_pixels = views_to_teach_with(len(uploads)), self.teaching.settings.max_pixels

        def load(upload: Upload) -> EncodedImage:
            return encoded(upload.data, framing, augmented, max_pixels, keep_small_form=True)

        with span("decode", images=len(uploads)):
            return await asyncio.wrap_future(self.predictor.decoder.decode_uploads(uploads, load))

    async def _decode_stored(self, keys: Sequence[int], framing: Framing, augmented: int) -> list[DecodedImage]:
        def load(key: int) -> EncodedImage:
            return stored_encoded(self.teaching.stored_shot(key), framing, augmented)

        with span("decode", images=len(keys)):
            return await asyncio.wrap_future(self.predictor.decoder.decode(keys, load))


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
    """Features of images under any network, computed once for each network."""

    def __init__(self, predictor: Predictor, images: Sequence[Tensor]) -> None:
        self.predictor = predictor
        self.images = images  # each (v, 3, s, s)
        self._known: dict[Network, Tensor] = {}

    async def compute(self, network: Network) -> None:
        """Without a thread that waits."""
        if not self.images:
            return
        watch = watch_of_request(len(self.images))
        parts = [await asyncio.wrap_future(self.predictor.features(network, some, watch)) for some in self._steps()]
        self._known[network] = self._joined(parts)

    def under(self, network: Network) -> Tensor:
        """(n, v, M), from a thread. Waits only if the network is not the one they were computed under."""
        if not self.images:
            return torch.zeros(0, 1, network.dim)
        if network not in self._known:
            parts = [self.predictor.features(network, some).result() for some in self._steps()]
            self._known[network] = self._joined(parts)
        return self._known[network]

    def _steps(self) -> Iterator[list[Tensor]]:
        """Views of a few images at a time, so that predictions come between."""
        step = max(1, VIEWS_AT_ONCE // len(self.images[0]))
        for start in range(0, len(self.images), step):
            yield [view for image in self.images[start : start + step] for view in image]

    def _joined(self, parts: Sequence[list[Tensor]]) -> Tensor:
        features = torch.stack([one for part in parts for one in part])
        return features.view(len(self.images), -1, features.shape[-1])
