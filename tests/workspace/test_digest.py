"""The digest of a file's content is its SHA-256, whatever content was hashed before it."""

from __future__ import annotations

from hashlib import sha256

import pytest

from forge.workspace.paths import digest as module
from forge.workspace.paths.digest import LARGE, REMEMBERED, Digest, digest_of

BASE = bytes(range(256)) * (3 * LARGE // 256) + b"the rest"


def changed(at: int, new: bytes, removed: int = 0) -> bytes:
    return BASE[:at] + new + BASE[at + removed :]


CONTENTS = {
    "the same": BASE,
    "its first byte": changed(0, b"x", 1),
    "its last byte": changed(len(BASE) - 1, b"x", 1),
    "a byte before a border": changed(2 * LARGE - 1, b"x", 1),
    "a byte after a border": changed(2 * LARGE, b"x", 1),
    "more in the middle": changed(LARGE + 7, b"more"),
    "less in the middle": changed(LARGE + 7, b"", 4),
    "cut at a border": BASE[: 2 * LARGE],
    "cut": BASE[: 2 * LARGE + 1],
    "longer": BASE + BASE,
    "another": b"y" * len(BASE),
    "small": b"small",
    "nothing": b"",
}


@pytest.mark.parametrize("before", CONTENTS)
@pytest.mark.parametrize("after", CONTENTS)
def test_is_the_hash_of_the_content_whatever_came_before(before: str, after: str) -> None:
    assert Digest(CONTENTS[before]).value == sha256(CONTENTS[before]).hexdigest()
    assert Digest(CONTENTS[after]).value == sha256(CONTENTS[after]).hexdigest() == digest_of(CONTENTS[after])


def test_very_large_content_is_hashed_and_not_remembered() -> None:
    Digest(BASE).value  # noqa: B018 - waits for it
    large = b"z" * (REMEMBERED + 1)
    assert Digest(large).value == sha256(large).hexdigest()
    assert module._last.content == BASE


def test_content_that_is_remembered_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Digest(BASE).value
    monkeypatch.setattr(module, "sha256", None)
    assert Digest(bytes(bytearray(BASE))).value == expected
