"""The tests' own machinery: forks that run tests, programs that start at once, combinations that are left out."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path

import pytest

from tests import programs, quick
from tests.forked_workers import LARGEST, cut

ROOT = Path(__file__).parents[1]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a fork of a large program is not safe")


@pytest.mark.parametrize("sizes", [[1], [5, 1, 200], [3] * 100, [1_000]])
def test_every_test_is_in_one_chunk_of_its_module(sizes):
    modules = [number for number, size in enumerate(sizes) for _ in range(size)]
    chunks = list(cut(modules, 4))
    assert [number for chunk in chunks for number in range(*chunk)] == list(range(len(modules)))
    assert all(len({modules[number] for number in range(*chunk)}) == 1 for chunk in chunks)
    lengths = [end - start for start, end in chunks]
    assert max(lengths) <= LARGEST
    assert lengths[-1] == 1, "the last ones are short"


def test_a_module_that_is_not_to_be_divided_is_one_chunk():
    modules = [number for number, size in enumerate([5, 100, 3]) for _ in range(size)]
    chunks = list(cut(modules, 4, {1}))
    assert (5, 105) in chunks
    assert [number for chunk in chunks for number in range(*chunk)] == list(range(len(modules)))
    assert (5, 105) not in cut(modules, 4)


SHARED = """
import os, pathlib, pytest

@pytest.fixture(scope="module")
def dear():
    with pathlib.Path(__file__).with_name("made").open("a") as file:
        print(os.getpid(), file=file)

@pytest.mark.parametrize("number", range(40))
def test_many(number, dear): pass
"""


@linux_only
def test_a_fixture_of_a_module_is_made_once_in_all_forks(tmp_path):
    code, said = run_pytest(tmp_path, SHARED, "--forks", "3")
    assert (code, "40 passed" in said) == (0, True), said
    assert len((tmp_path / "made").read_text().split()) == 1


def test_pairs_have_every_value(monkeypatch):
    monkeypatch.setattr(quick, "is_quick", True)
    assert quick.pairs("ab", [1, 2, 3]) == [("a", 1), ("b", 2), ("a", 3)]
    assert quick.pairs("", [1]) == []
    monkeypatch.setattr(quick, "is_quick", False)
    assert len(quick.pairs("ab", [1, 2, 3])) == 6


MATRIX = """
import pytest

@pytest.mark.matrix
@pytest.mark.parametrize("one", "abc")
@pytest.mark.parametrize("other", range(20))
def test_both(one, other): print("ran", one, other)
"""
ENDS = """
import os, pytest

def test_passes(): pass
def test_fails(): print("said before"); assert 1 == 2
def test_dies(): os._exit(3)
@pytest.mark.skip
def test_is_skipped(): pass
@pytest.mark.parametrize("number", range(40))
def test_many(number, tmp_path): (tmp_path / "mine").mkdir()
"""


def run_pytest(folder: Path, content: str, *options: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(content)
    (folder / "conftest.py").write_text(
        "from tests import quick\n"
        "def pytest_configure(config): config.addinivalue_line('markers', 'matrix: m')\n"
        "def pytest_collection_modifyitems(config, items): quick.leave_combinations_out(config, items)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.forked_workers", "-p", "no:cacheprovider", "-q", *options],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    return done.returncode, done.stdout


@linux_only
def test_forks_run_everything_and_report_what_fails_and_what_dies(tmp_path):
    code, said = run_pytest(tmp_path, ENDS, "--forks", "3")
    assert code == 1
    assert "2 failed, 41 passed, 1 skipped, 2 rerun" in said
    assert "assert 1 == 2" in said
    assert "said before" in said
    assert "the process of this test died (3): test_it.py::test_dies" in said


LATE = """
import pathlib, pytest

@pytest.mark.parametrize("number", range(20))
def test_late(number):
    mark = pathlib.Path(__file__).with_name(f"{number}.ran")
    if number < HOW_MANY and not mark.exists():
        mark.touch()
        assert False, "late"
"""


@linux_only
@pytest.mark.parametrize(("late", "code", "ends"), [(2, 0, "20 passed, 2 rerun"), (20, 1, "20 failed, 13 rerun")])
def test_a_few_failed_tests_are_run_again_alone(tmp_path, late, code, ends):
    got, said = run_pytest(tmp_path, LATE.replace("HOW_MANY", str(late)), "--forks", "2")
    assert (got, ends in said) == (code, True), said
    assert "RERUN test_it.py::test_late[0] - AssertionError: late" in said  # by name, and with its reason


@linux_only
def test_forks_end_well_where_everything_passes(tmp_path):
    code, said = run_pytest(tmp_path, ENDS, "--forks", "2", "-k", "passes or many")
    assert (code, "41 passed" in said) == (0, True)


def test_a_matrix_keeps_every_value(tmp_path):
    code, said = run_pytest(tmp_path, MATRIX, "-rP")
    ran = {line for line in said.splitlines() if line.startswith("ran ")}
    assert code == 0
    assert {line.split()[1] for line in ran} == set("abc")
    assert {line.split()[2] for line in ran} == {str(number) for number in range(20)}
    assert len(ran) < 30


PROGRAMS = {
    "arguments": (["-c", "import sys; print(sys.argv)", "a", "ü b"], {}),
    "input": (["-c", "import sys; print(sys.stdin.read()[::-1])"], {"input": "abc"}),
    "directory": (["-c", "import os; print(os.getcwd())"], {"cwd": "/"}),
    "environment": (["-c", "import os; print(sorted(os.environ))"], {"env": {"A": "1", "LANG": "C.UTF-8"}}),
    "session": (["-c", "import os; print(os.getsid(0) == os.getpid())"], {"start_new_session": True}),
    "descriptors": (["-c", "import os; print([n for n in range(3, 99) if os.path.exists(f'/proc/self/fd/{n}')])"], {}),
    "module": (["-m", "forge", "tool", "list"], {}),
    "exit code": (["-c", "import sys; sys.exit(7)"], {}),
    "words at the end": (["-c", "import sys; sys.exit('no')"], {}),
    "exit handlers": (["-c", "import atexit; atexit.register(print, 'bye')"], {}),
    "threads": (["-c", "import threading, time; threading.Timer(0.1, print, ['late']).start()"], {}),
    "killed": (["-c", "import os; os.kill(os.getpid(), 9)"], {}),
    "broken": (["-c", "import os; os.close(1); os.open('/dev/full', 1); print('x')"], {}),
}


@linux_only
@pytest.mark.parametrize(("words", "settings"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_that_starts_at_once_does_the_same(monkeypatch, words, settings):
    monkeypatch.setattr(quick, "is_quick", True)
    usual, warm = (
        run([sys.executable, *words], capture_output=True, text=True, timeout=150, **settings)
        for run in (subprocess.run, programs.run)
    )
    assert warm.returncode == usual.returncode
    assert warm.stdout == usual.stdout
    assert bool(warm.stderr) == bool(usual.stderr)


@linux_only
def test_it_is_stopped_by_signals_and_waited_for(monkeypatch):
    monkeypatch.setattr(quick, "is_quick", True)
    command = [sys.executable, "-c", "import sys, time; print('ready', flush=True); time.sleep(60)"]
    with programs.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.terminate()
        assert process.wait(60) == -15


def test_what_python_reads_at_its_start_needs_a_usual_start(monkeypatch):
    monkeypatch.setattr(quick, "is_quick", True)
    code = "import sys; print('forge' in sys.modules, sys.flags.utf8_mode)"
    environment = {**os.environ, "PYTHONUTF8": "1"}
    done = programs.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "1"]


def test_the_order_of_chunks_is_the_order_of_tests():
    assert all(one[1] == other[0] for one, other in pairwise(cut([0] * 500, 2)))


_WARN = compile("import warnings\nwarnings.warn('only a test', DeprecationWarning)", "a module", "exec")


@pytest.mark.parametrize("module", ["forge", "forge.core.tool", "tests.core.test_tool", "scripts.machines"])
def test_a_warning_that_our_own_module_causes_is_an_error(module):
    with pytest.raises(DeprecationWarning):
        exec(_WARN, {"__name__": module})


@pytest.mark.parametrize("module", ["langsmith.client", "forgery", "pytest_randomly"])
def test_a_warning_of_a_dependency_is_only_shown(module):
    with warnings.catch_warnings(record=True) as shown:  # the filters stay as pyproject.toml has them
        exec(_WARN, {"__name__": module})
    assert [str(warning.message) for warning in shown] == ["only a test"]
