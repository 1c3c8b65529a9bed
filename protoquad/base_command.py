"""`protoquad base DIR`: a base session from a folder of class folders."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from core import backbones
from core.backbones import Backbone
from engine.backbone_cache import BackboneCache, chosen_device
from learners.base_folder import ClassFolder, read_folder
from learners.base_images import Skipped
from learners.base_publishing import Published, publish, situation
from learners.base_training import Learnt, base_config, learn, look_for
from messaging.notifier import make_notifier
from protoquad.home_folder import make_home
from protoquad.plain_errors import Refused, plain_errors, settings
from protoquad.progress_bar import counting_bar, training_bar
from protoquad.ready_database import ready_database
from service.errors import Problem
from service.uploads import clean_name, model_name
from store import catalogue
from store.database import Database
from store.errors import Conflict
from store.settings import Settings

SHOWN = 20  # skipped files that are named; the rest is a number


def base(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with one folder of pictures per class.")],
    model: Annotated[str, typer.Option(help="The model to learn; made if it does not exist.")] = catalogue.DEFAULT,
    backbone: Annotated[
        str | None,
        typer.Option(
            help=f"Of a new model: one of {', '.join(backbones.NAMES)}; PROTOQUAD_BACKBONE unless set.",
            show_default=False,
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=0, help="How often training sees every picture; 0 keeps the weights.")
    ] = None,
) -> None:
    """Learn a model's first classes from many pictures. The service may run meanwhile and picks up the result."""
    with plain_errors("stopped; nothing was written"):
        chosen = settings()
        folders = read_folder(directory, _class_name)
        try:
            with ready_database(chosen) as database:
                _BaseSession(database, chosen, _model_name(model), folders).run(backbone, epochs)
        except OSError as error:
            raise Refused(f"{error.filename or chosen.home}: {error.strerror or error}") from error


class _BaseSession:
    """Check, look, learn, publish; told step by step."""

    def __init__(self, database: Database, chosen: Settings, model: str, folders: Sequence[ClassFolder]) -> None:
        self.database = database
        self.settings = chosen
        self.model = model
        self.folders = folders
        self.console = Console()

    def run(self, backbone: str | None, epochs: int | None) -> None:
        started = time.monotonic()
        chosen = self.settings
        networks = BackboneCache(chosen_device(chosen.device), chosen.engine, chosen.prepared, chosen.prepare_seconds)
        learnt = self._learn(networks, networks.pretrained(self._backbone(backbone)), epochs)
        published = publish(self.database, self.settings, self.model, learnt)
        with closing(make_notifier(self.settings.broker_url)) as telling:
            telling.model_changed(self.model)
        self._tell(published, learnt, time.monotonic() - started)

    def _backbone(self, asked: str | None) -> str:
        """Refuses, before an hour is spent, what could not be written after it."""
        names = [folder.name for folder in self.folders]
        with self.database.read() as db:
            found = situation(db, self.model, self.settings, names)
        if found.backbone is not None and asked not in (None, found.backbone):
            raise Conflict(
                f"model '{self.model}' stands on {found.backbone}, not on {asked}; leave --backbone away, "
                "or name another model"
            )
        return found.backbone or asked or self.settings.backbone

    def _learn(self, networks: BackboneCache, backbone: Backbone, epochs: int | None) -> Learnt:
        config = base_config(backbone, epochs)
        files = sum(len(folder.files) for folder in self.folders)
        room = self.settings.home
        make_home(room)
        self._say(f"looking at {_counted(files, 'file')} of {_counted(len(self.folders), 'class', 'classes')}")
        with counting_bar("looking", files) as told:
            looked = look_for(
                self.folders, networks, backbone, config, room, max_pixels=self.settings.max_pixels, told=told
            )
        self._say(f"learning from {_counted(len(looked.training), 'picture')}")
        with training_bar("learning") as report:
            return learn(self.folders, looked, networks, backbone, config, report)

    def _tell(self, published: Published, learnt: Learnt, seconds: float) -> None:
        held_out = len(learnt.guard.data) if learnt.guard else 0
        learned = _counted(published.classes, "class", "classes")
        self._say(
            f"version {published.version} of model '{self.model}': {learned} from "
            f"{_counted(learnt.pictures, 'picture')} in {seconds:.0f} s"
        )
        if published.accuracy is not None:
            self._say(f"accuracy on {_counted(held_out, 'picture')} held out: {published.accuracy:.1f} %")
        if published.kept:
            self._say(f"kept {_counted(published.kept, 'class', 'classes')} taught before")
        if published.classes == 1:
            self._say("a single class has none to be told apart from: the network was not trained")
        self._tell_skipped(learnt.skipped)

    def _tell_skipped(self, skipped: Sequence[Skipped]) -> None:
        if skipped:
            self._say(f"skipped {_counted(len(skipped), 'file')}:")
        for one in skipped[:SHOWN]:
            self._say(f"  {one.file}: {one.reason}")
        if len(skipped) > SHOWN:
            self._say(f"  and {len(skipped) - SHOWN:,} more")

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _class_name(text: str) -> str:
    try:
        return clean_name(text)
    except Problem as problem:
        raise ValueError(problem.detail) from problem


def _model_name(text: str) -> str:
    try:
        return model_name(text)
    except Problem as problem:
        raise Refused(problem.detail) from problem
