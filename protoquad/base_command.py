"""`protoquad base DIR`: a base session from a folder of class folders."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from core import backbones
from core.progress import Report
from engine.backbone_cache import BackboneCache, choose_device
from learners.base_folder import ClassFolder, read_folder
from learners.base_images import Advance, Skipped
from learners.base_publishing import PublishedBase, find_target, publish_base
from learners.base_run import learn_base
from learners.base_training import BaseResult
from messaging.notifier import make_notifier
from protoquad.home_folder import make_home
from protoquad.plain_errors import Refused, plain_errors, settings
from protoquad.progress_bar import counting_bar, training_bar
from protoquad.ready_database import ready_database
from store import catalogue, names
from store.database import Database
from store.errors import Conflict
from store.settings import Settings

SHOWN = 20  # skipped files that are named; the rest is a number


def base(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with one folder of images per class.")],
    model: Annotated[str, typer.Option(help="The model to train; created if it does not exist.")] = catalogue.DEFAULT,
    backbone: Annotated[
        str | None,
        typer.Option(
            help=f"Of a new model: one of {', '.join(backbones.NAMES)}; PROTOQUAD_BACKBONE unless set.",
            show_default=False,
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=0, help="How often training passes over all images; 0 keeps the weights.")
    ] = None,
) -> None:
    """Learn a model's first classes from many images. The service may run meanwhile and picks up the result."""
    with plain_errors("stopped; nothing was written"):
        chosen = settings()
        folders = read_folder(directory)
        try:
            with ready_database(chosen) as database:
                _BaseSession(database, chosen, names.model_name(model), folders).run(backbone, epochs)
        except OSError as error:
            raise Refused(f"{error.filename or chosen.home}: {error.strerror or error}") from error


class _BaseSession:
    """Check, read, train, publish; prints each step."""

    def __init__(self, database: Database, chosen: Settings, model: str, folders: Sequence[ClassFolder]) -> None:
        self.database = database
        self.settings = chosen
        self.model = model
        self.folders = folders
        self.console = Console()

    def run(self, backbone: str | None, epochs: int | None) -> None:
        started, chosen = time.monotonic(), self.settings
        name = self._backbone(backbone)
        device = choose_device(chosen.device)
        cache = BackboneCache(device, chosen.engine, chosen.prepared, chosen.prepare_seconds, weights=chosen.weights)
        result = self._train(cache, name, epochs)
        published = publish_base(self.database, chosen, self.model, result)
        with closing(make_notifier(chosen.broker_url)) as notifier:
            notifier.model_changed(self.model)
        self._summarise(published, result, time.monotonic() - started)

    def _backbone(self, asked: str | None) -> str:
        """Raises, before an hour is spent, if the result could not be published after it."""
        new = [folder.name for folder in self.folders]
        with self.database.read() as db:
            target = find_target(db, self.model, self.settings, new)
        if target.backbone is not None and asked not in (None, target.backbone):
            raise Conflict(
                f"model '{self.model}' stands on {target.backbone}, not on {asked}; leave --backbone away, "
                "or name another model"
            )
        return target.backbone or asked or self.settings.backbone

    def _train(self, cache: BackboneCache, name: str, epochs: int | None) -> BaseResult:
        make_home(self.settings.home)
        return learn_base(self.folders, cache, name, epochs, self.settings, self)

    def reading(self, files: int, classes: int) -> AbstractContextManager[Advance]:
        self._print(f"reading {_counted(files, 'file')} of {_counted(classes, 'class', 'classes')}")
        return counting_bar("reading", files)

    def training(self, images: int) -> AbstractContextManager[Report]:
        self._print(f"training on {_counted(images, 'image')}")
        return training_bar("training")

    def check(self) -> None:
        """A person stops it with Ctrl-C."""

    def _summarise(self, published: PublishedBase, result: BaseResult, seconds: float) -> None:
        held_out = len(result.guard.data) if result.guard else 0
        learned = _counted(published.classes, "class", "classes")
        self._print(
            f"version {published.version} of model '{self.model}': {learned} from "
            f"{_counted(result.images, 'image')} in {seconds:.0f} s"
        )
        if published.accuracy is not None:
            self._print(f"accuracy on {_counted(held_out, 'image')} held out: {published.accuracy:.1f} %")
        if published.kept:
            self._print(f"kept {_counted(published.kept, 'class', 'classes')} taught before")
        if published.classes == 1:
            self._print("there is only one class, so there is nothing to tell apart: the network was not trained")
        self._list_skipped(result.skipped)

    def _list_skipped(self, skipped: Sequence[Skipped]) -> None:
        if skipped:
            self._print(f"skipped {_counted(len(skipped), 'file')}:")
        for one in skipped[:SHOWN]:
            self._print(f"  {one.file}: {one.reason}")
        if len(skipped) > SHOWN:
            self._print(f"  and {len(skipped) - SHOWN:,} more")

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
