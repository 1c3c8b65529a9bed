"""`protoquad export-edge`: a version as one graph for ONNX runtimes or OpenVINO, which answers as the service does."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from engine.backbone_cache import BackboneCache, choose_device
from engine.edge.graph import Format, open_edge_graph, require_packages
from learners.edge_export import EdgeVersion, Parity, compare, edge_version, stored_images
from protoquad import logs
from protoquad.plain_errors import Refused, plain_errors, settings
from protoquad.progress_bar import progress_bar
from protoquad.ready_database import ready_database
from protoquad.whole_files import embedded_file, plain_file_errors, put_in_place, require_place
from store import names
from store.database import Database
from store.row_progress import Progress
from store.settings import Settings

MEGABYTE = 2**20
DIFFERS = 1  # exit code
SHOWN = 5  # images with another answer that are named
ENDINGS: dict[Format, str] = {"onnx": ".onnx", "openvino": ".xml"}


def export_edge(
    model: Annotated[str, typer.Argument(help="The model to write.")],
    images: Annotated[
        list[Path] | None, typer.Argument(help="More images to check, as `--check *.jpg` gives them.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = "onnx",
    version: Annotated[
        int | None, typer.Option(min=0, help="Its version; the active one unless set.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to; MODEL-VERSION with the format's ending unless set.", show_default=False),
    ] = None,
    check: Annotated[
        list[Path] | None,
        typer.Option(help="Images to compare answers on, beside stored ones.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
) -> None:
    """Write a version as one graph, from pixels to answer. Compares it with the service, and fails if it differs.

    For OpenVINO there are two files: FILE.xml and FILE.bin.
    """
    with plain_errors("stopped; no graph was written"):
        require_packages()
        chosen, name = settings(), names.model_name(model)
        logs.set_up(chosen)
        files = [*(check or []), *(images or [])]
        own = embedded_file(chosen)
        with ready_database(chosen) as database:
            found = _version(database, chosen, name, version)
            file = out or Path(f"{name}-{found.loaded.number}{ENDINGS[form]}")
            with plain_file_errors(file):
                for place in _places(file, form):
                    require_place(place, own, force=force)
                parity = _export(database, found, file.resolve(), form, files, force=force)
        _report(found, file, form, parity)


def _version(database: Database, chosen: Settings, model: str, number: int | None) -> EdgeVersion:
    device = choose_device(chosen.device)
    cache = BackboneCache(device, chosen.engine, chosen.prepared, chosen.prepare_seconds, weights=chosen.weights)
    return edge_version(database, cache, model, number)


def _places(file: Path, form: Format) -> list[Path]:
    """All that is written; the file itself comes last, so that it is never there without the others."""
    if form == "onnx":
        return [file]
    if file.suffix != ".xml":
        raise Refused(f"{file} is no name for an OpenVINO graph; it must end in .xml")
    return [file.with_suffix(".bin"), file]


def _export(
    database: Database, found: EdgeVersion, file: Path, form: Format, checked: Sequence[Path], *, force: bool
) -> Parity:
    """Written to a temporary folder first, and renamed once it has answered as the service does."""
    images = _images(database, found, checked)
    with TemporaryDirectory(dir=file.parent, prefix=".protoquad-export-") as folder:
        written = Path(folder) / file.name
        found.write(written, form)
        with progress_bar("checking") as progress:
            parity = compare(found.loaded, open_edge_graph(written, form), _counted(images, progress))
        if parity.holds:
            if force:
                file.unlink(missing_ok=True)
            for source, place in zip(_places(written, form), _places(file, form), strict=True):
                put_in_place(source, place, force=force)
    return parity


def _images(database: Database, found: EdgeVersion, checked: Sequence[Path]) -> list[tuple[str, bytes]]:
    stored = stored_images(database, found.loaded)
    images = [(f"stored image {place}", data) for place, data in enumerate(stored, 1)]
    images += [(str(path), path.read_bytes()) for path in checked]
    if not images:
        raise Refused("no image of this model is stored to check the graph with; name some with --check")
    return images


def _counted(images: Sequence[tuple[str, bytes]], progress: Progress) -> Iterator[tuple[str, bytes]]:
    for place, image in enumerate(images):
        progress(place, len(images))
        yield image


def _report(found: EdgeVersion, file: Path, form: Format, parity: Parity) -> None:
    loaded = found.loaded
    _print(str(parity))
    if not parity.holds:
        _print(f"they differ most for: {'; '.join(parity.worst[:SHOWN])}")
        Console(stderr=True).print("error: the graph does not answer as the service does; nothing was written")
        raise typer.Exit(DIFFERS)
    size = sum(place.stat().st_size for place in _places(file, form)) / MEGABYTE
    number = len(loaded.classifier)
    what = f"version {loaded.number} of model '{loaded.model}' with {number} {'class' if number == 1 else 'classes'}"
    _print(f"{what} is in {file} ({size:,.1f} MB)")


def _print(line: str) -> None:
    Console().print(line, highlight=False, markup=False, soft_wrap=True)
