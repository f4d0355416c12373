"""Runs `async def` tests, each on an event loop of its own, and makes Ctrl-C work where it was switched off."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import tempfile
import threading

import pytest

if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell starts what runs in its background with SIGINT ignored, and every child would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)

# what whoever runs the tests configured, and which projects they trust, decides nothing here
for _name in [one for one in os.environ if one.startswith("FORGE_") and one != "FORGE_TEST_DATABASE"]:
    del os.environ[_name]
for _name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
    os.environ[_name] = tempfile.mkdtemp(prefix="forge-tests-")


def pytest_configure(config: pytest.Config) -> None:
    # private: pytest rewrites the asserts of every module of a distribution that brings a plugin; of ours that is all
    # of Forge, and it took longer than importing it
    hook = getattr(config.pluginmanager, "rewrite_hook", None)
    for marked in ("_must_rewrite", "_marked_for_rewrite_cache"):
        getattr(hook, marked, set()).clear()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    fixtures = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(pyfuncitem.obj(**fixtures))
    return True
