"""What `protoquad doctor` checks of all that is stored: each check gives one finding, with what to do."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from protoquad_client.commands.findings import Finding
from sqlalchemy.exc import DBAPIError

from migrations import schema
from protoquad import home_folder
from protoquad.plain_errors import is_state_of_database, sentence_of
from protoquad.progress_bar import progress_bar
from protoquad.ready_database import opened_database
from protoquad.whole_files import embedded_file
from store import catalogue, integrity, versions
from store.database import Database, sqlite_file
from store.settings import Settings

SHOWN = 5  # items of one kind that are named; the rest is a number
GIGABYTE = 2**30
LITTLE_ROOM, NO_ROOM = GIGABYTE, GIGABYTE // 10  # free disk below which to warn, and below which teaching fails soon


def stored_findings(chosen: Settings) -> Iterator[Finding]:
    """The home folder and the database. One that cannot be opened is a finding too."""
    yield _home(chosen.home, sqlite_file(chosen.url))
    yield _disk(chosen.home.absolute())
    try:
        file = embedded_file(chosen)
        if file is not None:
            yield _deleted_images(file)
        with opened_database(chosen, may_create=False) as database:
            yield from _database_findings(database)
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        fix = ": start it, or correct PROTOQUAD_DATABASE_URL" if isinstance(error, DBAPIError) else ""
        yield Finding("error", "database", sentence + fix)


def _database_findings(database: Database) -> Iterator[Finding]:
    """The checks after the schema need this release's tables, and are skipped if it has others."""
    revision = _schema(database)
    yield _caught("pages", lambda: _pages(database))
    yield revision
    if revision.state != "error":
        yield _caught("references", lambda: _references(database))
        yield _caught("images", lambda: _images(database))
        yield _caught("models", lambda: _models(database))


def backbone_finding(prepared: Path) -> Finding:
    """Reading one loads its network, so torch is imported here and not before."""
    from engine.compiled_backbone import MANIFEST, CompiledBackbone
    from engine.errors import BrokenCompiledBackbone

    folders = sorted(manifest.parent for manifest in prepared.glob(f"*/{MANIFEST}"))
    broken = []
    for folder in folders:
        try:
            CompiledBackbone.read(folder)
        except (BrokenCompiledBackbone, OSError, RuntimeError) as error:
            broken.append(f"{folder} ({str(error).splitlines()[0]})")
    if broken:
        return Finding("warning", "backbones", f"{_named(broken)}: delete it; the next start prepares it again")
    if not folders:
        return Finding("ok", "backbones", "none is prepared yet: the first start does that, which may take a minute")
    return Finding("ok", "backbones", f"{_counted(len(folders), 'prepared backbone')} in {prepared} can be read")


def _home(home: Path, file: Path | None) -> Finding:
    if not home.exists():
        return Finding("ok", "home", f"{home.absolute()} is made when something is written there")
    warning = home_folder.open_to_others(home, file)
    if warning:
        return Finding("warning", "home", warning)
    return Finding("ok", "home", f"{home.absolute()} is readable by its owner only")


def _disk(home: Path) -> Finding:
    existing = next(folder for folder in (home, *home.parents) if folder.is_dir())
    free = shutil.disk_usage(existing).free
    text = f"{free / GIGABYTE:,.1f} GB are free where {home} is"
    if free < LITTLE_ROOM:
        return Finding("error" if free < NO_ROOM else "warning", "disk", f"{text}: make room, or teaching will fail")
    return Finding("ok", "disk", text)


def _deleted_images(file: Path) -> Finding:
    warning = home_folder.deleted_but_present(file)
    if warning:
        return Finding("warning", "deleted images", warning)
    return Finding("ok", "deleted images", "are overwritten in the database")


def _schema(database: Database) -> Finding:
    found, needed = schema.current(database), schema.head()
    if found == needed:
        return Finding("ok", "schema", f"is {found}, as this release needs it")
    what = "the database is empty" if found is None else f"is {found}, this release needs {needed}"
    fix = "run `protoquad migrate`, or install the release that made it; the checks below it were left out"
    return Finding("error", "schema", f"{what}: {fix}")


def _pages(database: Database) -> Finding:
    if not database.is_sqlite:
        return Finding("ok", "database", "PostgreSQL answers; `pg_amcheck` is its own check of pages")
    with database.read() as db:
        faults = integrity.damaged_pages(db)
    if faults:
        return Finding("error", "database", f"the file is damaged ({_named(faults)}): restore it from a backup")
    return Finding("ok", "database", "the file is sound")


def _references(database: Database) -> Finding:
    with database.read() as db:
        dangling = integrity.dangling_rows(db)
    if dangling:
        rows = [f"{_counted(number, 'row')} of {table}" for table, number in dangling.items()]
        return Finding(
            "error",
            "references",
            f"{_named(rows)} refer to rows that do not exist: restore the database from a backup",
        )
    return Finding("ok", "references", "every reference points to an existing row")


def _images(database: Database) -> Finding:
    with database.read() as db, progress_bar("reading images") as progress:
        total = integrity.count_images(db)
        damaged = [str(image) for image in integrity.damaged_images(db, progress)]
    if damaged:
        text = f"{len(damaged):,} of {total:,} are not what was taught ({_named(damaged)})"
        fix = "delete these classes and teach them again, or restore a backup"
        return Finding("error", "images", f"{text}: {fix}")
    return Finding("ok", "images", f"{_counted(total, 'image')} have the digest that was stored with them")


def _models(database: Database) -> Finding:
    with database.read() as db:
        number = len(catalogue.everything(db))
    broken = _unservable(database)
    if broken:
        reasons = [f"'{name}': {reason}" for name, reason in broken.items()]
        return Finding(
            "error", "models", f"{_named(reasons)}: activate another version, or restore the database from a backup"
        )
    return Finding("ok", "models", f"the active version of {_counted(number, 'model')} can be served")


def _unservable(database: Database) -> dict[str, str]:
    with database.read() as db:
        broken = integrity.unservable_models(db)
        for model in catalogue.everything(db):
            if model.name in broken:
                continue
            head = versions.get(db, model.id, model.head)
            for number in sorted({head.base, head.weights}):
                blob = versions.weights(db, model.id, number)
                if blob is not None and not _is_safetensors(blob):
                    broken[model.name] = f"the weights of version {number} cannot be read"
    return broken


def _is_safetensors(blob: bytes) -> bool:
    from safetensors.torch import load

    try:
        load(blob)
    except Exception:  # on damaged bytes it raises many kinds of errors
        return False
    return True


def _caught(what: str, check: Callable[[], Finding]) -> Finding:
    """A check that fails because of the database is a finding, and the other checks still run."""
    try:
        return check()
    except DBAPIError as error:
        if not is_state_of_database(error):
            raise
        return Finding("error", what, f"cannot be read ({error.orig}): restore the database from a backup")


def _named(things: Sequence[str]) -> str:
    more = f" and {len(things) - SHOWN:,} more" if len(things) > SHOWN else ""
    return "; ".join(things[:SHOWN]) + more


def _counted(number: int, one: str) -> str:
    return f"{number:,} {one if number == 1 else one + 's'}"
