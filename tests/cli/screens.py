"""A person at a real terminal: a window of tmux, whose screen a test reads and whose keys it presses."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from tests.cli.conftest import environment

PATIENCE = 60.0  # seconds until a screen must show what it should: the machine may be busy
ENTER, ESCAPE, TAB, UP, BACKTAB = "\r", "\x1b", "\t", "\x1b[A", "\x1b[Z"
ALT_ENTER = "\x1b\r"
ENDED = "The command ended:"
SETTINGS = "set -sg escape-time 0\nset -g history-limit 5000\nset -g status off\n"


def control(letter: str) -> str:
    """The character of a key that is pressed together with Ctrl."""
    return chr(ord(letter.upper()) - 64)


class Terminal:
    """`forge`, or another program, in a window of so many columns.

    tmux tells when the window changes, so that nothing has to sleep.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        columns: int = 80,
        rows: int = 24,
        program: tuple[str, ...] = (sys.executable, "-m", "forge"),
        **changes: str | None,
    ) -> None:
        self.name = f"forge-{uuid4().hex[:12]}"
        (folder / "tmux.conf").write_text(SETTINGS)
        self._tmux = ["tmux", "-L", self.name, "-f", str(folder / "tmux.conf")]
        command = shlex.join([*program, *arguments])
        command += f"; echo '{ENDED}' $?; cat"  # tmux itself may not know the code
        without = {"COLUMNS": None, "LINES": None, "NO_COLOR": None, "TMUX": None, "VISUAL": None, "EDITOR": None}
        variables = environment(**{**without, "TERM": "xterm-256color", **changes})
        size = ("-x", str(columns), "-y", str(rows))
        begin = [*self._tmux, "new-session", "-d", *size, "-c", str(folder), command]
        subprocess.run(begin, env=variables, cwd=folder, check=True)
        self._client = subprocess.Popen(
            [*self._tmux, "-C", "attach"], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._heard = b""
        self._read_reply()  # of `attach`

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"The screen:\n{self.everything()}")
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)
        self._client.communicate()

    def press(self, *keys: str) -> Self:
        """Presses keys, or types texts."""
        codes = " ".join(f"{byte:02x}" for key in keys for byte in key.encode())
        self._do(f"send-keys -H {codes}")
        return self

    def paste(self, text: str, folder: Path) -> Self:
        (folder / "pasted").write_text(text)
        self._do(f"load-buffer {folder / 'pasted'}")
        self._do("paste-buffer -p -r")
        return self

    def resize(self, columns: int, rows: int = 24) -> Self:
        self._do(f"resize-window -x {columns} -y {rows}")
        return self

    def screen(self) -> str:
        """What the window shows now."""
        return self._do("capture-pane -p")

    def colours(self) -> str:
        """The window with the codes of its colours."""
        return self._do("capture-pane -p -e")

    def everything(self) -> str:
        """What the window shows, below what was shown before; wrapped lines are joined."""
        return self._do("capture-pane -p -J -S -")

    def wait(self, *awaited: str, without: str = "") -> str:
        """Returns the screen as soon as it shows these texts, and not another one."""

        def holds(shown: str) -> bool:
            return all(text in shown for text in awaited) and not (without and without in shown)

        return self.wait_until(holds, f"{awaited}, without {without!r}")

    def wait_until(self, holds: Callable[[str], bool], awaited: str) -> str:
        """Returns the screen as soon as this holds for it."""
        end = time.monotonic() + PATIENCE
        while not holds(shown := self.screen()):
            if not self._wait_for_output(end - time.monotonic()):
                raise AssertionError(f"the screen does not show {awaited}")
        return shown

    def wait_for_end(self) -> int:
        """Returns the exit code of the command."""
        return int(self.wait(ENDED).partition(ENDED)[2].split()[0])

    def _do(self, command: str) -> str:
        assert self._client.stdin is not None
        self._client.stdin.write(f"{command}\n".encode())
        self._client.stdin.flush()
        return self._read_reply()

    def _read_reply(self) -> str:
        while not self._next_line().startswith(b"%begin"):
            continue
        lines = []
        while not (line := self._next_line()).startswith((b"%end", b"%error")):
            lines.append(line.decode().rstrip())
        assert line.startswith(b"%end"), "\n".join(lines)
        return "\n".join(lines)

    def _wait_for_output(self, seconds: float) -> bool:
        """Waits until the window changes. What tmux said meanwhile counts."""
        assert self._client.stdout is not None
        while seconds > 0:
            if b"\n" in self._heard:
                if self._next_line().startswith(b"%output"):
                    return True
            elif not select.select([self._client.stdout], [], [], seconds)[0] or not self._read():
                return False
        return False

    def _next_line(self) -> bytes:
        while b"\n" not in self._heard:
            assert self._read(), "tmux has ended"
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def _read(self) -> bool:
        assert self._client.stdout is not None
        piece = os.read(self._client.stdout.fileno(), 65_536)
        self._heard += piece
        return bool(piece)
