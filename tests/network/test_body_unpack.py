"""Compressed bodies never unpack to more than the limit."""

from __future__ import annotations

import gzip
import zlib
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as some

from forge.core.errors import ToolError
from forge.network.body import Unpacker, read_encodings

TEXT = b"The quick brown fox jumps over the lazy dog. " * 200
BARE = zlib.compressobj(wbits=-15)
DEFLATED = BARE.compress(TEXT) + BARE.flush()
PACKED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "Deflate": DEFLATED,
    "gzip, gzip": gzip.compress(gzip.compress(TEXT)),
    "deflate, gzip": gzip.compress(zlib.compress(TEXT)),
    "identity": TEXT,
    "": TEXT,
    " , identity ,": TEXT,
}


def unpacked(body: bytes, encoding: str, limit: int = 1_000_000, every: int = 0) -> Unpacker:
    unpacker = Unpacker(read_encodings(encoding), limit)
    for at in range(0, len(body), every or len(body) or 1):
        unpacker.feed(body[at : at + (every or len(body))])
        if unpacker.full:
            break
    unpacker.finish()
    return unpacker


@pytest.mark.parametrize("every", [0, 1, 7])
@pytest.mark.parametrize("encoding", PACKED)
def test_what_was_packed_comes_out_again_in_whatever_pieces_it_comes(encoding, every):
    found = unpacked(PACKED[encoding], encoding, every=every)
    assert bytes(found.body) == TEXT
    assert not found.full


@pytest.mark.parametrize("encoding", PACKED)
def test_a_body_of_exactly_the_limit_is_whole_and_one_byte_more_is_cut(encoding):
    assert not unpacked(PACKED[encoding], encoding, len(TEXT)).full
    cut = unpacked(PACKED[encoding], encoding, len(TEXT) - 1)
    assert cut.full
    assert bytes(cut.body) == TEXT[:-1]


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_bomb_expands_to_the_limit_and_not_a_byte_further(layers):
    bomb = reduce(lambda body, _: gzip.compress(body), range(layers), bytes(20_000_000))
    assert len(bomb) < 25_000
    found = unpacked(bomb, ",".join(["gzip"] * layers), 100_000)
    assert found.full
    assert len(found.body) == 100_000


def test_a_bomb_of_nothing_inside_another_is_bounded_too():
    empty = gzip.compress(b"")
    found = unpacked(gzip.compress(empty * 500_000), "gzip, gzip", 100_000)
    assert found.full
    assert found.body == b""


def test_members_follow_one_another_and_padding_is_left_out():
    both = gzip.compress(b"one ") + gzip.compress(b"two")
    for every in (0, 1):
        assert unpacked(both, "gzip", every=every).body == b"one two"
        assert unpacked(both + b"\0\0\0", "gzip", every=every).body == b"one two"
        assert unpacked(both + b"\x1f", "gzip", every=every).body == b"one two"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_broken_body_is_an_error(encoding):
    for broken in (PACKED[encoding][:-5], b"\xff\xfe" * 100, PACKED[encoding][:50] + b"x" * 50):
        with pytest.raises(ToolError, match="cannot be decompressed"):
            unpacked(broken, encoding)
    assert unpacked(b"", encoding).body == b""


@given(some.binary(max_size=300), some.sampled_from(["gzip", "deflate", "gzip, deflate"]), some.integers(0, 200))
def test_whatever_comes_is_unpacked_within_the_limit_or_is_an_error(body, encoding, limit):
    for start in (b"", b"\x1f\x8b\x08\0\0\0\0\0\0\0", b"\x78\x9c"):
        try:
            assert len(unpacked(start + body, encoding, limit).body) <= limit
        except ToolError:
            pass


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "exi", "gzip, br", "\x00"])
def test_what_cannot_be_unpacked_is_named(encoding):
    with pytest.raises(ToolError, match="which is not supported") as raised:
        unpacked(TEXT, encoding)
    assert "gzip, deflate" in raised.value.suggestion


def test_many_layers_are_refused():
    with pytest.raises(ToolError, match="compressed 4 times over"):
        read_encodings("gzip, gzip, gzip, gzip")
