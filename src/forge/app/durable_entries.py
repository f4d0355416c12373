"""The section `durable` of `forge.yaml`: where runs that survive are kept, and how many of them may work at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from forge.app.reading import Reader, config_error
from forge.core.errors import ToolError

URL = r"^(sqlite:///|postgres(ql(\+psycopg)?)?://|\$\{)[^\u0000]+$"
QUEUE = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$"
_SQLITE = "sqlite:///"
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class DurableEntry(NamedTuple):
    """`database` as it was written: variables in it are looked up by those who need it."""

    database: str = ""
    queues: Mapping[str, Mapping[str, Any]] = _NOTHING  # as `forge.durable.queues.Limits.of` takes them
    name: str = ""  # of the file that names the database, whose directory relative paths count from

    def url(self, environment: Mapping[str, str] = os.environ) -> str:
        """The database; empty where none is named. Raises `ToolError`."""
        url = _REFERENCE.sub(lambda match: self._value(match[1], environment), self.database)
        if not re.match(URL, url) and url:
            problem = "what its variables stand for is no URL of SQLite or Postgres"
            raise config_error(self.name, "durable.database", problem, example=True)
        path = url.removeprefix(_SQLITE)
        if url.startswith(_SQLITE) and not path.startswith(("/", "~")) and Path(self.name).is_file():
            return f"{_SQLITE}{Path(self.name).absolute().parent / path}"
        return url

    def secrets(self, environment: Mapping[str, str] = os.environ) -> Iterator[str]:
        """What of the URL must not be shown."""
        try:
            yield from passwords(self.url(environment))
        except ToolError:  # a variable is not set: there is nothing to hide
            return

    def _value(self, name: str, environment: Mapping[str, str]) -> str:
        if value := environment.get(name):
            return value
        problem = f"the environment variable {name} is not set; set it before Forge starts"
        raise config_error(self.name, "durable.database", problem, example=True)


def durable_entry(reader: Reader, value: Any) -> DurableEntry:
    said = reader.mapping(value, "durable", ("database", "queues"))
    queues = reader.mapping(said.get("queues", {}), "durable.queues")
    return DurableEntry(
        database=_database(reader, said["database"]) if "database" in said else "",
        queues={name: _queue(reader, name, one) for name, one in queues.items()},
        name=reader.files.get("durable.database", reader.name),
    )


def passwords(url: str) -> Iterator[str]:
    """What is secret in the URL of a database."""
    try:
        parts = urlsplit(url)
        found = [parts.password or "", *(one for key, one in parse_qsl(parts.query) if "pass" in key)]
    except ValueError:
        return
    for one in found:
        yield from dict.fromkeys(text for text in (one, unquote(one)) if text)


def without_password(url: str) -> str:
    """The URL as people may see it: whatever could be a password is left out, however it is written."""
    scheme, mark, rest = url.partition("://")
    if not mark or scheme == "sqlite":
        return url
    who, at, where = rest.rpartition("@")
    user = who.partition(":")[0] if at else ""
    return f"{scheme}://{user}{':***@' if ':' in who else at}{where.partition('?')[0]}"


def _database(reader: Reader, value: Any) -> str:
    text = reader.text(value, "durable.database")
    if not re.match(URL, text):  # not repeated: it may hold a password
        words = "expected sqlite:///FILE, postgresql://USER@HOST/DATABASE or ${VARIABLE}"
        raise reader.error("durable.database", words)
    for name in _REFERENCE.findall(text):
        reader.variables[name] = None
    return text


def _queue(reader: Reader, name: str, value: Any) -> dict[str, Any]:
    place = f"durable.queues.{name}"
    if not re.match(QUEUE, name):
        raise reader.error("durable.queues", f"{name!r:.60} cannot be the name of a queue")
    said = dict(reader.mapping(value, place, ("concurrency", "per_tenant", "rate")))
    for key in ("concurrency", "per_tenant"):
        if key in said:
            said[key] = reader.whole(said[key], f"{place}.{key}", 1)
    if "rate" in said:
        rate = reader.mapping(said["rate"], f"{place}.rate", ("calls", "seconds"))
        for key in ("calls", "seconds"):
            if key not in rate:
                raise reader.error(f"{place}.rate", f"{key} is missing")
        said["rate"] = {
            "calls": reader.whole(rate["calls"], f"{place}.rate.calls", 1),
            "seconds": reader.number(rate["seconds"], f"{place}.rate.seconds", above=0),
        }
    return said
