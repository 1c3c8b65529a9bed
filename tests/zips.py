"""Zips of class folders as tests make them: good ones, and those that nobody should trust."""

import io
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.painted import picture


def zipped(files: Mapping[str, bytes], **options: Any) -> bytes:
    """These files, by their paths."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", **options) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def classes(inside: str = "", /, **counts: int) -> dict[str, bytes]:
    """So many painted images of each class, in a folder of its name."""
    return {
        f"{inside}{name}/{number}.png": picture(name, number)
        for name, count in counts.items()
        for number in range(count)
    }


def with_entry(files: Mapping[str, bytes], info: zipfile.ZipInfo, content: bytes) -> bytes:
    """With one more file, described as nobody would."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, own in files.items():
            archive.writestr(name, own)
        archive.writestr(info, content)
    return data.getvalue()


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, 0o120777 << 16
    return info


def claiming_size(data: bytes, name: str, size: int) -> bytes:
    """The same zip, in which this file says that it has another size than it has."""
    encoded, changed = name.encode(), bytearray(data)
    for signature, at, name_at in ((b"PK\x03\x04", 22, 30), (b"PK\x01\x02", 24, 46)):
        start = 0
        while (start := data.find(signature, start)) >= 0:
            if data[start + name_at : start + name_at + len(encoded)] == encoded:
                struct.pack_into("<I", changed, start + at, size)
            start += 4
    return bytes(changed)


def folder_of(files: Mapping[str, bytes], folder: Path) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
