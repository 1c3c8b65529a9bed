"""Folders and lists of images. Image files are listed by name and never opened."""

from pathlib import Path

from bench.datasets.stream import DataError, DatasetImage

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})


def require_folder(folder: Path, holding: str) -> Path:
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the folder that holds {holding}")
    return folder


def read_lines(file: Path) -> list[str]:
    """The lines of a small text file, without blank ones."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise DataError(f"{file} is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as text: {error}") from error
    return [line.strip() for line in lines if line.strip()]


def class_folders(folder: Path) -> list[Path]:
    """Sorted, because file systems list entries in no defined order."""
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def images_in(folder: Path) -> list[Path]:
    """The images of a class folder, sorted; hidden files and files of other kinds are skipped."""
    return sorted(
        entry
        for entry in folder.iterdir()
        if entry.suffix.lower() in IMAGE_SUFFIXES and not entry.name.startswith(".") and entry.is_file()
    )


def file_image(root: Path, file: Path, class_id: int) -> DatasetImage:
    return DatasetImage(key=file.relative_to(root).as_posix(), class_id=class_id, read=file.read_bytes)
