"""What is found first, and why."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.memory.search import build_expression
from tests.memory.remembering import NOW, Topics, memory_in, note, search, sources


def day(ago: int) -> str:
    return f"{NOW - timedelta(days=ago):%Y-%m-%d}.md"


@pytest.mark.parametrize(("ago", "left"), [(0, 1.0), (7, 0.5), (14, 0.25), (3, 0.5 ** (3 / 7)), (-5, 1.0)])
def test_a_dated_note_loses_half_of_its_weight_a_week(tmp_path, ago, left):
    memory = memory_in(tmp_path)
    note(memory, day(ago), "The parser is slow.")
    note(memory, "MEMORY.md", "The parser is slow.")
    scores = {hit.source: hit.score for hit in search(memory, "parser").hits}
    assert scores == {"MEMORY.md": 1.0, day(ago): pytest.approx(left, abs=1e-6)}


def test_the_date_counts_and_not_when_it_was_indexed(tmp_path):
    memory = memory_in(tmp_path)
    note(memory, day(0), "The parser is slow.")
    search(memory, "parser")
    note(memory, day(70), "The parser is slow.")
    assert sources(memory, "parser") == [day(0), day(70)]


def test_without_an_embedder_words_decide(tmp_path):
    memory = memory_in(tmp_path)
    note(memory, "MEMORY.md", "# A\n\nThe cat sleeps.\n\n# B\n\nWe ship the release with make ship.\n")
    found = search(memory, "how do we ship?").hits
    assert [(hit.source, hit.line_start, hit.line_end, hit.score) for hit in found] == [("MEMORY.md", 5, 7, 1.0)]
    assert found[0].text == "# B\n\nWe ship the release with make ship."


def test_the_hybrid_score_is_as_it_was_specified(tmp_path):
    memory = memory_in(tmp_path, embedder=Topics())
    note(memory, day(0), "cat and bread")  # half of the meaning, and the word
    note(memory, day(7), "a kitten")  # the meaning alone, a week old
    note(memory, "MEMORY.md", "nothing of the kind")
    found = {hit.source: hit.score for hit in search(memory, "cat").hits}
    assert found == {
        day(0): pytest.approx(0.7 * 0.5**0.5 + 0.3, abs=2e-3),  # float16
        day(7): pytest.approx(0.7 * 0.5, abs=2e-3),
    }


def test_scores_agree_with_a_plain_calculation(tmp_path):
    """Words and meaning from two searches of each kind, put together by hand."""
    embedder = Topics()
    memory, plain = memory_in(tmp_path, embedder=embedder), memory_in(tmp_path)
    texts = ["cat", "deploy cat", "soup with bread", "release bread", "dog eats soup", "ship it", "kitten ship", "eat"]
    for ago, text in enumerate(texts * 3):
        note(memory, day(ago), f"{text} number {ago}")
    for query in ("cat", "ship the bread", "dog soup", "number 7", "eat"):
        words = {hit.source: hit.score for hit in search(plain, query, 50).hits}
        mine = embedder.embed([query])[0]
        expected = {}
        for ago, text in enumerate(texts * 3):
            fading = 0.5 ** (ago / 7)
            score = 0.7 * cosine(mine, embedder.embed([text])[0]) * fading + 0.3 * words.get(day(ago), 0.0)
            if score > 0:
                expected[day(ago)] = pytest.approx(score, abs=2e-3)
        assert {hit.source: hit.score for hit in search(memory, query, 50).hits} == expected


def cosine(one, other):
    lengths = (sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0


def test_the_best_few_are_the_first_of_all(tmp_path):
    for embedder in (None, Topics()):
        memory = memory_in(tmp_path, embedder=embedder)
        for ago in range(30):
            note(memory, day(ago), "cat " * (1 + ago % 7) + "dog " * (ago % 3))
        everything = search(memory, "cat", 100).hits
        assert len(everything) == 30
        assert search(memory, "cat", 4).hits == everything[:4]
        assert [hit.score for hit in everything] == sorted((hit.score for hit in everything), reverse=True)


def test_words_that_say_nothing_find_nothing_unless_there_are_no_others(tmp_path):
    memory = memory_in(tmp_path)
    note(memory, "a.md", "What to do when the cache is old.")
    note(memory, "b.md", "Deploy on Fridays.")
    assert sources(memory, "When do we deploy?") == ["b.md"]
    assert sources(memory, "when") == ["a.md"]


@pytest.mark.parametrize(
    "query",
    ['"', "a AND", "NEAR(", "text:x", "*", "^x", "-x", "(", "'", "\0", "\ud800", "😀", "_", "a" * 9_999, "x " * 5_000],
)
def test_any_query_is_answered(tmp_path, query):
    memory = memory_in(tmp_path, embedder=Topics())
    note(memory, "MEMORY.md", "a cat, an x and a text")
    assert isinstance(search(memory, query).hits, list)


@given(st.text(max_size=60))
def test_no_query_is_an_error_for_the_words(query):
    import sqlite3

    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE words USING fts5 (text)")
    if wanted := build_expression(query):
        database.execute("SELECT 1 FROM words WHERE words MATCH ?", (wanted,)).fetchall()
    database.close()


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("We deployed it", "deploying"),
        ("Ünïcode", "unicode"),
        ("私は東京に住んでいます", "東京"),
        ("call snake_case_name", "snake_case_name"),
        ("a file config.yaml", "config.yaml"),
    ],
)
def test_words_are_found_in_other_forms_and_scripts(tmp_path, text, query):
    memory = memory_in(tmp_path)
    note(memory, "MEMORY.md", text)
    note(memory, "other.md", "something else")
    assert sources(memory, query) == ["MEMORY.md"]


def test_an_embedder_that_fails_leaves_the_words_and_says_so(tmp_path):
    embedder = Topics()
    embedder.fails = True
    memory = memory_in(tmp_path, embedder=embedder)
    note(memory, "MEMORY.md", "the cat")
    found = search(memory, "cat")
    assert [hit.score for hit in found.hits] == [1.0]
    assert any("the model is asleep" in remark for remark in found.remarks)
    embedder.fails = False
    done = asyncio.run(memory.reindex())
    assert (done.embedded, done.remarks) == (1, [])
    assert search(memory, "kitten").hits[0].score == pytest.approx(0.7, abs=1e-3)


def test_a_memory_without_notes_stays_as_it_is(tmp_path):
    memory = memory_in(tmp_path)
    assert search(memory, "x") == ([], [])
    assert memory.stats()["notes"] == 0
    assert memory.names() == []
    assert list(tmp_path.iterdir()) == []
