"""The page about conversations in one's own Postgres is true: its code runs against a real server."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from forge import messages_from_json
from tests.test_docs import Telling, blocks


@pytest.mark.slow
def test_the_page_stores_a_conversation_and_continues_it(
    empty_postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    telling = Telling(tmp_path, monkeypatch, capfd)
    monkeypatch.setenv("DATABASE_URL", empty_postgres)
    for block in blocks("conversation-in-postgres.md"):
        telling.tell(block)
    with psycopg.connect(empty_postgres) as db:
        rows = db.execute("SELECT messages::text FROM conversation_runs ORDER BY number").fetchall()
    told = [[message.text for message in messages_from_json(text)] for (text,) in rows]
    assert told == [["I am Ada.", "Hello, Ada."], ["Who am I?", "You are Ada."]]
