"""Unique identifiers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from forge.tools import uuid_generate as module
from forge.tools.uuid_generate import uuid4, uuid7


@pytest.mark.parametrize("version", [4, 7])
def test_identifiers_are_valid_and_unique(shared_bench, version):
    result = shared_bench.call("uuid_generate", count=100, version=version)
    lines = result.for_llm.splitlines()
    assert len(set(lines)) == 100
    assert result.data["uuids"] == lines
    for line in lines:
        assert str(UUID(line)) == line
        assert UUID(line).version == version
        assert UUID(line).variant == "specified in RFC 4122"


def test_the_default_is_one_random_identifier(value):
    assert UUID(value("uuid_generate")).version == 4


@pytest.mark.parametrize("count", [0, -1, 101, 1.5, True, "many"])
def test_a_count_out_of_range_is_refused(refusal, count):
    failure = refusal("uuid_generate", count=count)
    assert failure.kind == "validation_error"
    assert "count" in failure.message


@pytest.mark.parametrize("version", [1, 0, 8, "four"])
def test_an_unknown_version_is_answered_with_the_known_ones(refusal, version):
    assert "4, 7" in refusal("uuid_generate", version=version).message


def test_a_count_written_as_text_is_mended(shared_bench):
    result = shared_bench.call("uuid_generate", count="3")
    assert len(result.data["uuids"]) == 3
    assert result.data["repaired"]


def test_version_7_begins_with_the_time():
    before = time.time_ns() // 1_000_000
    made = UUID(module._format_uuid(module._MonotonicNumbers().next(), version=7)).int >> 80
    assert before <= made <= time.time_ns() // 1_000_000


def test_version_7_only_grows():
    made = [uuid7() for _ in range(5_000)]
    assert made == sorted(set(made))


def test_version_7_only_grows_when_the_clock_goes_back(monkeypatch):
    clock = iter([5_000, 5_000, 4_000, 3_000, 6_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(clock) * 1_000_000)
    later = module._MonotonicNumbers()
    made = [later.next() for _ in range(5)]
    assert made == sorted(set(made))
    assert made[0] >> 74 == 5_000
    assert made[-1] >> 74 == 6_000


def test_threads_never_get_the_same_identifier():
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: uuid7(), range(2_000)))
    assert len(set(made)) == 2_000


def test_random_bits_reach_every_place_but_the_fixed_ones():
    seen_set = seen_clear = 0
    for _ in range(500):
        bits = UUID(uuid4()).int
        seen_set |= bits
        seen_clear |= ~bits
    assert (seen_set & seen_clear & (1 << 128) - 1).bit_count() == 122
