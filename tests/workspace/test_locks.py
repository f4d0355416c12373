"""One writer a directory, whoever it is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import Location, PathValidator
from forge.workspace.paths.locks import lock_directories
from tests.descriptors import open_below


@pytest.fixture
def place(tmp_path: Path):
    return PathValidator(tmp_path).resolve


def is_free(place: Location) -> bool:
    try:
        with lock_directories([place], patience=0):
            return True
    except ToolError:
        return False


def test_a_directory_is_held_by_one_thread_at_a_time(place):
    with lock_directories([place("a.txt")]):
        free: list[bool] = []
        thread = threading.Thread(target=lambda: free.append(is_free(place("b.txt"))))
        thread.start()
        thread.join()
        assert free == [False]
    assert is_free(place("a.txt"))


def test_another_directory_is_free(place, tmp_path):
    (tmp_path / "sub").mkdir()
    with lock_directories([place("a.txt")]):
        assert is_free(place("sub/a.txt"))


def test_a_process_that_holds_it_is_named_and_waited_for(place, tmp_path):
    code = (
        "import sys; from pathlib import Path; from forge.workspace.paths.locks import lock_directories\n"
        "from forge.workspace.paths import PathValidator\n"
        "with lock_directories([PathValidator(Path(sys.argv[1])).resolve('a.txt')]):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(ToolError) as refused, lock_directories([place("a.txt")], patience=0.05):
            pass
        assert refused.value.kind is ErrorKind.TIMEOUT
        assert refused.value.passing
        assert "waited 0.05 s to change files in ." in refused.value.message
        if os.path.exists("/proc/locks"):
            assert f"process {other.pid}" in refused.value.message
        other.stdin.close()
        with lock_directories([place("a.txt")]):
            assert other.wait() == 0


def test_many_directories_are_taken_in_one_order_so_that_nobody_waits_for_ever(place, tmp_path):
    names = [f"d{number}" for number in range(6)]
    for name in names:
        (tmp_path / name).mkdir()
    counter = {"inside": 0, "done": 0}

    def work(order: list[str]) -> None:
        for _ in range(10):
            with lock_directories([place(f"{name}/x") for name in order]):
                counter["inside"] += 1
                assert counter["inside"] == 1
                counter["inside"] -= 1
                counter["done"] += 1

    threads = [threading.Thread(target=work, args=(order,)) for order in (names, names[::-1], names[3:] + names[:3])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter == {"inside": 0, "done": 30}


def test_of_a_directory_that_is_not_there_yet_the_deepest_existing_one_is_held(place, tmp_path):
    (tmp_path / "sub").mkdir()
    with lock_directories([place("sub/new/deep/a.txt")]):
        assert not is_free(place("sub/b.txt"))
        assert is_free(place("a.txt"))


def test_a_directory_made_while_waiting_is_held_instead(place, tmp_path):
    held, go_on, inside = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with lock_directories([place("new/a.txt")]):
            held.set()
            go_on.wait()
            (tmp_path / "new").mkdir()

    def second() -> None:
        with lock_directories([place("new/a.txt")]):
            inside.set()
            assert not is_free(place("new/b.txt"))
            assert is_free(place("b.txt"))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    held.wait()
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert inside.is_set()


def test_two_files_of_one_directory_take_one_lock(place):
    with lock_directories([place("a.txt"), place("b.txt")], patience=0):
        pass


def test_nothing_stays_open(place, tmp_path):
    for _ in range(3):
        with lock_directories([place("a.txt"), place("no/such/b.txt")]):
            pass
    assert open_below(tmp_path) == []


def test_a_file_in_the_way_locks_what_is_above_it(place, tmp_path):
    (tmp_path / "file").write_text("")
    with lock_directories([place("file/a.txt")]):
        assert not is_free(place("b.txt"))
