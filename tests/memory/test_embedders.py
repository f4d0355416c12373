"""Vectors from a server, and from the packaged model where it is installed."""

from __future__ import annotations

import json
import logging

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.memory.embedders import Endpoint, embedder_from
from forge.network.egress import Egress, use_egress
from tests.memory.remembering import memory_in, note
from tests.models.serving import Reply, refusal, serving


def answer(*vectors, **changes) -> Reply:
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    body = json.dumps({"data": data, **changes}).encode()
    return Reply([body], headers={"Content-Type": "application/json"}, framing="length")


@pytest.mark.parametrize("setting", [None, "none", "", {"type": "none"}])
def test_no_embedder_is_none(setting):
    assert embedder_from(setting) is None


@pytest.mark.parametrize(
    "setting",
    [
        "magic",
        {"type": "magic"},
        {"type": "endpoint"},
        {"type": "endpoint", "url": "http://x"},
        {"type": "endpoint", "url": "http://x", "model": 5},
        {"type": "endpoint", "url": "http://x", "model": "m", "colour": "red"},
    ],
)
def test_a_wrong_setting_is_a_configuration_error(setting):
    with pytest.raises(ToolError, match=r"memory\.embedder") as refused:
        embedder_from(setting)
    assert refused.value.kind is ErrorKind.CONFIG


def test_an_endpoint_is_made_of_its_settings():
    made = embedder_from({"type": "endpoint", "url": "https://example.com/v1/", "model": "small", "key_env": "KEY"})
    assert isinstance(made, Endpoint)
    assert (made.url, made.name) == ("https://example.com/v1/embeddings", "small at https://example.com/v1/embeddings")


async def test_texts_are_sent_in_batches_and_come_back_in_order(monkeypatch):
    monkeypatch.setenv("THE_KEY", "key-of-the-server")
    swapped = {"data": [{"index": 1, "embedding": [0, 2]}, {"index": 0, "embedding": [1, 0]}]}
    first = Reply([json.dumps(swapped).encode()], framing="length")
    async with serving(first, answer([3, 3])) as server:
        endpoint = Endpoint(f"{server.url}/v1", "small", "THE_KEY", batch=2)
        assert await endpoint.embed(["one", "two", "three"]) == [[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]
    assert [body["input"] for body in server.bodies] == [["one", "two"], ["three"]]
    assert server.asked[0].path == "/v1/embeddings"
    assert server.asked[0].headers["authorization"] == "Bearer key-of-the-server"


@pytest.mark.parametrize(
    "reply",
    [
        refusal(500),
        refusal(429, {"error": "slow down"}),
        Reply([b"no json"], framing="length"),
        Reply([b"[" * 100_000], framing="length"),
        Reply([b'{"data": []}'], framing="length"),
        answer([]),
        answer(["x"]),
        answer([1, 2], [3, 4]),
        Reply([b'{"data": [{"index": 7, "embedding": [1]}]}'], framing="length"),
        Reply([b'{"data": [{"index": 0, "embedding": [NaN]}]}'], framing="length"),
        Reply(["cut"], framing="length"),
    ],
)
async def test_a_server_that_fails_leaves_the_words(tmp_path, reply, caplog):
    caplog.set_level(logging.CRITICAL)
    async with serving(reply) as server:
        memory = memory_in(tmp_path, embedder=Endpoint(server.url, "small"))
        note(memory, "MEMORY.md", "the cat")
        found = await memory.search("cat")
        assert [hit.score for hit in found.hits] == [1.0]
        assert "keyword search only" in found.remarks[0]
        await memory.search("cat")
    assert len(server.asked) == 1  # and it is left alone for a while


async def test_a_server_decides_together_with_the_words(tmp_path):
    async with serving(answer([1, 0, 0]), answer([1, 0, 0])) as server:
        memory = memory_in(tmp_path, embedder=Endpoint(server.url, "small"))
        note(memory, "MEMORY.md", "the kitten")
        found = await memory.search("cat")
    assert [(hit.source, round(hit.score, 3)) for hit in found.hits] == [("MEMORY.md", 0.7)]
    assert found.remarks == []


async def test_vectors_of_another_length_replace_the_old_ones(tmp_path):
    replies = [answer([1, 0]), answer([1, 0]), answer([1, 0, 0]), answer([1, 0, 0]), answer([1, 0, 0])]
    async with serving(*replies) as server:
        memory = memory_in(tmp_path, embedder=Endpoint(server.url, "small"))
        note(memory, "MEMORY.md", "the kitten")
        await memory.search("cat")
        note(memory, "other.md", "a dog")
        await memory.search("cat")
        assert memory.stats()["dimensions"] == 3
        assert len((await memory.search("cat")).hits) == 2


async def test_a_key_that_is_not_set_is_said(monkeypatch):
    monkeypatch.delenv("THE_KEY", raising=False)
    with pytest.raises(ToolError, match="THE_KEY"):
        await Endpoint("http://127.0.0.1:9", "small", "THE_KEY").embed(["x"])


async def test_where_requests_are_switched_off_nothing_is_sent():
    async with serving(answer([1])) as server:
        with use_egress(Egress("deny-all")), pytest.raises(ToolError, match="switched off"):
            await Endpoint(server.url, "small").embed(["x"])
        with use_egress(Egress("allowlist", domains=("example.com",))):
            assert await Endpoint(server.url, "small").embed(["x"]) == [[1.0]]
    assert len(server.asked) == 1


def local():
    try:
        return embedder_from("local")
    except ToolError as error:
        pytest.skip(f"NOT TESTED: {error.message}")


def test_the_packaged_model_gives_the_known_similarities():
    """As its publishers show them for these sentences."""
    same, very, dog, sunny = local().embed(
        ["That is a happy person", "That is a very happy person", "That is a happy dog", "Today is a sunny day"]
    )
    found = [sum(a * b for a, b in zip(same, other, strict=True)) for other in (very, dog, sunny)]
    assert found == [pytest.approx(value, abs=2e-3) for value in (0.943, 0.695, 0.257)]


def test_the_packaged_model_takes_any_text_and_padding_changes_nothing():
    model = local()
    texts = ["", "x", "word " * 2_000, "\ud800", "日本語", "a cat"]
    together = model.embed(texts)
    for text, vector in zip(texts, together, strict=True):
        assert model.embed([text])[0] == pytest.approx(vector, abs=1e-5)
        assert sum(value * value for value in vector) == pytest.approx(1.0, abs=1e-4)


async def test_the_packaged_model_finds_by_meaning(tmp_path):
    memory = memory_in(tmp_path, embedder=local())
    note(memory, "MEMORY.md", "# Pets\n\nThe kitten naps on the couch.\n\n# Work\n\nReleases go out on Fridays.\n")
    found = await memory.search("When do we deploy new versions?", 1)
    assert found.hits[0].line_start == 5
