"""Files known by their first bytes."""

from __future__ import annotations

import gzip
import io
import sqlite3
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.core.files import KIND_HEAD, kind_of


@pytest.mark.parametrize(
    ("head", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        (b"GIF89a\1\0\1\0", "image/gif"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp"),
        (b"BM\x46\0\0\0\0\0\0\0\x36", "image/bmp"),
        (b"II*\0\x08\0\0\0", "image/tiff"),
        (b"\0\0\0\x1cftypavif", "image/avif"),
        (b"\0\0\0\x18ftypheic", "image/heic"),
    ],
)
def test_an_image_is_known(head, media_type):
    kind = kind_of(head)
    assert kind is not None
    assert kind.is_image
    assert kind.media_type == media_type


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"%PDF-1.7\n%\xe2\xe3", "PDF document"),
        (b"\x7fELF\2\1\1", "ELF program or library"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "WAV audio"),
        (b"\0\0\0\x20ftypisom", "MPEG-4 video"),
        (b"\0asm\1\0\0\0", "WebAssembly module"),
    ],
)
def test_another_binary_is_known_and_is_no_image(head, name):
    kind = kind_of(head)
    assert kind is not None
    assert kind.name == name
    assert not kind.is_image


def test_files_made_by_programs_are_known(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a", "b")
    assert name_of(packed.getvalue()) == "ZIP archive"
    assert name_of(gzip.compress(b"a")) == "gzip archive"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    assert name_of(packed.getvalue()) == "tar archive"
    connection = sqlite3.connect(tmp_path / "db")
    connection.execute("create table a (b)")
    connection.close()
    assert name_of((tmp_path / "db").read_bytes()) == "SQLite database"
    if sys.platform == "linux":
        assert name_of(Path(sys.executable).read_bytes()) == "ELF program or library"


@pytest.mark.parametrize(
    "head", [b"", b"\0", b"plain text\n", b"BM is a pair of letters", b"RIFF raff", b"\xff\xfea\0"]
)
def test_what_is_none_of_them_is_not_guessed(head):
    assert kind_of(head) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_answered(head):
    kind = kind_of(head)
    assert kind is None or "/" in kind.media_type


def name_of(content: bytes) -> str:
    kind = kind_of(content[:KIND_HEAD])
    assert kind is not None
    return kind.name
