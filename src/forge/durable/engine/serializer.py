"""Serialises the engine's data as JSON: never a pickle, with which anyone who can write to the database could run
code.
"""

from __future__ import annotations

import json
from typing import Any

from dbos import Serializer, _serialization

from forge.durable.store.steps import FORMAT


class RecordedError(Exception):
    """An exception that a step or a workflow raised in some process, as recorded."""


class JsonSerializer(Serializer):
    """Stores JSON in plain ASCII (so that no NUL reaches Postgres), never a pickle."""

    def serialize(self, data: Any) -> str:
        if isinstance(data, BaseException):
            data = {"__error__": f"{type(data).__name__}: {data}"}
        return json.dumps(data, separators=(",", ":"))

    def deserialize(self, serialized_data: str) -> Any:
        data = json.loads(serialized_data)
        if isinstance(data, dict) and data.keys() == {"__error__"}:
            return RecordedError(data["__error__"])
        return data

    def decode(self, serialized_data: str, name: str | None) -> Any:
        """Decodes what a serializer of this name wrote. Raises `TypeError` if it was not ours."""
        return self.deserialize(serialized_data) if name in (FORMAT, None) else _refuse_pickle(serialized_data)

    def name(self) -> str:
        return FORMAT


def refuse_pickles() -> None:
    """Refuses pickles in this process until `allow_pickles`. DBOS unpickles rows marked as pickles with any
    serializer.
    """
    # private: there is no setting for it. DBOS is one for the whole process
    _serialization.DBOSDefaultSerializer.deserialize = _refuse_pickle  # type: ignore[method-assign]


def allow_pickles() -> None:
    vars(_serialization.DBOSDefaultSerializer).pop("deserialize", None)


def _refuse_pickle(serialized_data: str) -> Any:
    raise TypeError(
        "a pickle in the durable database was not loaded: Forge never writes pickles, and a pickle could run any code"
    )
