"""Teaches classes, each exactly once however often it is started.

The service is the only record. A class that it knows is compared with the images at hand by their digests. A request
that was on its way when this process was killed had an idempotency key made of model, name and digests: the same
request again waits until that one is answered, and gets its answer. That answer is believed only if the class is there:
somebody may have deleted it since.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from protoquad_client import Client, errors
from protoquad_client.answers import Class, SessionState, Taught
from protoquad_client.commands.class_folders import ClassFolder
from protoquad_client.commands.image_files import Refusal
from protoquad_client.commands.sent_images import SentImage, fitting, read_images
from protoquad_client.commands.terminal import counted, is_text
from protoquad_client.operations import classes as operations

PATIENCE = 60.0  # seconds in which a busy service is asked again
# What is wrong with one class; the others go on.
OF_ONE_CLASS = (
    *(errors.InvalidName, errors.InvalidImage, errors.InvalidRequest, errors.NoImages, errors.TooManyImages),
    *(errors.LimitReached, errors.BodyTooLarge, errors.Conflict, errors.NotFound),
)
FOR_NOW = (errors.QueueFull, errors.Busy, errors.IdempotencyKeyInFlight, errors.DatabaseUnavailable)
UNUSABLE = "cannot be taught: none of its images can be used"
NOT_TEXT = "cannot be taught: its name is not text in UTF-8; rename it"

State = Literal["taught", "added", "known", "incomplete", "refused"]
Answer = Taught[SessionState]


@dataclass(frozen=True)
class Outcome:
    """What has become of a class and its images."""

    name: str
    state: State
    images: int  # that the service has now, of those at hand
    text: str
    class_id: int | None = None
    version: int | None = None
    session: int | None = None  # that refines it
    refused: tuple[Refusal, ...] = ()
    left_out: int = 0  # images beyond what the service takes
    outliers: tuple[Refusal, ...] = ()  # they count all the same

    @property
    def complete(self) -> bool:
        return self.state not in ("incomplete", "refused") and not self.refused


class ClassTeaching:
    """Asks the service once which classes and limits it has. With `pretend` nothing is sent that changes it."""

    def __init__(self, client: Client, *, add: bool = False, pretend: bool = False) -> None:
        self.client = client
        self.add = add
        self.pretend = pretend
        self.limits = client.about().limits
        self.known = {one.name: one for one in client.classes.list()}

    def teach(self, folder: ClassFolder) -> Outcome:
        """The first images, if they are more than a class or a request may have: always the same ones."""
        images, unread = read_images(folder.images[: self.limits["max_shots"]], self.client.config)
        chosen = fitting(images, self.limits["max_request_bytes"])
        left_out = len(folder.images) - len(unread) - len(chosen)
        outcome = self._teach(folder.name, chosen)
        return replace(outcome, refused=(*unread, *outcome.refused), left_out=left_out)

    def _teach(self, name: str, images: Sequence[SentImage]) -> Outcome:
        if not images:
            return Outcome(name, "refused", 0, UNUSABLE)
        if not is_text(name):
            return Outcome(name, "refused", 0, NOT_TEXT)
        try:
            known = self.known.get(name)
            if known is None:
                try:
                    return self._new(name, images)
                except errors.NameTaken:  # meanwhile, by another
                    known = self.client.classes.find(name)
                    if known is None:
                        raise
            return self._known(known, images)
        except OF_ONE_CLASS as error:
            return Outcome(name, "refused", 0, f"cannot be taught: {error}")

    def _new(self, name: str, images: Sequence[SentImage]) -> Outcome:
        def send(chosen: Sequence[SentImage], key: str | None) -> Answer:
            return self.client.send(operations.teach(name, [one.image for one in chosen], key))

        def is_there(answer: Answer, _: Sequence[SentImage]) -> bool:
            return self.client.classes.get(answer.class_.id).name == answer.class_.name

        return self._sent(name, "taught", images, _Change(("teach", self.client.model_name, name), send, is_there))

    def _known(self, known: Class, images: Sequence[SentImage]) -> Outcome:
        """Sends only what the class does not have, and only if it was asked to add."""
        stored = self._digests(known.id)
        new = [one for one in images if one.digest not in stored]
        have = len(images) - len(new)
        if not new:
            text = f"has {'this image' if have == 1 else f'these {have} images'} already"
            return Outcome(known.name, "known", have, text, known.id)
        if not self.add:
            has = f"has {have} of these {len(images)} images" if have else f"has {counted(known.shots, 'other shot')}"
            missing = [Refusal(one.file.shown, "its class exists without it; --add sends it") for one in new if have]
            text = f"exists and {has}; --add adds the rest"
            return Outcome(known.name, "incomplete", have, text, known.id, refused=tuple(missing))

        def send(chosen: Sequence[SentImage], key: str | None) -> Answer:
            return self.client.send(operations.add_shots(known.id, [one.image for one in chosen], key))

        def is_there(_: Answer, chosen: Sequence[SentImage]) -> bool:
            return {one.digest for one in chosen} <= self._digests(known.id)

        change = _Change(("shots", self.client.model_name, str(known.id)), send, is_there)
        return self._sent(known.name, "added", new, change)

    def _digests(self, class_id: int) -> set[str]:
        return {shot.sha256 for shot in self.client.shots.list(class_id)}

    def _sent(
        self, name: str, state: State, images: Sequence[SentImage], change: "_Change", refused: Sequence[Refusal] = ()
    ) -> Outcome:
        """Without the images that the service cannot use, which it names."""
        if self.pretend:
            return Outcome(name, state, len(images), f"would be sent with {counted(len(images), 'image')}")
        if not images:
            return Outcome(name, "refused", 0, UNUSABLE, refused=tuple(refused))
        try:
            answer = change.made_with(images)
        except errors.InvalidImage as error:
            bad = {one.index: one.reason for one in error.images if 0 <= one.index < len(images)}
            if not bad:
                raise
            named = [Refusal(images[index].file.shown, reason) for index, reason in sorted(bad.items())]
            left = [one for index, one in enumerate(images) if index not in bad]
            return self._sent(name, state, left, change, [*refused, *named])
        return _outcome(name, state, answer, images, refused)


def _outcome(name: str, state: State, answer: Answer, sent: Sequence[SentImage], refused: Sequence[Refusal]) -> Outcome:
    class_, number = answer.class_, len(sent)
    text = f"taught with {counted(number, 'image')}"
    if state == "added":
        text = f"has {counted(number, 'more image')}, {class_.shots} in all"
    outliers = [Refusal(sent[one.index].file.shown, one.message) for one in answer.outliers if one.index < number]
    about = {"class_id": class_.id, "version": answer.version, "session": answer.session.id}
    return Outcome(name, state, number, text, **about, refused=tuple(refused), outliers=tuple(outliers))


@dataclass(frozen=True)
class _Change:
    """A request that does its work once, whichever process sends it."""

    what: tuple[str, ...]  # it is about, for its idempotency key
    send: Callable[[Sequence[SentImage], str | None], Answer]
    is_there: Callable[[Answer, Sequence[SentImage]], bool]

    def made_with(self, images: Sequence[SentImage]) -> Answer:
        """An answer that was given to an earlier run is of no use if its work was undone since: then without a key."""
        parts = [*self.what, *(one.digest for one in images)]
        key = f"pq-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()}"
        answer = self._patiently(images, key)
        try:
            if self.is_there(answer, images):
                return answer
        except errors.NotFound:
            pass
        return self._patiently(images, None)

    def _patiently(self, images: Sequence[SentImage], key: str | None) -> Answer:
        """Asks a busy service again."""
        deadline = time.monotonic() + PATIENCE
        while isinstance(answer := self._tried(images, key), errors.Problem):
            seconds = answer.retry_after or 1.0
            if time.monotonic() + seconds > deadline:
                raise answer
            time.sleep(seconds)
        return answer

    def _tried(self, images: Sequence[SentImage], key: str | None) -> Answer | errors.Problem:
        try:
            return self.send(images, key)
        except FOR_NOW as error:
            return error
