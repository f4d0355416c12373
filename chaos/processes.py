"""Runs work in processes that end with the command that started them, however it ends, and clean up before they do."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

TERMINATED = 128 + signal.SIGTERM


@contextmanager
def open_processes(number: int) -> Iterator[Callable[..., Future[Any]]]:
    """Yields what submits work to this many processes.

    Each holds the end of a pipe, which closes if the command ends in any way. The work is then left as by `sys.exit`.
    """
    context = get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    with reader, writer, ProcessPoolExecutor(number, context, _follow_command, (reader,)) as pool:

        def submit(work: Callable[..., Any], *arguments: Any) -> Future[Any]:
            return pool.submit(_run, work, *arguments)

        try:
            yield submit
        except BaseException:
            writer.close()
            pool.shutdown(cancel_futures=True)
            raise


def exit_when_terminated() -> None:
    """Makes SIGTERM raise `SystemExit` in the main thread, once: what is cleaned up then is not interrupted."""
    signal.signal(signal.SIGTERM, _exit)


@contextmanager
def not_terminated() -> Iterator[None]:
    """Postpones SIGTERM to the end of the block."""
    if threading.current_thread() is not threading.main_thread():  # only that one is interrupted
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        for number in came[:1]:
            signal.raise_signal(number)


def _exit(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(TERMINATED)


def _follow_command(reader: Connection) -> None:
    """Begins a process of the pool. Ctrl-C, which all processes of a terminal get, is left to the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_when_terminated()
    threading.Thread(target=_wait_for_command, args=(reader,), daemon=True).start()


def _wait_for_command(reader: Connection) -> None:
    reader.poll(None)  # nothing is ever written: the other end was closed
    os.kill(os.getpid(), signal.SIGTERM)


def _run(work: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return work(*arguments)
    except SystemExit:  # the pool would take it for a result, and go on
        os._exit(TERMINATED)
