"""Channels: what is sent arrives, whole, at the right place; what fails says so without showing a secret."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forge
from forge.channels.channel import Channels, FileChannel, Terminal, split_text
from forge.channels.slack import Slack, SlackHook
from forge.channels.telegram import Telegram
from forge.channels.webhook import Webhook
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import Attachment
from tests.network.serving import Reply, serving

REPORT = Attachment("text/csv", b"a,b\n1,2\n", "report.csv")


class Slept(list):
    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


async def test_the_terminal_shows_text_and_names_files():
    paper = io.StringIO()
    await Terminal(paper).send("Done. \x1b[31mred\x1b[0m", [REPORT], to="ops")
    shown = paper.getvalue()
    assert "[ops] Done." in shown
    assert "\x1b" not in shown
    assert "report.csv" in shown


async def test_a_file_gets_one_entry_after_another_and_keeps_attachments_beside_it(tmp_path):
    path = tmp_path / "out" / "log.md"
    file = FileChannel(path, clock=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    await file.send("First.\n## not a heading of ours", [REPORT, Attachment("text/plain", b"x", "../../evil\n.txt")])
    await file.send("Second.", to="the team")
    text = path.read_text()
    assert text.startswith("## 2026-01-02T03:04:05+00:00\n\nFirst.")
    assert "## 2026-01-02T03:04:05+00:00 to the team\n\nSecond." in text
    saved = sorted(p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert saved == ["log.md", "log.md.files/20260102-030405-evil-.txt", "log.md.files/20260102-030405-report.csv"]
    assert (tmp_path / "out/log.md.files/20260102-030405-report.csv").read_bytes() == REPORT.data


async def test_a_link_in_the_files_place_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "log.md").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ToolError, match="writing to"):
        await FileChannel(tmp_path / "log.md").send("x")
    assert (tmp_path / "elsewhere").read_text() == "kept"


async def test_what_is_no_file_is_refused_and_nobody_waits(tmp_path):
    os.mkfifo(tmp_path / "out.md")
    with pytest.raises(ToolError, match="writing to "):
        await asyncio.wait_for(FileChannel(tmp_path / "out.md").send("hello"), 60)
    reading = os.open(tmp_path / "out.md", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(ToolError, match="not a regular file"):
            await FileChannel(tmp_path / "out.md").send("hello")
    finally:
        os.close(reading)


CHILD = """
import asyncio, sys
from forge.channels.channel import FileChannel
from forge.channels.slack import Slack, SlackHook
while True:
    asyncio.run(FileChannel(sys.argv[1]).send(sys.argv[2] * 20_000))
    print("done", flush=True)
"""


def test_of_two_processes_that_are_killed_no_entry_runs_into_another(tmp_path):
    path = tmp_path / "out.md"
    path.write_text("A person's own line, without an end")
    environment = {**os.environ, "PYTHONPATH": str(Path(forge.__file__).parents[1])}
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD, str(path), letter], stdout=subprocess.PIPE, env=environment)
        for letter in "ab"
    ]
    for child in children:
        assert child.stdout is not None
        for _ in range(20):
            child.stdout.readline()
    for child in children:
        child.kill()
        child.communicate()
    asyncio.run(FileChannel(path).send("c" * 20_000))
    own, *parts = path.read_text().split("\n## ")
    entries = [part.partition("\n\n")[2].strip() for part in parts]
    assert own.strip() == "A person's own line, without an end"
    assert {"".join(set(entry)) for entry in entries if entry} == {"a", "b", "c"}
    assert sum(len(entry) != 20_000 for entry in entries) <= 2  # those that were being written


def test_on_a_full_disk_nothing_half_is_left(tmp_path):
    path = tmp_path / "log.md"
    code = f"""
import asyncio, resource, signal
from forge.channels.channel import FileChannel
from forge.channels.slack import Slack, SlackHook
from forge.core.errors import ToolError
file = FileChannel({str(path)!r})
asyncio.run(file.send("First."))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
__import__("sys").dont_write_bytecode = True  # half a compiled module would be left for everybody
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
try:
    asyncio.run(file.send("x" * 1000))
except ToolError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "writing to" in done.stdout
    assert "First." in path.read_text()
    assert "x" not in path.read_text().replace("First.", "").partition("\n")[2]


async def test_a_webhook_gets_what_slack_takes():
    async with serving(lambda asked: Reply([b"ok"])) as server:
        await Webhook(f"{server.url}/services/T0/B0/secret").send("Done: <!channel> & more", [REPORT], to="#ops")
    sent = json.loads(server.asked[0].body)
    assert sent == {"text": "Done: &lt;!channel&gt; &amp; more\n[report.csv: 8 bytes, not attached]", "channel": "#ops"}
    assert server.asked[0].headers["content-type"] == "application/json"


async def test_a_webhook_that_refuses_is_named_by_its_host_alone():
    async with serving(lambda asked: Reply([b"no_service"], status=404)) as server:
        with pytest.raises(ToolError) as caught:
            await Webhook(f"{server.url}/services/T0/B0/secret").send("Done.")
    assert caught.value.kind is ErrorKind.CONFIG
    assert "404 no_service" in caught.value.message
    assert "secret" not in f"{caught.value} {caught.value.suggestion}"


async def test_a_webhook_that_tells_its_own_path_is_not_repeated():
    async with serving(lambda asked: Reply([b"no such hook: /services/T0/B0/secret"], status=404)) as server:
        with pytest.raises(ToolError, match="no such hook: …") as caught:
            await Webhook(f"{server.url}/services/T0/B0/secret").send("Done.")
    assert "secret" not in f"{caught.value.message} {caught.value.suggestion}"


async def test_too_much_is_tried_again_after_the_time_it_asks_for():
    replies = [Reply(status=429, headers=[("Retry-After", "7")]), Reply([b"ok"])]
    slept = Slept()
    async with serving(lambda asked: replies.pop(0)) as server:
        await Webhook(server.url, sleep=slept).send("Done.")
    assert slept == [7.0]
    assert len(server.asked) == 2


async def test_a_service_that_asks_for_an_hour_is_not_waited_for():
    slept = Slept()
    async with serving(lambda asked: Reply(status=429, headers=[("Retry-After", "3600")])) as server:
        with pytest.raises(ToolError) as caught:
            await Webhook(server.url, sleep=slept).send("Done.")
    assert caught.value.kind is ErrorKind.RATE_LIMITED
    assert slept == []


async def test_a_redirect_is_not_followed():
    async with serving(lambda asked: Reply(status=307, headers=[("Location", "/elsewhere")])) as server:
        with pytest.raises(ToolError, match="307"):
            await Webhook(server.url).send("Done.")
    assert server.paths == ["/"]


async def test_a_webhook_gets_files_as_json_where_it_takes_them():
    async with serving(lambda asked: Reply([b"ok"])) as server:
        await Webhook(server.url, files="json").send("a" * 50_000, [REPORT])
        await Webhook(server.url, files="json").send("", [REPORT])
    first, second, alone = (json.loads(asked.body) for asked in server.asked)
    assert "files" not in first
    assert second["files"] == [{"name": "report.csv", "media_type": "text/csv", "data": "YSxiCjEsMgo="}]
    assert (alone["text"], len(alone["files"])) == ("", 1)


async def test_a_webhook_gets_files_as_a_form_where_it_takes_that():
    nasty = Attachment("text/plain\r\nX: y", b"x", 'a"\r\n\r\nb')
    async with serving(lambda asked: Reply([b"ok"])) as server:
        await Webhook(server.url, {"X-Key": "k"}, files="multipart").send("Done.", [REPORT, nasty])
        await Webhook(server.url, files="multipart").send("No file.")
    form, plain = server.asked
    assert form.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert form.headers["x-key"] == "k"
    assert b'name="payload_json"\r\n\r\n{"text": "Done."}\r\n' in form.body
    assert b'name="files[0]"; filename="report.csv"\r\nContent-Type: text/csv\r\n\r\na,b\n1,2\n\r\n' in form.body
    assert b'name="files[1]"; filename="a-----b"\r\nContent-Type: application/octet-stream\r\n\r\nx' in form.body
    assert json.loads(plain.body) == {"text": "No file."}


async def test_files_too_large_for_a_webhook_are_named(monkeypatch):
    monkeypatch.setattr("forge.channels.webhook.LARGEST_FILES", 5)
    async with serving(lambda asked: Reply([b"ok"])) as server:
        await Webhook(server.url, files="json").send("Done.", [REPORT])
    assert json.loads(server.asked[0].body) == {
        "text": "Done.\n[report.csv: 8 bytes, not attached: the maximum is 5 bytes]"
    }


def slack_reply(asked) -> Reply:
    """Slack's answers, in the shape that its documentation gives."""
    host = asked.headers["host"]
    told = {
        "/api/chat.postMessage": {"ok": True, "channel": "C0123", "ts": "1503435956.000247"},
        "/api/files.getUploadURLExternal": {"ok": True, "upload_url": f"http://{host}/upload/v1/abc", "file_id": "F1"},
        "/api/files.completeUploadExternal": {"ok": True, "files": [{"id": "F1", "title": "report.csv"}]},
    }.get(asked.path)
    return Reply([json.dumps(told).encode() if told else b"OK - 8"])


async def test_slack_gets_texts_in_pieces_and_files_the_way_it_wants_them():
    async with serving(slack_reply) as server:
        await Slack("xoxb-1", "#ops", api=f"{server.url}/api").send("<!channel> " + "a" * 5_000, [REPORT])
    first, second, where, upload, complete = server.asked
    texts = [json.loads(one.body) for one in (first, second)]
    assert [one["channel"] for one in texts] == ["#ops", "C0123"]
    assert "".join(one["text"] for one in texts).replace(" ", "") == "&lt;!channel&gt;" + "a" * 5_000
    assert where.body == b"filename=report.csv&length=8"
    assert where.headers["content-type"] == "application/x-www-form-urlencoded"
    assert (upload.path, upload.body) == ("/upload/v1/abc", REPORT.data)
    assert "authorization" not in upload.headers, "the address is all that an upload needs"
    assert json.loads(complete.body) == {"files": [{"id": "F1", "title": "report.csv"}], "channel_id": "C0123"}
    assert {one.headers["authorization"] for one in (first, second, where, complete)} == {"Bearer xoxb-1"}


async def test_a_file_alone_is_sent_to_slack_with_its_name():
    async with serving(slack_reply) as server:
        await Slack("xoxb-1", api=f"{server.url}/api").send("", [REPORT], to="C9")
    sent = json.loads(server.asked[0].body)
    assert sent == {"channel": "C9", "text": "report.csv", "unfurl_links": False, "unfurl_media": False}
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    "place", ["http://evil.example/upload", "ftp://HOST/x", "", "http://[", "http://HOST.evil.example/"]
)
async def test_slack_cannot_send_a_file_elsewhere(place):
    def reply(asked) -> Reply:
        if asked.path.endswith("getUploadURLExternal"):
            url = place.replace("HOST", asked.headers["host"])
            return Reply([json.dumps({"ok": True, "upload_url": url, "file_id": "F1"}).encode()])
        return slack_reply(asked)

    async with serving(reply) as server:
        with pytest.raises(ToolError, match="has no upload URL"):
            await Slack("xoxb-1", "C1", api=f"{server.url}/api").send("Done.", [REPORT])
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (Reply([b'{"ok": false, "error": "not_in_channel"}']), ErrorKind.CONFIG, "Invite the bot"),
        (Reply([b'{"ok": false, "error": "invalid_auth"}']), ErrorKind.CONFIG, "bot's token"),
        (Reply([b'{"ok": false, "error": "bad xoxb-1"}']), ErrorKind.SYSTEM, "Check the bot's token"),
        (Reply([b"{"], status=500), ErrorKind.SYSTEM, "Check the bot's token"),
    ],
)
async def test_slack_says_what_was_wrong_without_the_token(reply, kind, words):
    async with serving(lambda asked: reply) as server:
        with pytest.raises(ToolError, match="Slack did not accept the message") as caught:
            await Slack("xoxb-1", "C1", api=f"{server.url}/api").send("Done.")
    assert caught.value.kind is kind
    assert words in caught.value.suggestion
    assert "xoxb-1" not in f"{caught.value.message} {caught.value.suggestion}"


async def test_slack_waits_as_it_is_told():
    replies = [Reply(status=429, headers=[("Retry-After", "3")]), Reply([b'{"ok": true, "channel": "C1"}'])]
    slept = Slept()
    async with serving(lambda asked: replies.pop(0)) as server:
        await Slack("xoxb-1", "C1", api=server.url, sleep=slept).send("Done.")
    assert slept == [3.0]


async def test_slack_without_a_channel_or_with_a_broken_token_says_so():
    with pytest.raises(ToolError, match="no Slack channel is set"):
        await Slack("xoxb-1").send("Done.")
    with pytest.raises(ToolError, match="bot token"):
        Slack("xoxb 1")
    with pytest.raises(ToolError, match="is 50,000,000"):
        await Slack("xoxb-1", "C1").send("", [Attachment("a/b", b"x" * 50_000_001, "big")])


async def test_a_slack_webhook_takes_texts_and_names_files():
    async with serving(lambda asked: Reply([b"ok"])) as server:
        await SlackHook(f"{server.url}/services/T0/B0/secret").send("Done & <more>", [REPORT])
        with pytest.raises(ToolError, match="always posts to one channel"):
            await SlackHook(server.url).send("Done.", to="#ops")
    assert [json.loads(asked.body) for asked in server.asked] == [
        {"text": "Done &amp; &lt;more&gt;\n[report.csv: 8 bytes, not attached: a Slack webhook does not accept files]"}
    ]


def telegram_reply(asked) -> Reply:
    return Reply([b'{"ok": true, "result": {}}'], headers=[("Content-Type", "application/json")])


async def test_telegram_gets_texts_in_pieces_and_files_as_documents():
    async with serving(telegram_reply) as server:
        await Telegram("123:abc", "42", api=server.url).send("a" * 5_000, [REPORT])
    assert server.paths == ["/bot123:abc/sendMessage", "/bot123:abc/sendMessage", "/bot123:abc/sendDocument"]
    texts = [json.loads(asked.body) for asked in server.asked[:2]]
    assert [text["chat_id"] for text in texts] == ["42", "42"]
    assert "".join(text["text"] for text in texts) == "a" * 5_000
    assert b'filename="report.csv"' in server.asked[2].body
    assert REPORT.data in server.asked[2].body


async def test_a_files_name_cannot_forge_a_part_of_the_form():
    async with serving(telegram_reply) as server:
        nasty = Attachment("text/plain\r\nX: y", b"x", 'a"\r\n\r\nb')
        await Telegram("123:abc", api=server.url).send("", [nasty], to="7")
    head = server.asked[0].body.split(b'name="document"')[1].split(b"\r\n\r\n")[0]
    assert head == b'; filename="a-----b"\r\nContent-Type: application/octet-stream'


async def test_telegram_waits_as_it_is_told_and_says_what_was_wrong_without_the_token():
    replies = [
        Reply([b'{"ok": false, "error_code": 429, "parameters": {"retry_after": 3}}'], status=429),
        Reply([b'{"ok": false, "description": "Unauthorized bot123:abc"}'], status=401),
    ]
    slept = Slept()
    async with serving(lambda asked: replies.pop(0)) as server:
        with pytest.raises(ToolError) as caught:
            await Telegram("123:abc", "42", api=server.url, sleep=slept).send("Done.")
    assert slept == [3.0]
    assert caught.value.kind is ErrorKind.CONFIG
    assert "Unauthorized" in caught.value.message
    assert "123:abc" not in f"{caught.value} {caught.value.suggestion}"


@pytest.mark.parametrize("reply", [Reply([b"{"]), Reply([b"[]"]), Reply([b'{"ok": false}']), Reply([b"[" * 100_000])])
async def test_an_answer_that_says_no_yes_is_a_no(reply):
    async with serving(lambda asked: reply) as server:
        with pytest.raises(ToolError, match="did not accept the message"):
            await Telegram("123:abc", "42", api=server.url).send("Done.")


async def test_no_chat_and_no_token_are_said():
    with pytest.raises(ToolError, match="no chat is set"):
        await Telegram("123:abc").send("Done.")
    with pytest.raises(ToolError, match="bot token"):
        Telegram("a/../b")


async def test_channels_are_found_by_name():
    paper = io.StringIO()
    channels = Channels({"screen": Terminal(paper)})
    await channels.deliver("Done.", "screen")
    assert paper.getvalue() == "Done.\n"
    with pytest.raises(ToolError) as caught:
        await channels.deliver("Done.", "scren")
    assert "Did you mean 'screen'?" in caught.value.suggestion
    with pytest.raises(ToolError) as caught:
        await Channels({}).deliver("Done.", "x")
    assert "The project has no channels." in caught.value.suggestion


@given(st.text(), st.integers(2, 40))
def test_pieces_are_short_enough_and_lose_only_white_space(text, longest):
    parts = split_text(text, longest)
    assert all(len(part.encode("utf-16-le", "surrogatepass")) // 2 <= longest for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_pieces_are_cut_at_paragraphs_and_words():
    assert split_text("one two three\n\nfour five", 14) == ["one two three", "four five"]
    assert split_text("one two three", 8) == ["one two", "three"]
    assert split_text("short", 100) == ["short"]
    assert split_text(" \n", 100) == []
