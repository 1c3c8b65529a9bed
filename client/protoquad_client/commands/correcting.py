"""Makes an image a shot of a class, wherever the service has it already: as another class's shot, or in the inbox."""

import hashlib
from dataclasses import dataclass
from typing import Literal

from protoquad_client import Class, Client, InvalidImage, Prediction
from protoquad_client.answers import SessionState, Taught
from protoquad_client.commands.class_folders import class_name
from protoquad_client.commands.image_files import ImageFile
from protoquad_client.commands.sent_images import SentImage, read_images
from protoquad_client.commands.terminal import percent, printable
from protoquad_client.operations import classes, inbox, shots

SAME = 0.01  # an image is nearer to itself than this, whatever the rounding
State = Literal["added", "moved", "named", "known", "refused"]


@dataclass(frozen=True)
class Corrected:
    """What has become of an image, and what the service said about it before."""

    image: str
    state: State
    text: str
    label: str | None = None
    class_id: int | None = None
    version: int | None = None


class Correcting:
    """One image after another; the first makes the class if it is new."""

    def __init__(self, client: Client, name: str, known: Class | None) -> None:
        self.client = client
        self.name = class_name(name)
        self.class_id = known.id if known else None
        self.active = client.models.get(client.model_name).version
        self.samples = {sample.sha256: sample.id for sample in client.inbox.list()}

    def correct(self, file: ImageFile) -> Corrected:
        images, refused = read_images([file], self.client.config)
        if refused:
            return Corrected(file.shown, "refused", f"refused: {refused[0].reason}")
        try:
            # By its number: what a named version makes of an image is a question, and is not kept in the inbox.
            before = self.client.predict(images[0].image.data, explain=True, version=self.active)
            return self._correct(images[0], before)
        except InvalidImage as error:
            reason = error.images[0].reason if error.images else str(error)
            return Corrected(file.shown, "refused", f"refused: {reason}")

    def _correct(self, image: SentImage, before: Prediction) -> Corrected:
        shown, quoted = image.file.shown, f"'{printable(self.name)}'"
        stored = self._stored(image, before)
        if stored is not None and stored[0] == self.class_id:
            return Corrected(shown, "known", f"is a shot of {quoted} already", before.label, self.class_id)
        state, taught = self._made_shot(image, stored)
        self.class_id = taught.class_.id
        text = f"was {_answer(before)}; is a shot of {quoted} now ({state}), which version {taught.version} knows"
        return Corrected(shown, state, text, before.label, self.class_id, taught.version)

    def _digests(self, image: SentImage) -> set[str]:
        """As the service may know it: from teaching, or from a prediction, for which it is scaled down further."""
        (predicted,) = self.client.config.predicted([image.image.data])
        return {image.digest, hashlib.sha256(predicted.data).hexdigest()}

    def _stored(self, image: SentImage, answer: Prediction) -> tuple[int, int] | None:
        """The ids of class and shot if the image itself is among the shots that it is nearest to."""
        for near in answer.neighbours or ():
            if near.shot_id > 0 and near.distance < SAME:
                shot = self.client.shots.get(near.class_id, near.shot_id)
                if shot.sha256 in self._digests(image):
                    return near.class_id, near.shot_id
        return None

    def _made_shot(self, image: SentImage, stored: tuple[int, int] | None) -> tuple[State, Taught[SessionState]]:
        sample = next((self.samples[one] for one in self._digests(image) if one in self.samples), None)
        new = None if self.class_id else self.name
        if stored is not None:
            return "moved", self.client.send(shots.move(*stored, to=self.class_id, to_new=new))
        if sample is not None:
            return "named", self.client.send(inbox.resolve([sample], class_id=self.class_id, name=new))
        if self.class_id is None:
            return "added", self.client.send(classes.teach(self.name, [image.image]))
        return "added", self.client.send(classes.add_shots(self.class_id, [image.image]))


def _answer(before: Prediction) -> str:
    return "unknown" if before.label is None else f"'{printable(before.label)}' ({percent(before.confidence)})"
