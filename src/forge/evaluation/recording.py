"""Records the answers of a model to a file, and replays them without a network."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

from forge.agent.message_json import export_message, import_message
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import TextDelta
from forge.core.messages import Message
from forge.core.provider import ModelRequest, Provider, ProviderError, StreamPart
from forge.core.secrets import Secrets
from forge.workspace.state import append_whole

LARGEST = 256 * 1024 * 1024  # bytes
WORKSPACE = "<forge-eval-workspace>"  # in the file, for the directory of a run: each has its own


class Recorded:
    """A model whose answers are appended to a file, one JSON object per line. Registered secrets are masked."""

    def __init__(self, provider: Provider, path: Path, case: str, time: int, secrets: Secrets, workspace: Path) -> None:
        self.provider = provider
        self._path, self._case, self._time, self._secrets = path, case, time, secrets
        self._workspace = str(workspace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.provider, name)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        async with aclosing(cast(Any, self.provider.stream(request))) as parts:
            async for part in parts:
                if isinstance(part, Message):
                    self._write(part)
                yield part

    def _write(self, message: Message) -> None:
        names = {"model": getattr(self.provider, "model", ""), "label": getattr(self.provider, "label", "")}
        entry = {"case": self._case, "time": self._time, **names, "message": export_message(message)}
        line = json.dumps(self._secrets.mask_value(entry)).replace(self._workspace, WORKSPACE)
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                append_whole(file, f"{line}\n".encode())
            finally:
                os.close(file)
        except OSError as error:
            words = f"recording an answer in {str(self._path)!r}: {error.strerror}"
            raise ProviderError(words, ErrorKind.CONFIG, "Name a file that can be written.") from None


class Replayed:
    """A model that gives the recorded answers of one run, in their order."""

    def __init__(self, entries: list[dict[str, Any]], case: str, time: int, workspace: Path) -> None:
        self._left = [import_message(_insert_workspace(one["message"], workspace)) for one in entries]
        self._count, self._run = len(entries), f"run {time} of the case {case!r}"
        self.model = str(entries[0].get("model", "")) if entries else ""
        self.label = str(entries[0].get("label", "")) if entries else ""

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        if not self._left:
            words = f"the recording has {self._count} answers for {self._run}, and the model was asked once more"
            raise ProviderError(words, ErrorKind.CONFIG, "Record it again: forge eval FILE --record RECORDING.")
        message = self._left.pop(0)
        if message.text:
            yield TextDelta(message.text)
        yield message


class Recording:
    """The runs of a recording. Raises `ToolError` where the file cannot be read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
        number = 0
        try:
            file = Path(path)
            if file.stat().st_size > LARGEST:
                raise ValueError(f"it is larger than {LARGEST // 1024**2} MiB")
            for line in file.read_text("utf-8").splitlines():
                number += 1
                self._take(json.loads(line))
        except OSError as error:
            raise _unreadable(path, str(error.strerror)) from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _unreadable(path, f"line {number}: {type(error).__name__}: {str(error)[:200]}") from None

    def _take(self, entry: Any) -> None:
        import_message(entry["message"])
        self._runs.setdefault((str(entry["case"]), int(entry["time"])), []).append(entry)

    @property
    def times(self) -> int:
        """The largest number of recorded runs of a case."""
        return max((time for _, time in self._runs), default=1)

    def model_for(self, case: str, time: int, workspace: Path) -> Replayed:
        """Returns the model of one run. A run that was not recorded ends with an error."""
        return Replayed(self._runs.get((case, time), []), case, time, workspace)


def _insert_workspace(wire: Any, workspace: Path) -> Any:
    """Returns a message with the directory of the run that replays it."""
    return json.loads(json.dumps(wire).replace(WORKSPACE, json.dumps(str(workspace))[1:-1]))


def _unreadable(path: str | os.PathLike[str], problem: str) -> ToolError:
    words = f"reading the recording {os.fspath(path)!r}: {problem}"
    return ToolError(words, ErrorKind.CONFIG, "Record it again: forge eval FILE --record RECORDING.")
