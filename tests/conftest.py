"""Runs `async def` tests, each on an event loop of its own, and makes Ctrl-C work where it was switched off."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shutil
import signal
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from forge.core import activity
from tests import quick

TESTS = Path(__file__).parent

gc.disable()  # until all tests are collected: hardly anything of that is garbage

if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell starts what runs in its background with SIGINT ignored, and every child would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)

# what whoever runs the tests configured, and which projects they trust, decides nothing here
for _name in [one for one in os.environ if one.startswith("FORGE_") and one != "FORGE_TEST_DATABASE"]:
    del os.environ[_name]
_homes = tempfile.mkdtemp(prefix="forge-tests-")  # removed at the end
for _name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
    os.mkdir(os.path.join(_homes, _name))
for _name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
    os.environ[_name] = os.path.join(_homes, _name)
# neither do Git's settings of this machine, its language, an odd HOME, the umask, unreadable directories on PATH
for _name in [one for one in os.environ if one.startswith(("GIT_", "LC_")) or one in ("LANGUAGE", "PYTHONUNBUFFERED")]:
    del os.environ[_name]
os.environ |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LANG": "C.UTF-8"}
if not os.path.isdir(os.environ.get("HOME") or ""):
    os.environ["HOME"] = os.path.join(_homes, "HOME")
os.environ["PATH"] = os.pathsep.join(
    one for one in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.access(one, os.R_OK | os.X_OK)
)
os.umask(0o022)
# and neither does how busy the machine is: without this, an example that takes 200 ms is a failure
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
activity.SLOW = 10.0  # a listener that a busy machine interrupts is not slow; events would come after the test's end


def pytest_configure(config: pytest.Config) -> None:
    # private: pytest rewrites the asserts of every module of a distribution that brings a plugin; of ours that is all
    # of Forge, and it took longer than importing it
    quick.is_quick = "not slow" in config.option.markexpr
    hook = getattr(config.pluginmanager, "rewrite_hook", None)
    for marked in ("_must_rewrite", "_marked_for_rewrite_cache"):
        getattr(hook, marked, set()).clear()


def pytest_unconfigure() -> None:
    shutil.rmtree(_homes, ignore_errors=True)


SENSITIVE = frozenset(
    "browser cli console conformance durable frameworks fuzz mcp openapi process scripts testing test_examples.py "
    "test_bash.py test_cli_execute.py test_grep_search.py test_http_request.py test_commit_killed.py "
    "test_file_edit_find_text.py test_local_shell.py test_shared_approved_paths.py test_test_runner.py "
    "test_web_fetch.py test_webhooks.py".split()
)
CLOCKS = frozenset({"at_most", "monotonic", "perf_counter", "sleep", "timeout", "wait_for"})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that waits for programs or looks at the clock may fail on a busy machine: it is run once more, and that is
    printed. (For all tests at once this costs more time than most of them take. Forks do it by themselves, for all.)"""
    again = pytest.mark.flaky(reruns=1)
    for item in () if config.getoption("--forks", 0) else items:
        function = getattr(item, "function", None)
        names = getattr(function, "__code__", None)
        if SENSITIVE.intersection(item.path.relative_to(TESTS).parts) or (names and CLOCKS & {*names.co_names}):
            item.add_marker(again)
    if quick.is_quick:
        quick.leave_combinations_out(config, items)
        for function in {getattr(item, "function", None) for item in items}:
            _try_fewer_examples(function)


def _try_fewer_examples(function: object) -> None:
    """A quarter of the examples of a property; `make test-all` tries them all."""
    # private: settings cannot be applied to a test a second time
    given = getattr(function, "_hypothesis_internal_use_settings", None)
    if given is not None:
        fewer = settings(given, max_examples=-(-given.max_examples // 4))
        function._hypothesis_internal_use_settings = fewer  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    """What was collected stays until the end: the garbage collector need not look at it again and again."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    fixtures = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(pyfuncitem.obj(**fixtures))
    return True
