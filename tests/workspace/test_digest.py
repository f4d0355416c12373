"""The digest of a file's content is its SHA-256, whatever content was hashed before it."""

from __future__ import annotations

from hashlib import sha256

import pytest

from forge.workspace.paths import digest as module
from forge.workspace.paths.digest import LARGE, REMEMBERED, Digest, digest_of

SMALL = 4 * 1024
"""The bytes of a piece in most tests. What is hashed again depends on the borders of pieces, not on their size."""


def make_base(piece: int) -> bytes:
    return bytes(range(256)) * (3 * piece // 256) + b"the rest"


def make_contents(piece: int) -> dict[str, bytes]:
    base = make_base(piece)

    def changed(at: int, new: bytes, removed: int = 0) -> bytes:
        return base[:at] + new + base[at + removed :]

    return {
        "the same": base,
        "its first byte": changed(0, b"x", 1),
        "its last byte": changed(len(base) - 1, b"x", 1),
        "a byte before a border": changed(2 * piece - 1, b"x", 1),
        "a byte after a border": changed(2 * piece, b"x", 1),
        "more in the middle": changed(piece + 7, b"more"),
        "less in the middle": changed(piece + 7, b"", 4),
        "cut at a border": base[: 2 * piece],
        "cut": base[: 2 * piece + 1],
        "longer": base + base,
        "another": b"y" * len(base),
        "small": b"small",
        "nothing": b"",
    }


BASE = make_base(LARGE)
CONTENTS = make_contents(SMALL)


@pytest.mark.parametrize("before", CONTENTS)
@pytest.mark.parametrize("after", CONTENTS)
def test_is_the_hash_of_the_content_whatever_came_before(
    monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    monkeypatch.setattr(module, "LARGE", SMALL)
    monkeypatch.setattr(module, "_last", module._Hashed(b"", "", []))
    assert Digest(CONTENTS[before]).value == sha256(CONTENTS[before]).hexdigest()
    assert Digest(CONTENTS[after]).value == sha256(CONTENTS[after]).hexdigest() == digest_of(CONTENTS[after])


def test_is_the_hash_of_contents_of_several_megabytes_one_after_the_other() -> None:
    for content in make_contents(LARGE).values():
        assert Digest(content).value == sha256(content).hexdigest() == digest_of(content)


def test_very_large_content_is_hashed_and_not_remembered() -> None:
    Digest(BASE).value  # noqa: B018 - waits for it
    large = b"z" * (REMEMBERED + 1)
    assert Digest(large).value == sha256(large).hexdigest()
    assert module._last.content == BASE


def test_content_that_is_remembered_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Digest(BASE).value
    monkeypatch.setattr(module, "sha256", None)
    assert Digest(bytes(bytearray(BASE))).value == expected
