"""What a session changed can be taken back, as long as nobody changed it since."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import threading
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes.commit import Change, commit
from forge.workspace.history.undo import UndoLog
from forge.workspace.paths import Location, PathValidator
from forge.workspace.paths.digest import digest_of
from forge.workspace.state import state_directory


class Desk:
    """A workspace whose changes are recorded: `desk.write("a.txt", b"new", call="c1")`."""

    def __init__(self, root: Path, path: Path | None = None, cap: int = 64 * 1024 * 1024) -> None:
        self.root = root
        self.log = UndoLog(path, cap)

    def place(self, path: str) -> Location:
        return PathValidator(self.root).resolve(path, follow=False)

    def write(self, path: str, content: bytes | None, call: str = "c", turn: str = "t", session: str = "s") -> int:
        return self.change({path: content}, call, turn, session)

    def change(self, files: dict[str, bytes | None], call: str = "c", turn: str = "t", session: str = "s") -> int:
        changes = [self._change(path, content) for path, content in files.items()]
        entry = self.log.record(session, turn, call, "file_write", changes)
        commit(changes, self.root)
        return entry

    def undo(self, *, call_id: str = "", turn: str = "", as_call: str = "u", session: str = "s") -> list[Change]:
        entries = self.log.choose_entries(session, call_id=call_id, turn=turn)
        changes = self.log.plan_restore(session, entries)
        if changes:
            self.log.record(session, "later", as_call, "undo", changes)
            commit(changes, self.root)
        self.log.mark(session, [one.id for one in entries], as_call)
        return changes

    def read(self, path: str) -> bytes | None:
        whole = self.root / path
        return whole.read_bytes() if whole.exists() else None

    def _change(self, path: str, content: bytes | None) -> Change:
        place = self.place(path)
        if not os.path.lexists(place.path):
            return Change(place, None, content)
        status = os.lstat(place.path)
        if stat.S_ISLNK(status.st_mode):
            return Change(place, None, content, link=os.readlink(place.path), status=status)
        if not stat.S_ISREG(status.st_mode):
            return Change(place, None, content, status=status)
        return Change(place, place.path.read_bytes(), content, status=status)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_an_edit_is_taken_back(desk):
    (desk.root / "a").write_bytes(b"one")
    desk.write("a", b"two")
    desk.undo()
    assert desk.read("a") == b"one"


def test_a_made_file_is_removed_and_a_removed_one_made_with_its_mode(desk):
    (desk.root / "old").write_bytes(b"old")
    (desk.root / "old").chmod(0o751)
    desk.change({"new": b"new", "old": None})
    desk.undo()
    assert desk.read("new") is None
    assert desk.read("old") == b"old"
    assert stat.S_IMODE((desk.root / "old").stat().st_mode) == 0o751


def test_an_edited_file_keeps_the_mode_it_has_now(desk):
    (desk.root / "a").write_bytes(b"one")
    desk.write("a", b"two")
    (desk.root / "a").chmod(0o755)
    desk.undo()
    assert stat.S_IMODE((desk.root / "a").stat().st_mode) == 0o755


def test_a_mode_that_the_change_set_comes_back_and_one_of_somebody_else_is_a_conflict(desk):
    (desk.root / "a").write_bytes(b"one")
    (desk.root / "a").chmod(0o640)
    change = Change(desk.place("a"), b"one", b"one", status=(desk.root / "a").stat(), new_mode=0o755)
    desk.log.record("s", "t", "c", "bash", [change])
    commit([change], desk.root)
    (desk.root / "a").chmod(0o700)
    with pytest.raises(ToolError, match="was changed since call c"):
        desk.undo()
    (desk.root / "a").chmod(0o755)
    desk.undo()
    assert stat.S_IMODE((desk.root / "a").stat().st_mode) == 0o640
    assert desk.read("a") == b"one"


def test_folders_that_were_removed_or_made_come_back_and_go_with_their_modes(desk):
    (desk.root / "old").mkdir(0o750)
    status = (desk.root / "old").stat()
    changes = [
        Change(desk.place("old"), None, None, status=status, folder="remove"),
        Change(desk.place("new"), None, None, 0o711, folder="make"),
    ]
    desk.log.record("s", "t", "c", "bash", changes)
    commit(changes, desk.root)
    assert _folders(desk) == ["new"]
    desk.undo(as_call="u1")
    assert _folders(desk) == ["old"]
    assert stat.S_IMODE((desk.root / "old").stat().st_mode) == 0o750
    desk.undo(call_id="u1", as_call="u2")
    assert _folders(desk) == ["new"]
    assert stat.S_IMODE((desk.root / "new").stat().st_mode) == 0o711


def _folders(desk):
    return sorted(name for name in os.listdir(desk.root) if name != ".forge")


def test_a_made_folder_in_which_somebody_put_something_stays(desk):
    change = Change(desk.place("new"), None, None, folder="make")
    desk.log.record("s", "t", "c", "bash", [change])
    commit([change], desk.root)
    (desk.root / "new" / "theirs").write_bytes(b"mine")
    desk.undo(call_id="c")
    assert desk.read("new/theirs") == b"mine"


def test_a_link_that_leads_elsewhere_now_leads_where_it_led(desk):
    (desk.root / "link").symlink_to("one")
    status = os.lstat(desk.root / "link")
    change = Change(desk.place("link"), None, b"", link="one", status=status, new_link="two")
    desk.log.record("s", "t", "c", "bash", [change])
    commit([change], desk.root)
    assert os.readlink(desk.root / "link") == "two"
    desk.undo()
    assert os.readlink(desk.root / "link") == "one"


def test_a_link_comes_back_and_goes_again(desk):
    (desk.root / "link").symlink_to("nowhere")
    desk.write("link", None, call="c1")
    desk.undo(as_call="u1")
    assert os.readlink(desk.root / "link") == "nowhere"
    desk.undo(call_id="u1", as_call="u2")
    assert not os.path.lexists(desk.root / "link")


def test_a_link_that_was_replaced_by_a_file_comes_back_too(desk):
    (desk.root / "link").symlink_to("nowhere")
    desk.write("link", b"a file now")
    assert desk.read("link") == b"a file now"
    desk.undo()
    assert os.readlink(desk.root / "link") == "nowhere"


def test_a_removed_fifo_cannot_come_back(desk):
    os.mkfifo(desk.root / "pipe")
    desk.write("pipe", None)
    with pytest.raises(ToolError, match="it was a FIFO"):
        desk.undo()


def test_one_call_after_the_other_is_taken_back(desk):
    for content in (b"1", b"2", b"3"):
        desk.write("a", content, call=f"c{content.decode()}")
    seen = []
    for number in range(3):
        desk.undo(as_call=f"u{number}")
        seen.append(desk.read("a"))
    assert seen == [b"2", b"1", None]
    with pytest.raises(ToolError, match="nothing to undo") as refused:
        desk.undo()
    assert refused.value.kind is ErrorKind.NOT_FOUND


def test_a_whole_turn_is_taken_back_at_once(desk):
    desk.write("a", b"0", call="c0", turn="first")
    desk.write("a", b"1", call="c1", turn="second")
    desk.write("b", b"1", call="c2", turn="second")
    desk.write("a", b"2", call="c3", turn="second")
    desk.undo(turn="second")
    assert (desk.read("a"), desk.read("b")) == (b"0", None)


def test_an_undo_can_be_undone(desk):
    desk.write("a", b"1", call="c1")
    desk.write("a", b"2", call="c2")
    desk.undo(as_call="u1")
    assert desk.read("a") == b"1"
    assert [one.undone for one in desk.log.entries("s")] == [False, True, False]
    desk.undo(call_id="u1", as_call="u2")
    assert desk.read("a") == b"2"
    undone = {one.call_id: one.undone for one in desk.log.entries("s")}
    assert undone == {"u2": False, "u1": True, "c2": False, "c1": False}
    desk.undo(as_call="u3")
    assert desk.read("a") == b"1"


def test_a_change_and_its_undo_in_one_turn_cancel_each_other(desk):
    desk.write("a", b"0", call="c0", turn="first")
    desk.write("a", b"1", call="c1", turn="later")
    desk.write("b", b"1", call="c2", turn="later")
    desk.undo(call_id="c2", as_call="u")
    desk.undo(turn="later", as_call="v")
    assert (desk.read("a"), desk.read("b")) == (b"0", None)


def test_a_file_that_changed_since_is_refused_and_named_with_its_changer(desk):
    desk.change({"a": b"1", "b": b"1"}, call="c1")
    desk.write("a", b"2", call="c2")
    with pytest.raises(ToolError, match='"a" was changed since call c1 by call c2') as refused:
        desk.undo(call_id="c1")
    assert "call_id=c2 first" in refused.value.suggestion
    assert (desk.read("a"), desk.read("b")) == (b"2", b"1")
    desk.undo(call_id="c2", as_call="u1")
    desk.undo(call_id="c1", as_call="u2")
    assert (desk.read("a"), desk.read("b")) == (None, None)


@pytest.mark.parametrize("theirs", [b"somebody else's", None], ids=["written", "removed"])
def test_what_others_did_is_never_touched(desk, theirs):
    (desk.root / "a").write_bytes(b"0")
    desk.write("a", b"1")
    if theirs is None:
        (desk.root / "a").unlink()
    else:
        (desk.root / "a").write_bytes(theirs)
    with pytest.raises(ToolError, match="not by this session's tools"):
        desk.undo()
    assert desk.read("a") == theirs


def test_a_link_put_in_its_place_is_refused(desk, tmp_path):
    (desk.root / "target").write_bytes(b"1")
    desk.write("a", b"1")
    (desk.root / "a").unlink()
    (desk.root / "a").symlink_to("target")
    with pytest.raises(ToolError, match="was changed since"):
        desk.undo()


def test_a_change_that_was_recorded_but_never_made_is_passed_over(desk):
    """A process killed between the two."""
    desk.write("a", b"1", call="c1")
    desk.log.record("s", "t", "c2", "file_write", [desk._change("a", b"2"), desk._change("b", b"2")])
    assert desk.log.plan("s", call_id="c2") == []
    desk.undo()
    assert desk.read("a") is None


def test_a_withdrawn_change_leaves_no_trace(desk):
    (desk.root / "a").write_bytes(b"0")
    entry = desk.log.record("s", "t", "c", "file_write", [desk._change("a", b"2")])
    desk.log.withdraw(entry)
    assert desk.log.entries("s") == []
    with desk.log._store.read_transaction() as connection:
        assert connection.execute("SELECT count(*) FROM undo_images").fetchone() == (0,)


def test_sessions_are_apart(desk):
    desk.write("a", b"1", session="one")
    desk.write("b", b"1", session="two")
    assert desk.log.sessions() == ["two", "one"]
    assert [file.shown for file in desk.log.entries("one")[0].files] == ["a"]
    with pytest.raises(ToolError, match="changed no file in this session"):
        desk.log.plan("two", call_id="nobody's")
    desk.log.forget("one")
    assert desk.log.entries("one") == []
    assert len(desk.log.entries("two")) == 1


def test_what_is_undone_already_is_said(desk):
    desk.write("a", b"1", call="c1")
    desk.undo()
    with pytest.raises(ToolError, match="call c1 is already undone"):
        desk.undo(call_id="c1")


def test_a_call_id_that_was_used_twice_means_the_last(desk):
    desk.write("a", b"1", call="same", turn="one")
    desk.write("b", b"1", call="same", turn="two")
    desk.undo(call_id="same")
    assert (desk.read("a"), desk.read("b")) == (b"1", None)


def test_the_oldest_images_are_dropped_beyond_the_limit_and_that_is_said(tmp_path):
    desk = Desk(tmp_path, cap=50_000)
    pick = random.Random(1)
    (tmp_path / "a").write_bytes(pick.randbytes(20_000))
    for number in range(5):
        desk.write("a", pick.randbytes(20_000), call=f"c{number}")
    assert [any(file.dropped for file in one.files) for one in desk.log.entries("s")] == [
        False,
        False,
        True,
        True,
        True,
    ]
    desk.undo(as_call="u4")
    with pytest.raises(ToolError, match="was changed since call c2 by call c3"):
        desk.undo(call_id="c2")
    with pytest.raises(ToolError, match="dropped to make room"):
        desk.undo(call_id="c3")  # what the undo itself keeps took the place of its image
    desk.undo(call_id="u4")


def test_one_image_larger_than_the_limit_is_not_kept(tmp_path):
    desk = Desk(tmp_path, cap=1_000)
    (tmp_path / "a").write_bytes(random.Random(1).randbytes(20_000))
    desk.write("a", b"")
    with pytest.raises(ToolError, match="dropped to make room"):
        desk.undo()
    assert desk.read("a") == b""


def test_the_same_content_is_kept_once(desk):
    content = [random.Random(number).randbytes(10_000) for number in range(2)]
    (desk.root / "a").write_bytes(content[0])
    for number in range(1, 21):
        desk.write("a", content[number % 2], call=f"c{number}")
    with desk.log._store.read_transaction() as connection:
        count, size = connection.execute("SELECT count(*), sum(length(data)) FROM undo_images").fetchone()
    assert count == 2
    assert size < 21_000
    for _ in range(20):
        desk.undo()
    assert desk.read("a") == content[0]


def test_of_a_large_file_only_the_difference_is_kept(desk):
    content = random.Random(1).randbytes(1_000_000)
    (desk.root / "a").write_bytes(content)
    versions = [content]
    for number, (at, length, new) in enumerate([(500_000, 10, b"x"), (0, 1, b""), (999_990, 9, b"end"), (5, 0, b"in")]):
        old = versions[-1]
        versions.append(old[:at] + new + old[at + length :])
        desk.write("a", versions[-1], call=f"c{number}")
    with desk.log._store.read_transaction() as connection:
        assert connection.execute("SELECT sum(length(data)) FROM undo_images").fetchone()[0] < 200
    for version in reversed(versions[:-1]):
        desk.undo()
        assert desk.read("a") == version


@pytest.mark.parametrize("seed", range(5))
def test_a_turn_of_many_edits_of_a_large_file_comes_back_whole(desk, seed):
    pick = random.Random(seed)
    first = content = b"ab" * 50_000
    (desk.root / "a").write_bytes(content)
    for number in range(8):
        at, length = pick.randrange(len(content)), pick.choice([0, 1, 100, 70_000])
        content = content[:at] + b"a" * pick.choice([0, 1, 100, 70_000]) + content[at + length :]
        desk.write("a", content, call=f"c{number}")
    desk.undo(turn="t")
    assert desk.read("a") == first


def test_it_survives_the_process_and_is_shared(tmp_path):
    store = tmp_path / "state.db"
    (tmp_path / "ws").mkdir()
    Desk(tmp_path / "ws", store).write("a", b"1")
    other = Desk(tmp_path / "ws", store)
    assert len(other.log.entries("s")) == 1
    other.undo()
    assert other.read("a") is None


def test_many_threads_record_at_once(tmp_path):
    store = tmp_path / "state.db"

    def work(number: int) -> None:
        log = UndoLog(store)
        for round_ in range(5):
            place = Location(tmp_path, f"{number}-{round_}", f"{number}-{round_}")
            log.record("s", "t", f"c{number}-{round_}", "file_write", [Change(place, b"same", b"other")])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(UndoLog(store).entries("s")) == 20
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("SELECT count(*) FROM undo_images").fetchone() == (1,)


def test_names_that_are_no_unicode_are_restored(desk):
    name = "a\udcff\nb"
    place = Location(desk.root, name, name)
    changes = [Change(place, None, b"1")]
    desk.log.record("s", "t", "c", "file_write", changes)
    commit(changes, desk.root)
    desk.undo()
    assert os.listdir(desk.root) == [".forge"]


def test_entries_are_found_by_call_by_turn_and_page_by_page(desk):
    for number in range(6):
        desk.write("a", b"%d" % number, call=f"c{number}", turn=f"t{number // 2}")
    calls = [
        [one.call_id for one in page] for page in (desk.log.entries("s", most=2), desk.log.entries("s", turn="t1"))
    ]
    assert calls == [["c5", "c4"], ["c3", "c2"]]
    last = desk.log.entries("s", most=2)[-1]
    assert [one.call_id for one in desk.log.entries("s", before=last.id, most=3)] == ["c3", "c2", "c1"]
    assert desk.log.count("s") == (6, False)
    assert desk.log.count("s", call_id="c1") == desk.log.count("s", call_id="c1", turn="t0") == (1, False)
    assert desk.log.count("other") == (0, False)


def test_the_last_change_is_found_behind_many_that_were_taken_back(desk):
    desk.write("a", b"1", call="first")
    for number in range(120):
        desk.write("b", b"%d" % number, call=f"c{number}")
    for number in range(120):
        desk.undo(call_id=f"c{119 - number}", as_call=f"u{number}")
    desk.undo()
    assert (desk.read("a"), desk.read("b")) == (None, None)


def test_a_record_costs_the_same_however_much_is_kept_already(tmp_path):
    """At the limit too: how much is kept is not found out anew for each record."""
    log = UndoLog(None, cap=200_000)
    place, pick = PathValidator(tmp_path).resolve("a"), random.Random(1)
    statements: list[str] = []
    with log._store.read_transaction() as connection:
        connection.set_trace_callback(statements.append)
    for number in range(400):
        log.record("s", "t", f"c{number}", "file_write", [Change(place, pick.randbytes(1_000), b"")])
    sums = [one for one in statements if "total(length(data))" in one and "entry !=" not in one]
    assert len(sums) < 400 / 8
    with log._store.read_transaction() as connection:
        size = connection.execute("SELECT total(length(data)) FROM undo_images").fetchone()[0]
    assert 200_000 - 2 * 200_000 / 16 < size <= 200_000


def _image(content: bytes) -> tuple[str, bytes]:
    return digest_of(content), zlib.compress(content)


@pytest.mark.parametrize(
    "how", ["another content", "another file", "another mode", "a new entry", "no seal", "another id"]
)
def test_an_undo_writes_only_what_forge_itself_stored(tmp_path, how):
    state = state_directory(tmp_path) / "state.db"
    desk = Desk(tmp_path, state)
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"old")
        desk.write(name, b"new", call=name)
    (tmp_path / "hook").write_bytes(b"new")
    digest, data = _image(b"steal")
    with closing(sqlite3.connect(state)) as connection, connection:
        connection.execute("INSERT INTO undo_images VALUES (?, '', 0, 0, ?)", (digest, data))
        if how == "another content":
            connection.execute("UPDATE undo_files SET before = ? WHERE path = 'a'", (digest,))
        elif how == "another file":
            connection.execute("UPDATE undo_files SET path = 'hook' WHERE path = 'a'")
        elif how == "another mode":
            connection.execute("UPDATE undo_files SET mode = 2541 WHERE path = 'a'")
        elif how == "no seal":
            connection.execute("UPDATE undo_entries SET seal = '' WHERE call_id = 'a'")
        elif how == "another id":
            connection.execute("UPDATE undo_entries SET id = 77 WHERE call_id = 'a'")
            connection.execute("UPDATE undo_files SET entry = 77 WHERE path = 'a'")
        else:
            connection.execute("UPDATE undo_files SET entry = 2 WHERE path = 'a'")
            connection.execute("DELETE FROM undo_entries WHERE call_id = 'a'")
            connection.execute(
                "INSERT INTO undo_entries SELECT 3, session, turn, 'a', tool, time, bytes, undone_by, seal, root"
                " FROM undo_entries"
            )
            connection.execute(
                "INSERT INTO undo_files SELECT 3, root, 'hook', shown, ?, after, mode, base, dropped, new_mode"
                " FROM undo_files WHERE path = 'a'",
                (digest,),
            )
            connection.execute("DELETE FROM undo_files WHERE path = 'a'")
    desk = Desk(tmp_path, state)
    with pytest.raises(ToolError, match="call a cannot be undone, since its record does not count: it ") as caught:
        desk.undo(call_id="a")
    assert caught.value.kind is ErrorKind.PERMISSION
    assert [desk.read(name) for name in ("a", "b", "hook")] == [b"new"] * 3
    desk.undo(call_id="b")
    assert desk.read("b") == b"old"
