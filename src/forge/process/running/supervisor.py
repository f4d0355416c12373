"""Starts programs through one small process beside this one, which kills all of them when this one ends."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.session_programs import at_session_end
from forge.core.files import check_held
from forge.process.running.keeper_messages import CGROUPS, END, NEW, Messages, pack
from forge.process.running.limits import Resources
from forge.process.sandbox.layout import CommandLine

GRACE = 2.0  # seconds between the request to end and the kill
MOST_IDLE = 256  # keepers that wait for work; each ends by itself after a while
LONGEST_ARGUMENT = 128 * 1024 - 1  # bytes: the limit of Linux for one argument
MOST_ARGUMENTS = 1024 * 1024  # bytes of all of them, and of the environment
_APART = ("overlay", "copy")  # layers for which a keeper enters a user namespace, and stays in it
_PATIENCE = 10.0  # seconds for the other side to take what is sent

_START = """
import sys
for name, path in zip(("forge", "forge.process", "forge.process.running"), sys.argv[1:]):
    package = sys.modules[name] = type(sys)(name)
    package.__path__ = [path]
from forge.process.running.supervisor_program import main
main()
"""  # the packages are only places to find modules in: to import them would load what is not needed there

_lock = threading.Lock()
_current: _SupervisorProcess | None = None


class Program:
    """A running program: its pipes and the socket of its keeper. It must be closed."""

    def __init__(
        self,
        keeper: socket.socket,
        output: int,
        errors: int,
        given: int,
        on_listening: Callable[[list[int]], None] | None = None,
    ) -> None:
        self.keeper = keeper
        self.output = output  # -1: none, here and below
        self.errors = errors
        self.given = given  # the write end of its input
        self.reached: Mapping[str, int] = {}  # how often limits of its cgroup were reached, by controller
        self._on_listening = on_listening
        self._messages = Messages()
        self._usable = ""  # which programs the keeper can start next: "all", "layers" or none
        self._nanny = 0  # the process number of the keeper, if processes were left running

    def receive(self) -> tuple[Any, ...] | None:
        """Returns the keeper's message: `("ended", status, left, …)`, `("failed", …)`, or `("lost",)` if the keeper is
        gone.
        """
        is_open = self._messages.read(self.keeper)
        message: tuple[Any, ...] | None = self._messages.next()
        if message is not None and message[0] == "listening":
            self._take_listeners()
            message = self._messages.next()
        if message is None:
            return None if is_open else ("lost",)
        self._usable = message[-1]
        if message[0] == "ended":
            self._nanny, self.reached = message[3:5]
        return message

    def _take_listeners(self) -> None:
        """Hands over the sockets that listen inside the program's network; whoever takes them closes them."""
        sockets = self._messages.take()
        if self._on_listening is not None:
            self._on_listening(sockets)
        else:
            for one in sockets:
                os.close(one)

    def stop(self, grace: float = GRACE) -> None:
        """Asks its group to end; then the rest of its tree is killed. Does not wait."""
        with contextlib.suppress(OSError):
            self.keeper.send(pack(("stop", grace)))

    def leave(self, owner: str) -> None:
        """Lets processes it left running continue, until their owner or this process ends."""
        pipes = [pipe for pipe in (self.output, self.errors) if pipe >= 0]
        with contextlib.suppress(OSError):
            _send(self.keeper, ("leave",), pipes)
        if (supervisor := _current) is not None and self._nanny:
            supervisor.left.setdefault(owner, []).append(self._nanny)

    def close_pipe(self, name: str) -> None:
        pipe = getattr(self, name)
        if pipe >= 0:
            setattr(self, name, -1)
            os.close(pipe)

    def close(self) -> None:
        """Returns an idle keeper for reuse; otherwise everything it keeps is killed, unless it was left."""
        for name in ("output", "errors", "given"):
            self.close_pipe(name)
        supervisor = _current
        usable, self._usable = self._usable, ""
        if usable and supervisor is not None and len(supervisor.idle[usable]) < MOST_IDLE:
            supervisor.idle[usable].append(self.keeper)
        else:
            self.keeper.close()


def start(
    argv: Sequence[str] | CommandLine,
    *,
    cwd: Path,
    env: Mapping[str, str],
    reads: bool = False,
    merge: bool = False,
    errors: int = -1,
    limits: Resources | None = None,
    leave: bool = False,
) -> Program:
    """Starts a program in its own session. Its pipes do not block.

    `reads`: it has a pipe for its input, otherwise no input. `errors`: the descriptor for its standard error, instead
    of a pipe. `leave`: processes it leaves running are not killed at once. Raises `ToolError` for a bad command line,
    OSError if no pipe can be made.
    """
    command = argv if isinstance(argv, CommandLine) else CommandLine(list(argv))
    check_held([cwd])  # at the last moment: the directory may have been replaced since the permission check
    is_apart = bool(command.layers) and not command.cgroup and all(one.how in _APART for one in command.layers)
    work = {
        **_encode_command(command.argv, {**env, **command.variables}, cwd),
        "files": [(number, os.fsencode(path), flags) for number, path, flags in command.files if not is_apart],
        "opened": [number for number, _, _ in command.files if is_apart],
        "ignores_term": command.ignores_term,
        "cwd": os.fsencode(cwd),
        "limits": limits.for_kernel() if limits is not None else [],
        "cgroup": command.cgroup,
        "layers": [tuple(one) for one in command.layers],
        "listens": list(command.listens),
        "reads": reads,
        "leave": leave,
    }
    with contextlib.ExitStack() as opened:
        ours, theirs = [], []
        for wanted, outward in ((reads, True), (True, False), (not merge and errors < 0, False)):
            reader, writer = os.pipe() if wanted else (-1, -1)
            for one in (reader, writer) if wanted else ():
                opened.callback(os.close, one)
            ours.append(writer if outward else reader)
            theirs += [reader if outward else writer] if wanted else []
        given = [*theirs, *([errors] if errors >= 0 else [])]
        for _, path, flags in command.files if is_apart else ():  # another user namespace may not open them
            theirs.append(os.open(path, flags | os.O_CLOEXEC))
            opened.callback(os.close, theirs[-1])
            given.append(theirs[-1])
        kind = "layers" if is_apart else "all"
        keeper = _send_to_keeper(pack(("start", work)), given, command.cgroup[0] if command.cgroup else "", kind)
        opened.pop_all()
        for one in theirs:
            os.close(one)
    for one in ours:
        if one >= 0:
            os.set_blocking(one, False)
    return Program(keeper, ours[1], ours[2], ours[0], command.on_listening)


def find_supervisor() -> int:
    """Returns the process number of this process's supervisor; 0 without one."""
    return 0 if _current is None else _current.process


def _owners() -> list[str]:
    return [] if _current is None else list(_current.left)


@at_session_end(_owners)
def end_left(owner: str = "") -> None:
    """Kills the processes that an owner's programs left running; of all owners without one."""
    supervisor = _current
    if supervisor is None:
        return
    for name in [owner] if owner else list(supervisor.left):
        for number in supervisor.left.pop(name, ()):
            with contextlib.suppress(OSError):
                supervisor.send((END, number))


class _SupervisorProcess:
    """The process beside this one, and its idle keepers."""

    def __init__(self) -> None:
        self.idle: dict[str, list[socket.socket]] = {"all": [], "layers": []}
        self.left: dict[str, list[int]] = {}  # owner -> keepers of what was left running
        self.cgroups = ""  # the directory of the keepers' cgroups, if it knows it
        self.connection, theirs = socket.socketpair()
        with theirs:
            self.process = _spawn(theirs.fileno())
        self.connection.settimeout(_PATIENCE)

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        socket.send_fds(self.connection, [pack(message)], list(descriptors))

    def get_keeper(self, cgroups: str, kind: str) -> socket.socket:
        if cgroups and cgroups != self.cgroups:
            self.send((CGROUPS, cgroups))
            self.cgroups = cgroups
        while self.idle[kind]:
            idle = self.idle[kind].pop()
            if _is_open(idle):
                return idle
            idle.close()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self.send((NEW,), [theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        return ours

    def close(self) -> None:
        for one in (self.connection, *self.idle["all"], *self.idle["layers"]):
            one.close()
        self.idle = {"all": [], "layers": []}


def _send_to_keeper(message: bytes, descriptors: list[int], cgroups: str, kind: str) -> socket.socket:
    """Sends the work to a keeper: an idle one, a new one, or the first of a new supervisor."""
    problem: OSError | None = None
    for _ in range(3):
        try:
            with _lock:
                keeper = _ensure_supervisor().get_keeper(cgroups, kind)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            problem = error
            _forget()
            continue
        try:
            _send(keeper, message, descriptors)
        except OSError as error:
            problem = error
            keeper.close()
            continue
        keeper.setblocking(False)
        return keeper
    raise ToolError(
        f"no program can be started: {problem}", ErrorKind.SYSTEM, "Try again. If it keeps failing, tell the person."
    )


def _ensure_supervisor() -> _SupervisorProcess:
    global _current
    if _current is None:
        _current = _SupervisorProcess()
    return _current


def _spawn(connection: int) -> int:
    if not sys.executable:
        raise ToolError("starting programs needs a Python interpreter, and its path is unknown", ErrorKind.CONFIG)
    nothing = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    ours = os.path.dirname(__file__)
    folders = (os.path.dirname(os.path.dirname(ours)), os.path.dirname(ours), ours)
    # isolated, and without the site's packages: it starts fast, and no code of a workspace gets into it
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", _START, *folders, f"forge-supervisor-of-{os.getpid()}"],
        {},
        file_actions=[(os.POSIX_SPAWN_DUP2, connection, 0), nothing, (os.POSIX_SPAWN_DUP2, 1, 2)],
        setsid=True,
    )


def _send(keeper: socket.socket, message: Any, descriptors: Sequence[int]) -> None:
    """Sends the whole message. The other side reads at once, so this does not block for long."""
    content = message if isinstance(message, bytes) else pack(message)
    keeper.settimeout(_PATIENCE)
    sent = socket.send_fds(keeper, [content], list(descriptors)) if descriptors else 0
    if sent < len(content):
        keeper.sendall(content[sent:])


def _is_open(keeper: socket.socket) -> bool:
    try:
        return keeper.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _encode_command(argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> dict[str, Any]:
    """Encodes the words as bytes and finds the file to run."""
    try:
        words = [os.fsencode(word) for word in argv]
        variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        os.fsencode(cwd)
    except UnicodeEncodeError:
        raise _command_error("it is not valid Unicode", "Send valid Unicode.") from None
    if any(b"\0" in word for word in (*words, *variables, *variables.values(), os.fsencode(cwd))):
        raise _command_error("it contains a NUL byte", "Leave it out.")
    longest, together = max(map(len, words), default=0), sum(map(len, words))
    for size, most, whose in (
        (longest, LONGEST_ARGUMENT, "one argument"),
        (together, MOST_ARGUMENTS, "all arguments"),
    ):
        if size > most:
            raise _command_error(
                f"it has {size:,} bytes; the limit for {whose} is {most:,}",
                "Put long text into a file, or pass it as stdin.",
            )
    if not words:
        raise _command_error("it is empty", "Name a program.")
    return {"argv": words, "env": variables, "path": os.fsencode(_find_on_path(argv[0], env, cwd))}


def _find_on_path(name: str, env: Mapping[str, str], cwd: Path) -> str:
    """Finds the program on the PATH that it will have."""
    if "/" in name:
        return name
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(cwd, folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise ToolError(f'the program "{name[:200]}" was not found', ErrorKind.NOT_FOUND, "Use one that is installed.")


def _command_error(problem: str, suggestion: str) -> ToolError:
    return ToolError(f"the command cannot be run: {problem}", ErrorKind.VALIDATION, suggestion)


def _forget() -> None:
    """Closes the supervisor's connection: the supervisor is gone, or belongs to the parent process."""
    global _current
    old, _current = _current, None
    if old is not None:
        old.close()
        with contextlib.suppress(OSError):
            os.waitpid(old.process, os.WNOHANG)


def _reset_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _forget()


os.register_at_fork(after_in_child=_reset_after_fork)
atexit.register(_forget)
