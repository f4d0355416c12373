"""Prompts with content: texts and files become one message, which every store keeps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from forge import (
    Agent,
    Attachment,
    Audio,
    Document,
    DurableAgent,
    Image,
    Message,
    Scope,
    Scripted,
    SessionStore,
    ToolCall,
    ToolError,
    messages_from_json,
    messages_to_json,
    tool,
)
from forge.skills import Guardrails
from forge.workspace.reading import LARGEST_FILES
from tests.durable.working import script

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
WAV = b"RIFF\x24\0\0\0WAVEfmt "
PDF = b"%PDF-1.7\n\xff"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "photo.png").write_bytes(PNG)
    (folder / "talk.wav").write_bytes(WAV)
    (folder / "report.pdf").write_bytes(PDF)
    (folder / "notes.md").write_text("# Notes\n")
    (folder / "book.docx").write_bytes(b"PK\3\4\xff")
    return folder


async def asked(prompt: Any, workspace: Path) -> Message:
    """The person's message that the model got."""
    model = Scripted("A cat.")
    result = await Agent(model, scope=Scope(workspace=workspace)).run(prompt)
    assert result.text == "A cat."
    (message,) = (one for one in model.requests[0].messages if one.role == "user")
    return message


async def test_texts_and_files_are_one_message(workspace: Path) -> None:
    message = await asked(
        [
            "What is this?",
            Image("photo.png"),
            Audio(Path("talk.wav")),
            Document(str(workspace / "report.pdf"), name="q3.pdf"),
            Document("notes.md"),
            Document("book.docx"),
            Image(PNG),
            Image("https://example.com/a.webp"),
            "Be brief.",
        ],
        workspace,
    )
    assert message.text == "What is this?\nBe brief."
    docx = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    assert message.attachments == (
        Attachment("image/png", PNG, "photo.png"),
        Attachment("audio/wav", WAV, "talk.wav"),
        Attachment("application/pdf", PDF, "q3.pdf"),
        Attachment("text/markdown", b"# Notes\n", "notes.md"),
        Attachment(docx, b"PK\3\4\xff", "book.docx"),
        Attachment("image/png", PNG),
        Attachment("image/webp", b"", "a.webp", url="https://example.com/a.webp"),
    )


async def test_a_file_alone_and_a_message_with_files_are_prompts_too(workspace: Path) -> None:
    for prompt in (Image("photo.png"), Message("user", attachments=(Image("photo.png"),)), [Image("photo.png")]):
        assert (await asked(prompt, workspace)).attachments == (Attachment("image/png", PNG, "photo.png"),)


async def test_a_list_of_messages_stays_a_history_and_a_mixed_list_is_refused(workspace: Path) -> None:
    assert (await asked([Message("user", "Hi", attachments=(Image("photo.png"),))], workspace)).text == "Hi"
    agent = Agent(Scripted("never"))
    with pytest.raises(ToolError, match="a prompt of 2 parts: it mixes messages and content") as error:
        await agent.run([Message("user", "Hi"), "What is this?"])
    assert "history=messages" in error.value.suggestion
    with pytest.raises(ToolError, match="3 is neither a text nor a file"):
        await agent.run(["What is this?", 3])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Image("missing.png"), "missing.png"),
        (lambda: Image("../outside.png"), "outside"),
        (lambda: Image("report.pdf"), "the content is a file of the kind PDF document"),
        (lambda: Image("notes.md"), "the content is text"),
        (lambda: Image("renamed.png"), "the content is text"),
        (lambda: Audio("photo.png"), "PNG image"),
        (lambda: Document("photo.png"), "PNG image"),
        (lambda: Document("program"), "ELF program"),
        (lambda: Document("empty.txt"), "the content is empty"),
        (lambda: Image("pipe"), "pipe"),
        (lambda: Image("."), "director"),
        (lambda: Image("large.png"), f"the limit is {LARGEST_FILES:,}"),
        (lambda: Image("ftp://example.com/a.png"), "no address"),
        (lambda: Image("https://user:word@example.com/a.png"), "no address"),
        (lambda: Image("https:///a.png"), "no address"),
        (lambda: Image(b"no image"), "the content is text"),
        (lambda: Image(3), "expected a path, a URL or bytes"),  # type: ignore[arg-type]
        (lambda: Image(""), "expected a path, a URL or bytes"),
    ],
)
async def test_what_is_no_such_file_is_refused_before_the_model_is_asked(
    workspace: Path, make: Any, problem: str
) -> None:
    (workspace.parent / "outside.png").write_bytes(PNG)
    (workspace / "renamed.png").write_text("<svg/>")
    (workspace / "program").write_bytes(b"\x7fELF\xff\0")
    (workspace / "empty.txt").touch()
    os.mkfifo(workspace / "pipe")
    with (workspace / "large.png").open("wb") as file:
        file.write(PNG)
        file.truncate(LARGEST_FILES + 1)
    model = Scripted("never")
    with pytest.raises(ToolError, match=problem) as error:
        await Agent(model, scope=Scope(workspace=workspace)).run(["What is this?", make()])
    assert error.value.suggestion
    assert model.requests == []


async def test_the_files_of_a_prompt_are_bounded_together(workspace: Path) -> None:
    half = PNG + bytes(LARGEST_FILES // 2)
    assert len((await asked(["?", Image(half)], workspace)).attachments) == 1
    with pytest.raises(ToolError, match="the files of a prompt have together more than"):
        await asked(["?", Image(half), Image(half)], workspace)


async def test_the_workspace_of_the_run_counts(workspace: Path) -> None:
    model = Scripted("A cat.", "A cat.")
    await Agent(model).run(["?", Image("photo.png")], scope=Scope(workspace=workspace))
    assert model.requests[0].messages[-1].attachments[0].data == PNG


async def test_a_guardrail_reads_the_text_files_of_a_prompt(workspace: Path) -> None:
    guard = Guardrails.of({"deny_prompts": [{"pattern": "classified", "message": "No."}]})
    agent = Agent(Scripted("Fine."), guard=_Everyone(guard), scope=Scope(workspace=workspace))
    assert (await agent.run(["?", Document("notes.md")])).text == "Fine."
    with pytest.raises(ToolError):
        await agent.run(["?", Document(b"This is classified.")])


class _Everyone:
    def __init__(self, guard: Guardrails) -> None:
        self._guard = guard

    def rules(self, session_id: str) -> Guardrails:
        return self._guard


async def test_sessions_json_and_durable_runs_keep_the_files(workspace: Path, tmp_path: Path) -> None:
    prompt: list[str | Attachment] = ["What is this?", Image("photo.png"), Image("https://example.com/a.png")]
    said = await asked(prompt, workspace)
    with SessionStore(tmp_path / "sessions.db") as store:
        store.open("ada").append(said)
        assert store.show("ada").messages == [said]
    assert messages_from_json(messages_to_json([said])) == [said]
    agent = Agent(script("A cat."), scope=Scope(workspace=workspace))
    async with DurableAgent(agent, f"sqlite:///{tmp_path}/runs.db") as durable:
        result = await durable.run(prompt)
        assert (result.text, result.messages[0]) == ("A cat.", said)
        with pytest.raises(ToolError, match="which is a history"):
            await durable.run([said])  # type: ignore[list-item]


async def test_a_tool_returns_an_image_as_bytes_and_a_path_is_refused(workspace: Path) -> None:
    @tool
    def draw(how: str) -> Attachment:
        """Draw."""
        return Image(PNG) if how == "bytes" else Image("photo.png" if how == "path" else "https://example.com/a.png")

    agent = Agent(None, tools=[draw], scope=Scope(workspace=workspace))
    assert (await agent.call("draw", {"how": "bytes"})).attachments == (Attachment("image/png", PNG),)
    for how in ("path", "url"):
        result = await agent.call("draw", {"how": how})
        assert result.is_error
        assert "without the content" in result.for_llm
        assert "read_bytes" in result.for_llm


async def test_the_answer_of_a_run_with_calls_keeps_the_files_of_its_prompt(workspace: Path) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    model = Scripted(ToolCall("look"), "A cat.")
    await Agent(model, tools=[look], scope=Scope(workspace=workspace)).run(["?", Image("photo.png")])
    assert [request.messages[0].attachments[0].data for request in model.requests] == [PNG, PNG]
