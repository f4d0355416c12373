"""Tells a person's Ctrl-C from a `KeyboardInterrupt` that code raised."""

from __future__ import annotations


def is_interrupt(error: BaseException) -> bool:
    """Says whether the error came from outside: a person pressed Ctrl-C, or the coroutine is being closed."""
    return isinstance(error, KeyboardInterrupt | GeneratorExit) and not _raised_by_code(error)


def _raised_by_code(error: BaseException) -> bool:
    """Says whether a `raise` statement is the origin; a signal interrupts any running instruction."""
    import dis  # only when it happens
    import signal

    trace = error.__traceback__
    handler = getattr(signal.getsignal(signal.SIGINT), "__code__", None)  # a program's own may raise, too
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
        if trace.tb_frame.f_code is handler:
            return False
    if trace is None:
        return True
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
