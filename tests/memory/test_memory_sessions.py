"""A session that ended, summarised into today's note."""

from __future__ import annotations

from forge.core.messages import Message
from forge.core.secrets import Secrets
from forge.memory.memory import LONGEST_SUMMARY, remember_session
from tests.memory.remembering import memory_in

SAID = [Message("system", "You are"), Message("user", "Fix the parser"), Message("assistant", "Done.")]


async def test_a_summary_goes_into_todays_note_and_is_found(tmp_path):
    memory = memory_in(tmp_path)

    async def summarise(messages):
        assert messages == SAID
        return Message("user", "Goals: mend the parser.")

    written = await remember_session(memory, SAID, summarise, title="session\nparser-fix")
    assert written == ("2026-11-20.md", 1, 3)
    assert memory.read("2026-11-20.md") == "## 14:05 session parser-fix\n\nGoals: mend the parser.\n"
    assert (await memory.search("parser")).hits[0].line_start == 1


async def test_secrets_are_masked_and_length_is_bounded(tmp_path):
    memory = memory_in(tmp_path)

    async def summarise(messages):
        return f"hunter2hunter2 and token: abcdefgh12345 \ud800 {'x' * 2 * LONGEST_SUMMARY}"

    await remember_session(memory, SAID, summarise, secrets=Secrets(["hunter2hunter2"]))
    text = memory.read("2026-11-20.md")
    assert "hunter2" not in text
    assert "abcdefgh" not in text
    assert "more characters]" in text
    assert len(text) < LONGEST_SUMMARY + 200


async def test_where_nothing_was_said_nothing_is_written(tmp_path):
    memory = memory_in(tmp_path)

    async def summarise(messages):
        return "  "

    assert await remember_session(memory, SAID[:1], summarise) is None
    assert await remember_session(memory, SAID, summarise) is None
    assert memory.names() == []
