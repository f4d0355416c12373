"""Sessions: everything comes back, from any process, after any death; nothing saved is ever lost silently."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import forge
from forge import Agent, Scripted, tool
from forge.agent import session_tables
from forge.agent.session import SessionStore, StoreError
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message, ToolCall, Usage
from forge.core.result import Attachment
from forge.workspace.state import store as module
from tests import programs

PNG = Attachment("image/png", bytes(range(256)) * 10, "picture.png")
EVERYTHING = [
    Message("system", "Be brief."),
    Message("user", "Grüße, 世界 🎉\n\ttabs, \0 and \x1b controls", attachments=(PNG, Attachment("text/plain", b""))),
    Message(
        "assistant",
        "",
        (
            ToolCall("file_read", {"path": "a.py", "deep": [{"x": [1, 2.5, None, True]}]}, "call_1"),
            ToolCall("broken", '{"path": "a', "call_2", "elsewhere"),
            ToolCall("none", "", "call_3"),
            ToolCall("empty", {}, "call_4"),
        ),
        finish="calls",
        usage=Usage(100, 20, 50),
        extra={"thinking": [{"text": "hm", "signature": "abc=="}], "huge": 2**200},
    ),
    Message("tool", "x" * 3_000_000, call_id="call_1", attachments=(PNG,)),
    Message("tool", "lone \ud800 surrogates \udfff", call_id="call_2"),
    Message("tool", "\ufffd\ufeff\u2028", call_id="call_3"),
    Message("tool", "", call_id="call_4"),
    Message("assistant", "done", finish="length"),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "private" / "state.db"


@pytest.fixture
def store(path):
    with SessionStore(path) as opened:
        yield opened


def again(path, name="a"):
    with SessionStore(path) as other:
        return other.show(name).messages


# keeping


def test_everything_comes_back(store, path):
    session = store.open("a")
    session.append(*EVERYTHING)
    assert session.messages == EVERYTHING
    assert again(path) == EVERYTHING


def test_two_halves_of_a_character_become_that_character(store, path):
    store.open("a").append(Message("user", "\ud83d\ude00 \ud800"))
    assert again(path) == [Message("user", "\U0001f600 \ud800")]


def test_a_session_is_created_or_continued(store, path):
    session = store.open("a")
    assert session.messages == []
    session.append(Message("user", "one"))
    with SessionStore(path) as other:
        continued = other.open("a")
        continued.append(Message("assistant", "two"))
    assert [message.text for message in again(path)] == ["one", "two"]


def test_the_list_stays_the_same_object(store):
    session = store.open("a")
    messages = session.messages
    session.append()
    session.append(Message("user", "one"), Message("user", "two"))
    assert session.messages is messages
    assert len(messages) == 2


def test_arguments_that_json_cannot_hold_are_described_not_refused(store, path):
    cycle: dict = {}
    cycle["self"] = cycle
    deep: dict = {}
    for _ in range(5_000):
        deep = {"a": deep}
    nested: dict = {}
    for _ in range(150):
        nested = {"a": [nested]}
    values = [cycle, deep, nested, {"a": {1, 2}}, {"a": object()}, {"a": Path("x")}, {"a": 10**5_000}, {1: 2}]
    store.open("a").append(*(Message("assistant", "", (ToolCall("t", value),), extra=value) for value in values))
    read = again(path)
    assert len(read) == len(values)
    assert read[5].tool_calls[0].arguments == {"a": "x"}
    store.open("b").append(Message("assistant", "", (ToolCall("t", MappingProxyType({"a": 1})),)))
    assert again(path, "b")[0].tool_calls[0].arguments == {"a": 1}


texts = st.text(st.characters(exclude_categories=[])) | st.text()
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
mappings = st.dictionaries(texts, values, max_size=3)
calls = st.builds(ToolCall, texts, texts | mappings, texts, texts)
attachments = st.builds(Attachment, texts, st.binary(max_size=50), texts)
messages = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant"]),
    texts,
    st.lists(calls, max_size=2).map(tuple),
    texts,
    st.lists(attachments, max_size=2).map(tuple),
    st.sampled_from(["", "stop", "calls", "length", "refused"]),
    st.builds(Usage, *[st.integers(0, 2**40)] * 3),
    mappings,
)


@given(st.lists(messages, max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_any_message_comes_back_equal(tmp_path, said):
    with SessionStore(tmp_path / "state.db") as store:
        store.open("a").append(*said)
        assert store.show("a").messages == said
        exported = store.export("a")
        json.dumps(exported, ensure_ascii=False, allow_nan=False).encode()
        store.import_("b", json.loads(json.dumps(exported)))
        assert store.export("b") == exported
        store.delete("a")
        store.delete("b")


def test_an_attachment_is_stored_once(store, path):
    large = Attachment("image/png", os.urandom(200_000), "large.png")
    for name in ("a", "b"):
        store.open(name).append(*(Message("user", "look", attachments=(large,)) for _ in range(10)))
    store.close()
    assert path.stat().st_size < 400_000
    read = again(path)
    assert all(message.attachments == (large,) for message in read)
    assert read[0].attachments[0].data is read[9].attachments[0].data


def test_the_cost_of_an_append_does_not_grow_with_the_history(store):
    session = store.open("a")
    statements: list[str] = []
    counts = []
    for number in range(300):
        session.append(Message("user", f"{number}"))
        if number in (5, 295):
            store._store._connection.set_trace_callback(statements.append)
        elif number in (6, 296):
            store._store._connection.set_trace_callback(None)
            counts.append(len(statements))
            statements.clear()
    assert counts[0] == counts[1] < 10


def test_nothing_is_half_saved(store, path):
    session = store.open("a")
    session.append(Message("user", "one"))

    class Unreadable(Attachment):
        @property
        def data(self):
            raise RuntimeError("the bytes are gone")

        @data.setter
        def data(self, value):
            pass

    broken = object.__new__(Unreadable)
    object.__setattr__(broken, "media_type", "x")
    object.__setattr__(broken, "name", "x")
    object.__setattr__(broken, "url", "")
    with pytest.raises(RuntimeError, match="bytes are gone"):
        session.append(Message("user", "two", attachments=(PNG,)), Message("user", "three", attachments=(broken,)))
    assert len(session.messages) == 1
    session.append(Message("user", "four"))
    assert [message.text for message in again(path)] == ["one", "four"]


# what a person does with sessions


def test_the_list_shows_what_is_in_a_session_the_latest_first(store):
    store.open("first").append(Message("user", "  Mend the\nbridge " + "please " * 30), Message("assistant", "ok"))
    store.open("second").append(Message("assistant", "hello"), Message("assistant", "again"))
    second, first = store.list()
    assert (first.name, first.messages, first.turns) == ("first", 2, 1)
    assert first.title.startswith("Mend the bridge please")
    assert len(first.title) <= 80
    assert (second.name, second.messages, second.turns, second.title) == ("second", 2, 2, "")
    assert first.created <= first.updated <= second.updated
    store.open("first").append(Message("user", "another matter"))
    assert store.list()[0] == store.open("first").info
    assert store.list()[0].title == first.title


def test_a_session_that_is_not_there_is_not_made_by_looking(store):
    store.open("bridge")
    with pytest.raises(StoreError, match='no session "brigde"') as caught:
        store.show("brigde")
    assert caught.value.kind is ErrorKind.NOT_FOUND
    assert caught.value.suggestion == 'Did you mean "bridge"?'
    for action in (store.export, store.delete, lambda name: store.fork(name, "x")):
        with pytest.raises(StoreError):
            action("nobody")
    assert len(store.list()) == 1


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\0b", "x" * 201, "\ud800"])
def test_a_name_is_something_a_person_can_type(store, name):
    for action in (store.open, lambda name: store.import_(name, [])):
        with pytest.raises(StoreError) as caught:
            action(name)
        assert caught.value.kind is ErrorKind.VALIDATION


@pytest.mark.parametrize("name", ["a", "über/../x y", "'; DROP TABLE sessions; --", "会话", "%", "x" * 200])
def test_any_such_name_will_do(store, name):
    store.open(name).append(Message("user", "one"))
    assert store.open(name).messages == [Message("user", "one")]


def test_a_fork_goes_on_by_itself(store):
    session = store.open("a")
    session.append(*EVERYTHING)
    session.meta["todo"] = ["mend"]
    fork = store.fork("a", "b")
    assert fork.messages == EVERYTHING
    assert fork.meta["todo"] == ["mend"]
    fork.append(Message("user", "only here"))
    fork.meta["todo"] = []
    assert store.open("a").messages == EVERYTHING
    assert store.open("a").meta["todo"] == ["mend"]
    store.delete("a")
    assert store.open("b").messages[:-1] == EVERYTHING


def test_a_fork_may_stop_earlier(store):
    store.open("a").append(*EVERYTHING)
    fork = store.fork("a", "b", upto=3)
    assert fork.messages == EVERYTHING[:3]
    assert (fork.info.messages, fork.info.turns) == (3, 1)
    assert store.fork("a", "c", upto=0).messages == []
    assert store.fork("a", "d", upto=1_000).messages == EVERYTHING
    with pytest.raises(StoreError):
        store.fork("a", "e", upto=-1)
    with pytest.raises(StoreError, match="already"):
        store.fork("a", "b")


def test_an_export_can_be_imported_elsewhere(store, tmp_path):
    sendable = [message for message in EVERYTHING if message.call_id != "call_2"]
    store.open("a").append(*sendable)
    text = json.dumps(store.export("a"), ensure_ascii=False, allow_nan=False)
    with SessionStore(tmp_path / "other.db") as other:
        assert other.import_("b", json.loads(text)).messages == sendable
        assert other.list()[0].turns == 2
        with pytest.raises(StoreError, match="already"):
            other.import_("b", [])


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        ({}, "message 2 of the imported session cannot be read: role is missing"),
        ({"role": "judge"}, "expected one of assistant, system, tool, user"),
        ({"role": "user", "text": 5}, "text: expected a text, got 5"),
        ({"role": "user", "tool_calls": {}}, "tool_calls: expected a list"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, "name is missing"),
        ({"role": "assistant", "tool_calls": ["a"]}, "expected an object"),
        ({"role": "assistant", "tool_calls": [{"id": "a", "name": "b", "arguments": 5}]}, "arguments: expected"),
        ({"role": "user", "attachments": [{"media_type": "a", "data": "%%%"}]}, "cannot be read"),
        ({"role": "user", "usage": [1]}, "usage: expected"),
        ({"role": "user", "extra": "x"}, "extra: expected"),
        ("text", "expected an object"),
    ],
)
def test_what_cannot_be_imported_is_explained_and_nothing_is_made(store, wire, words):
    with pytest.raises(StoreError, match=words):
        store.import_("a", [{"role": "user"}, wire])
    assert store.list() == []


def test_a_deleted_session_is_gone_for_good(store, path):
    secret = "correct horse battery staple"
    store.open("a").append(Message("user", secret, attachments=(PNG,)))
    store.open("b").append(Message("user", "other", attachments=(Attachment("x", b"another secret"),)))
    store.delete("a")
    assert [info.name for info in store.list()] == ["b"]
    files = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert secret.encode() not in files
    assert PNG.data[:200] not in files
    assert b"another secret" in files


def test_a_session_deleted_under_our_feet_is_not_brought_back(store, path):
    session = store.open("a")
    with SessionStore(path) as other:
        other.delete("a")
        with pytest.raises(StoreError, match="no session"):
            session.append(Message("user", "lost?"))
        with pytest.raises(StoreError, match="deleted"):
            session.meta["todo"] = []
        other.open("a").append(Message("user", "new"))
        with pytest.raises(StoreError, match="deleted by another process"):
            session.append(Message("user", "lost?"))
    assert [message.text for message in again(path)] == ["new"]


def test_a_value_is_read_without_opening_its_session(store):
    store.open("a").meta["todo"] = ["mend"]
    assert store.read_meta("a", "todo") == ["mend"]
    assert store.read_meta("a", "answers") is None
    assert store.read_meta("b", "todo") is None
    assert [one.name for one in store.list()] == ["a"]


def test_small_values_belong_to_a_session(store, path):
    meta = store.open("a").meta
    meta["todo"] = [{"content": "mend", "status": "pending"}]
    meta["answers"] = {"x": None, "é": "\ud800"}
    assert store.open("b").meta.get("todo", "none") == "none"
    with SessionStore(path) as other:
        seen = other.show("a").meta
        assert dict(seen) == {"todo": [{"content": "mend", "status": "pending"}], "answers": {"x": None, "é": "\ud800"}}
        seen["todo"] = []
        del seen["answers"]
    assert dict(meta) == {"todo": []}
    assert len(meta) == 1
    with pytest.raises(KeyError):
        del meta["answers"]
    with pytest.raises(StoreError, match="may have 1048576 characters"):
        meta["large"] = "x" * 2_000_000
    with pytest.raises(TypeError):
        meta["odd"] = object()


# many processes, many threads


def python(code, *arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(Path(forge.__file__).parents[1])}
    command = [sys.executable, "-c", "import sys\n" + PREAMBLE + code, *map(str, arguments)]
    return programs.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


PREAMBLE = """
from forge.agent.session import SessionStore, StoreError
from forge.core.messages import Message, ToolCall
store = SessionStore(sys.argv[1])
"""

WRITING = """
session = store.open(sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
for number in range(200):
    session.append(*(Message("user", f"{sys.argv[3]} {number} {part}") for part in range(3)))
"""


def finished(process):
    output, errors = process.communicate(timeout=150)
    assert process.returncode == 0, errors
    return output


def test_processes_that_write_at_once_lose_nothing_and_tear_nothing(path):
    writers = [
        python(WRITING, path, name, writer, stdin=subprocess.PIPE)
        for writer, name in enumerate(["same", "same", "other"])
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.close()
        writer.stdin = None
    for writer in writers:
        finished(writer)
    same, other = again(path, "same"), again(path, "other")
    assert [message.text for message in other] == [f"2 {n} {part}" for n in range(200) for part in range(3)]
    assert len(same) == 1_200
    for start in range(0, 1_200, 3):  # what was appended together stands together
        writer, number, _ = same[start].text.split()
        assert [one.text for one in same[start : start + 3]] == [f"{writer} {number} {part}" for part in range(3)]
    for writer in "01":
        numbers = [int(one.text.split()[1]) for one in same if one.text.startswith(writer)]
        assert numbers == sorted(numbers)


def test_processes_may_open_a_new_file_at_once(path):
    path.parent.mkdir()
    code = "print('ready', flush=True); sys.stdin.read(); store.open('a').append(Message('user', sys.argv[2]))"
    openers = [python(code, path, number, stdin=subprocess.PIPE) for number in range(6)]
    for opener in openers:
        assert opener.stdout.readline() == "ready\n"
    for opener in openers:
        opener.stdin.close()
        opener.stdin = None
    for opener in openers:
        finished(opener)
    assert sorted(message.text for message in again(path)) == list("012345")


def test_a_killed_process_loses_nothing_that_it_has_saved(path):
    code = """
session = store.open("a")
number = 0
while True:
    session.append(*(Message("user", f"{number} {part} " + "x" * 5_000) for part in range(3)))
    print(number, flush=True)
    number += 1
"""
    told = -1
    for _ in range(4):
        victim = python(code, path)
        last = -1
        for line in victim.stdout:
            last = int(line)
            if last >= 40:
                break
        victim.send_signal(signal.SIGKILL)
        rest, _ = victim.communicate(timeout=150)
        last = max([last, *map(int, rest.split("\n")[:-1])])
        told += last + 1
        saved = again(path)
        assert len(saved) % 3 == 0
        assert len(saved) >= 3 * (told + 1)
        told = len(saved) // 3 - 1
        assert saved[-1].text.split()[1] == "2"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with SessionStore(path) as store:
        store.open("a").append(Message("user", "on we go"))


def test_a_process_killed_while_it_writes_locks_nobody_out(path, store):
    store.open("a").append(Message("user", "before"))
    code = """
with store._store.write_transaction() as connection:
    connection.execute("DELETE FROM session_messages")
    print("deep in it", flush=True)
    sys.stdin.read()
"""
    victim = python(code, path, stdin=subprocess.PIPE)
    assert victim.stdout.readline() == "deep in it\n"
    victim.kill()
    victim.communicate()
    store.open("a").append(Message("user", "after"))
    assert [message.text for message in again(path)] == ["before", "after"]


def test_results_stand_behind_their_calls_though_another_process_spoke_in_between(store, path):
    mine = store.open("a")
    with SessionStore(path) as other:
        yours = other.open("a")
        mine.append(Message("assistant", "", (ToolCall("t", {}, "1"), ToolCall("t", {}, "2"))))
        yours.append(Message("user", "hello?"))
        mine.append(Message("tool", "one", call_id="1"), Message("tool", "two", call_id="2"))
        assert len(yours.messages) == 1
        assert yours.refresh()
        assert not yours.refresh()
        assert [message.text for message in yours.messages] == ["", "one", "two", "hello?"]
        assert yours.messages == again(path)
        yours.append(Message("user", "bye"))
        assert not yours.refresh()


def test_a_store_may_be_used_from_many_threads(store, path):
    session = store.open("a")
    threads = [
        threading.Thread(target=lambda: [session.append(Message("user", "x")) for _ in range(50)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(session.messages) == len(again(path)) == 200


def test_a_forked_process_opens_the_file_itself(path):
    code = """
import os
session = store.open("a")
session.append(Message("user", "parent"))
child = os.fork()
session.append(Message("user", "child" if child == 0 else "parent again"))
store.close()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
session.append(Message("user", "parent at last"))
"""
    finished(python(code, path))
    assert sorted(message.text for message in again(path)) == ["child", "parent", "parent again", "parent at last"]


def test_a_file_that_stays_locked_is_an_error_that_may_pass(store, path, monkeypatch):
    store.open("a")
    store.close()
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        session = store.open("a")  # readers do not wait
        with pytest.raises(StoreError, match="locked by another process") as caught:
            session.append(Message("user", "x"))
        assert caught.value.passing
        assert session.messages == []
        other.execute("ROLLBACK")
    session.append(Message("user", "x"))
    assert len(again(path)) == 1


# full disks, damaged files


def test_a_full_disk_is_said_clearly_and_loses_nothing_earlier(path):
    code = """
import resource
session = store.open("a")
session.append(Message("user", "before"))
__import__("sys").dont_write_bytecode = True  # half a compiled module would be left for everybody
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
failures = 0
for number in range(100):
    try:
        session.append(Message("user", f"{number}" + "x" * 50_000), Message("user", "pair"))
    except StoreError as error:
        failures += 1
        assert "could not be written" in error.message and "full" in error.message, error.message
        assert "Free some space" in error.suggestion
        break
assert failures == 1
kept = len(session.messages)
assert 3 <= kept < 100
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
session.append(Message("user", "after"))
print(kept)
"""
    kept = int(finished(python(code, path)))
    saved = again(path)
    assert len(saved) == kept + 1
    assert (saved[0].text, saved[-2].text, saved[-1].text) == ("before", "pair", "after")


def test_a_database_that_may_not_grow_says_so(store, path):
    session = store.open("a")
    session.append(Message("user", "before"))
    pages = store._store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match=r"is full.*is the disk full"):
        session.append(Message("user", "x" * 100_000))
    assert [message.text for message in again(path)] == ["before"]
    store.close()
    session.append(Message("user", "after"))
    assert [message.text for message in again(path)] == ["before", "after"]


def filled(path):
    with SessionStore(path) as store:
        for number in range(50):
            store.open(f"session {number % 3}").append(Message("user", f"{number} " * 2_000))


def garbage(path):
    path.write_bytes(b"this is no database at all, whatever its name says " * 100)


def cut_short(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 + 100)


def overwritten(path):
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xaa" * (size - 4096))


@pytest.mark.parametrize("harm", [garbage, cut_short, overwritten])
def test_a_damaged_file_is_set_aside_and_reported(path, harm):
    filled(path)
    harm(path)
    damaged = path.read_bytes()
    with SessionStore(path) as store:
        with pytest.raises(StoreError, match=r"is damaged .* set aside as state\.db\.corrupt-\d{8}T\d{6}") as caught:
            [store.open(f"session {number}") for number in range(3)]
        (aside,) = [file for file in path.parent.iterdir() if not file.name.endswith(("-wal", "-shm")) and file != path]
        assert aside.name in caught.value.message
        assert str(aside) in caught.value.suggestion
        assert stat.S_IMODE(aside.stat().st_mode) == 0o600
        if harm is garbage:
            assert aside.read_bytes() == damaged
        store.open("new").append(Message("user", "on we go"))
    assert [message.text for message in again(path, "new")] == ["on we go"]


def test_damage_found_by_many_processes_sets_one_file_aside(path):
    filled(path)
    garbage(path)
    code = """
print("ready", flush=True)
sys.stdin.read()
for attempt in range(20):
    try:
        store.open("new").append(Message("user", sys.argv[2]))
        break
    except StoreError as error:
        assert "damaged" in error.message, error.message
else:
    raise SystemExit("never opened")
"""
    finders = [python(code, path, number, stdin=subprocess.PIPE) for number in range(4)]
    for finder in finders:
        assert finder.stdout.readline() == "ready\n"
    for finder in finders:
        finder.stdin.close()
        finder.stdin = None
    for finder in finders:
        finished(finder)
    assert len([file for file in path.parent.iterdir() if ".corrupt-" in file.name]) == 1
    assert sorted(message.text for message in again(path, "new")) == list("0123")


def test_no_process_sets_the_file_aside_while_another_opens_it(path, monkeypatch):
    """Opened before and read after, the old file would be read with the log of the new one, and empty it."""
    path.parent.mkdir()
    connect, refused = sqlite3.connect, []

    def others_are_locked_out(*arguments, **options):
        with pytest.raises(BlockingIOError) as caught:
            lock_all_out(path.parent)
        refused.append(caught.value)
        return connect(*arguments, **options)

    with SessionStore(path) as store, monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", others_are_locked_out)
        store.open("a").append(Message("user", "one"))
        assert len(refused) == 1
        lock_all_out(path.parent)


def lock_all_out(directory):
    """Lock it as a process does that sets a file aside, and let go of it."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(handle)


def test_two_files_set_aside_in_one_second_are_both_kept(path):
    path.parent.mkdir()
    for content in (b"first " * 1_000, b"second " * 1_000):
        path.write_bytes(content)
        with SessionStore(path) as store, pytest.raises(StoreError, match="set aside"):
            store.list()
    kept = {file.read_bytes()[:5] for file in path.parent.iterdir() if ".corrupt-" in file.name}
    assert kept == {b"first", b"secon"}


def test_a_message_that_cannot_be_read_names_the_way_out(store, path):
    store.open("a").append(*EVERYTHING)
    with store._store.write_transaction() as connection:
        connection.execute("UPDATE session_messages SET body = '{broken' WHERE id = 4")
    with pytest.raises(StoreError, match="message 4 of the session cannot be read") as caught:
        store.open("a")
    assert caught.value.suggestion == "Fork the session with upto=3 to go on from there."
    assert store.fork("a", "b", upto=3).messages == EVERYTHING[:3]


def test_a_file_deleted_while_it_is_open_is_noticed(store, path):
    session = store.open("a")
    session.append(Message("user", "one"))
    for file in path.parent.iterdir():
        file.unlink()
    with pytest.raises(StoreError, match="no session"):
        session.append(Message("user", "into the void"))
    store.open("a").append(Message("user", "new"))
    assert [message.text for message in again(path)] == ["new"]


# the file itself


def test_the_file_is_for_its_owner_alone(path):
    old = os.umask(0)
    try:
        with SessionStore(path) as store:
            store.open("a").append(Message("user", "x"))
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_others_can_read_is_closed_to_them(path):
    filled(path)
    path.chmod(0o644)
    with SessionStore(path) as store:
        assert store.list()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_or_anything_else_in_its_place_is_refused(tmp_path):
    filled(tmp_path / "real.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    (tmp_path / "dangling.db").symlink_to(tmp_path / "nowhere.db")
    (tmp_path / "directory.db").mkdir()
    os.mkfifo(tmp_path / "pipe.db")
    for name in ("link.db", "dangling.db", "directory.db", "pipe.db", "real.db/below.db"):
        with SessionStore(tmp_path / name) as store, pytest.raises(StoreError, match="cannot be opened") as caught:
            store.open("a")
        assert caught.value.kind is ErrorKind.CONFIG
    assert not (tmp_path / "nowhere.db").exists()


def test_the_store_of_a_workspace_is_in_its_forge_directory(tmp_path):
    with SessionStore.of(tmp_path) as store:
        store.open("a")
        assert store.path == tmp_path / ".forge" / "state.db"
    assert stat.S_IMODE((tmp_path / ".forge").stat().st_mode) == 0o700


def test_a_file_of_a_newer_version_is_left_alone(path):
    filled(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE parts SET version = 99")
    with SessionStore(path) as store, pytest.raises(StoreError, match="newer Forge") as caught:
        store.list()
    assert caught.value.suggestion.startswith("Update Forge")
    assert [file.name for file in path.parent.iterdir() if "corrupt" in file.name] == []


def test_an_older_file_is_migrated_once_and_keeps_its_messages(path, monkeypatch):
    filled(path)
    ran = []

    def add_column(connection):
        ran.append(1)
        connection.execute("ALTER TABLE sessions ADD COLUMN colour TEXT")

    monkeypatch.setattr("forge.agent.session.MIGRATIONS", [*session_tables.MIGRATIONS, add_column])
    for _ in range(2):
        with SessionStore(path) as store:
            assert len(store.open("session 0").messages) == 17
    assert ran == [1]


def test_a_migration_that_fails_leaves_everything_as_it_was(path, monkeypatch):
    filled(path)

    def half(connection):
        connection.execute("DELETE FROM session_messages")
        connection.execute("no SQL at all")

    with monkeypatch.context() as patch:
        patch.setattr("forge.agent.session.MIGRATIONS", [*session_tables.MIGRATIONS, half])
        with SessionStore(path) as store, pytest.raises(StoreError):
            store.list()
    assert len(again(path, "session 0")) == 17


def test_another_part_may_share_the_file(store, path):
    store.open("a").append(Message("user", "x"))

    def tables(connection):
        connection.execute("CREATE TABLE undo (id INTEGER)")

    part = module.Store(path, "undo", [tables])
    with part.write_transaction() as connection:
        connection.execute("INSERT INTO undo VALUES (1)")
    part.close()
    assert len(again(path)) == 1


def test_a_closed_store_opens_again(store):
    session = store.open("a")
    store.close()
    store.close()
    session.append(Message("user", "x"))
    assert len(store.open("a").messages) == 1


# runs that continue a conversation by its name


async def test_a_run_with_a_store_continues_the_conversation(tmp_path):
    model = Scripted("Hello, Ada.", ToolCall("task_completion", {"result": "Ada."}, "c"), "Nobody.")
    agent = Agent(model, instructions="Be brief.")
    with SessionStore(tmp_path / "sessions.db") as store:
        first = await agent.run("I am Ada.", session="ada", store=store)
    with SessionStore(tmp_path / "sessions.db") as store:  # another process, another day
        second = await Agent(model, instructions="Be brief.").run("Who am I?", session="ada", store=store)
        assert [one.text for one in model.requests[1].messages] == [
            "Be brief.",
            "I am Ada.",
            "Hello, Ada.",
            "Who am I?",
        ]
        assert second.messages == [*first.new_messages, *second.new_messages] == store.show("ada").messages
        assert second.new_messages[0].text == "Who am I?"
        await agent.run("Who am I?", session="bob", store=store)
        assert [one.text for one in model.requests[2].messages] == ["Be brief.", "Who am I?"]


async def test_without_a_store_the_name_continues_no_conversation():
    model = Scripted("Hello, Ada.", "Nobody.")
    agent = Agent(model)
    await agent.run("I am Ada.", session="ada")
    await agent.run("Who am I?", session="ada")
    assert [one.text for one in model.requests[1].messages] == ["Who am I?"]


def test_every_door_takes_a_store(tmp_path):
    with SessionStore(tmp_path / "sessions.db") as store:
        agent = Agent(Scripted("one", "two", "3"))
        agent.run_sync("1", session="ada", store=store)

        async def stream():
            async for _ in agent.stream("2", session="ada", store=store):
                pass
            async for _ in agent.replace(output=int).stream_output("3", session="ada", store=store):
                pass

        asyncio.run(stream())
        assert [one.text for one in store.show("ada").messages if one.role == "user"] == ["1", "2", "3"]


async def test_a_stopped_run_is_stored_and_the_next_one_continues(tmp_path):
    began = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await asyncio.Event().wait()
        return "never"

    model = Scripted(ToolCall("wait", {}, "c"), "Fine.")
    agent = Agent(model, tools=[wait])
    with SessionStore(tmp_path / "sessions.db") as store:
        running = asyncio.create_task(agent.run("Wait.", session="ada", store=store))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [one.role for one in store.show("ada").messages] == ["user", "assistant", "tool"]
        assert (await agent.run("And now?", session="ada", store=store)).text == "Fine."


async def test_a_store_needs_a_name_and_brings_the_history_itself(tmp_path):
    agent = Agent(Scripted("never"))
    with SessionStore(tmp_path / "sessions.db") as store:
        with pytest.raises(ToolError, match="a store and no session"):
            await agent.run("?", store=store)
        with pytest.raises(ToolError, match="a store and a history"):
            await agent.run("?", history=[], session="ada", store=store)
        with pytest.raises(ToolError, match="a store and a history"):
            await agent.run([Message("user", "?")], session="ada", store=store)
        assert store.list() == []


class Slow:
    """A model whose answer to "slow" waits for the test. It answers what it has heard."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def stream(self, request):
        heard = [one.text for one in request.messages if one.role == "user"]
        if heard[-1] == "slow":
            self.begun.set()
            await self.go_on.wait()
        yield Message("assistant", " ".join(heard))


def turn_files(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir() if "-run-" in one.name]


async def test_runs_of_one_session_come_one_after_the_other_and_see_each_other(tmp_path):
    model = Slow()
    agent = Agent(model)
    with SessionStore(tmp_path / "sessions.db") as store, SessionStore(tmp_path / "." / "sessions.db") as same:
        first = agent.start("slow", session="ada", store=store)
        await model.begun.wait()
        others = [agent.start(str(number), session="ada", store=same) for number in range(3)]
        assert (await agent.run("bob", session="bob", store=store)).text == "bob"  # another session does not wait
        assert not any(run.is_over for run in others)
        model.go_on.set()
        assert [(await run).text for run in (first, *others)] == ["slow", "slow 0", "slow 0 1", "slow 0 1 2"]
        roles = [one.role for one in store.show("ada").messages]
        assert roles == ["user", "assistant"] * 4
    assert turn_files(tmp_path) == []


async def test_a_run_that_waits_for_another_is_cancelled_and_the_working_one_is_spoken_to(tmp_path):
    model = Slow()
    agent = Agent(model)
    with SessionStore(tmp_path / "sessions.db") as store:
        working = agent.start("slow", session="ada", store=store)
        await model.begun.wait()
        waiting = agent.start("never", session="ada", store=store)
        await asyncio.sleep(0)
        agent.send("for the one that works", session="ada")
        result = await waiting.cancel()
        assert (result.reason, result.messages) == ("cancelled", [])
        model.go_on.set()
        assert (await working).text == "slow for the one that works"
        assert "never" not in [one.text for one in store.show("ada").messages]
        assert (await agent.run("then", session="ada", store=store)).text.endswith("then")


async def test_a_run_inside_a_run_of_the_same_session_does_not_wait_for_itself(tmp_path):
    with SessionStore(tmp_path / "sessions.db") as store:

        @tool
        async def inner(session: str) -> str:
            """Run again."""
            return (await other.run("Hi", session=session, store=store)).text

        other = Agent(Scripted("inside", "later"))
        calls = [ToolCall("inner", {"session": name}, name) for name in ("ada", "bob")]
        agent = Agent(Scripted(*calls, "Done."), tools=[inner])
        result = await agent.run("Go", session="ada", store=store)
        refused, done = [one for one in result.messages if one.role == "tool"]
        assert "inside a run of the same session" in refused.text
        assert done.text == "inside"
        assert (await other.run("Hi", session="ada", store=store)).text == "later"  # the run is over


HOLDS = """
import asyncio, sys
from forge import Agent, Message, SessionStore

class Model:
    async def stream(self, request):
        print("begun", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        yield Message("assistant", "from another process")

with SessionStore(sys.argv[1]) as store:
    Agent(Model()).run_sync("other", session="ada", store=store)
"""


@pytest.mark.parametrize("ending", ["ends", "is killed"])
async def test_a_run_waits_for_one_of_another_process(tmp_path, ending):
    path, waits = tmp_path / "sessions.db", asyncio.Event()
    pipes: dict[str, Any] = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDS, str(path), **pipes)
    assert process.stdout is not None
    assert process.stdin is not None
    assert await process.stdout.readline() == b"begun\n"
    with SessionStore(path) as store:

        async def hold() -> list[str]:
            async with store.turn("ada", waits.set):
                return [one.text for one in store.show("ada").messages]

        holding = asyncio.create_task(hold())
        await waits.wait()
        run = Agent(Slow()).start("mine", session="ada", store=store)
        assert not run.is_over
        if ending == "ends":
            process.stdin.write(b"\n")
            await process.stdin.drain()
        else:
            process.kill()
        await process.wait()
        said = ["other", "from another process"] if ending == "ends" else ["other"]
        assert await holding == said
        assert (await run).text == "other mine"
    assert turn_files(tmp_path) == []


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc/hostname"), os.mkfifo])
async def test_something_else_in_the_place_of_a_lock_is_refused(tmp_path, make):
    model = Slow()
    agent = Agent(model)
    with SessionStore(tmp_path / "sessions.db") as store:
        run = agent.start("slow", session="ada", store=store)
        await model.begun.wait()
        (name,) = turn_files(tmp_path)
        model.go_on.set()
        await run
        make(tmp_path / name)
        with pytest.raises(StoreError, match="cannot be locked"):
            await agent.run("Hi", session="ada", store=store)
        (tmp_path / name).unlink()
        assert (await agent.run("Hi", session="ada", store=store)).text == "slow Hi"


async def test_a_failing_run_lets_the_next_one_go(tmp_path):
    def broken() -> str:
        raise RuntimeError("no instructions today")

    with SessionStore(tmp_path / "sessions.db") as store:
        with pytest.raises(Exception, match="no instructions today"):
            await Agent(Scripted("x"), instructions=broken).run("Hi", session="ada", store=store)
        assert (await Agent(Scripted("x")).run("Hi", session="ada", store=store)).text == "x"


def test_a_fork_does_not_hold_the_sessions_of_its_parent(tmp_path):
    with SessionStore(tmp_path / "sessions.db") as store:

        async def hold() -> int:
            async with store.turn("ada"):
                child = os.fork()
                if child == 0:
                    os.read(end, 1)  # it lives on, and the parent's turn is over
                    os._exit(0)
                return child

        end, begin = os.pipe()
        child = asyncio.run(hold())
        assert Agent(Scripted("x")).run_sync("Hi", session="ada", store=store).text == "x"
        os.write(begin, b"x")
        assert os.waitpid(child, 0)[1] == 0
        os.close(begin)
        os.close(end)
