"""The keys about durable runs: their database, and how many run at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from forge.core.errors import ToolError
from forge.project.config.reader import VARIABLE, ConfigReader, config_error
from forge.project.config.section import PlainSection, Section

if TYPE_CHECKING:  # evaluated by `make reference`
    from forge.project.config.kinds import Above0, Key, Matches, Names, Of, Whole

_URL = r"(sqlite:///|postgres(ql(\+psycopg)?)?://|\$\{)[^\u0000]+"
_URLS = "sqlite:///FILE, postgresql://USER@HOST/DATABASE or ${VARIABLE}"
_QUEUE = r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}"
_ADDRESS = r"(([0-9.]{7,15}|\[[0-9A-Fa-f:.]+\]|localhost):)?[0-9]{1,5}(-[0-9]{1,5})?"
_SQLITE = "sqlite:///"
_VARIABLE = rf"\$\{{({VARIABLE})\}}"


class QueueRate(PlainSection, example={"calls": 100, "seconds": 60}):
    """A limit on how many runs start in a period."""

    calls: Annotated[int, Whole(1), Key("Maximum number of runs that start in `seconds`.", 100, required=True)]
    seconds: Annotated[Above0, Key("Length of the period, in seconds.", 60, required=True)]


class QueueEntry(PlainSection, example={"concurrency": 50, "rate": {"calls": 100, "seconds": 60}, "per_tenant": 5}):
    """Limits of a queue, over all workers together."""

    concurrency: Annotated[int, Whole(1), Key("Maximum number of concurrent runs, over all workers.", 50)]
    per_tenant: Annotated[int, Whole(1), Key("Maximum number of concurrent runs of one tenant.", 5)]
    rate: Annotated[QueueRate, Key()]


class RetentionEntry(PlainSection, example={"runs": 90, "events": 14}):
    """The days that ended runs are kept. Workers delete older ones at quiet times. Default: for ever."""

    runs: Annotated[Above0, Key("Days after which an ended run is deleted, with everything.", 90)]
    events: Annotated[Above0, Key("Days after which the events of an ended run are deleted.", 14)]
    files: Annotated[Above0, Key("Days after which the stored files of an ended run are deleted.", 30)]


class DurableEntry(Section, example={"database": "${DATABASE_URL}", "queues": {"default": {"concurrency": 50}}}):
    """Durable runs: `forge run --durable`, `forge worker`. By default they are stored in .forge/durable.db."""

    # the database is stored unchanged: its variables are resolved when it is opened; it may hold a password
    database: Annotated[
        str,
        Matches(_URL, _URLS, format="references", writeOnly=True),
        Key(
            "URL of the database: SQLite for one machine, Postgres for several. ${NAME} stands for an environment"
            " variable.",
            "${DATABASE_URL}",
            variable="FORGE_DATABASE",
        ),
    ] = ""
    queues: Annotated[
        Mapping[str, Mapping[str, Any]],
        Of(Mapping[str, QueueEntry]),
        Names(_QUEUE, "not a valid name of a queue"),
        Key("Limits of queues, by name.", sample="default"),
    ] = field(default_factory=dict)
    health: Annotated[
        str,
        Matches(_ADDRESS, "ADDRESS:PORT or a port of 127.0.0.1", numeric=True),
        Key(
            "Address and port where a worker serves /healthz, /readyz and /metrics. Of the ports FIRST-LAST, it takes"
            " a free one.",
            "127.0.0.1:9464",
            unset="nowhere",
            variable="FORGE_HEALTH",
        ),
    ] = ""
    retention: Annotated[Mapping[str, float], Of(RetentionEntry), Key()] = field(default_factory=dict)
    name: str = ""  # of the file that names the database, whose directory relative paths count from

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        name = reader.files.get("durable.database", reader.name)
        return super().from_keys(reader, {**values, "name": name}, key_path)

    def url(self, environment: Mapping[str, str] = os.environ) -> str:
        """Returns the database with its variables looked up; empty where none is named. Raises `ToolError`."""
        url = re.sub(_VARIABLE, lambda match: self._value(match[1], environment), self.database)
        if url and not re.fullmatch(_URL, url):
            raise self._error("with its variables filled in, this is not a URL of SQLite or Postgres")
        path = url.removeprefix(_SQLITE)
        if url.startswith(_SQLITE) and not path.startswith(("/", "~")) and Path(self.name).is_file():
            return f"{_SQLITE}{Path(self.name).absolute().parent / path}"
        return url

    def secrets(self, environment: Mapping[str, str] = os.environ) -> Iterator[str]:
        """Yields the parts of the URL that must not be shown."""
        try:
            yield from passwords(self.url(environment))
        except ToolError:  # a variable is not set: there is nothing to hide
            return

    def _value(self, name: str, environment: Mapping[str, str]) -> str:
        if value := environment.get(name):
            return value
        raise self._error(f"the environment variable {name} is not set; set it before Forge starts")

    def _error(self, problem: str) -> ToolError:
        return config_error(self.name, "durable.database", problem)


def passwords(url: str) -> Iterator[str]:
    """Yields the secrets in the URL of a database."""

    try:
        parts = urlsplit(url)
        found = [parts.password or "", *(one for key, one in parse_qsl(parts.query) if "pass" in key)]
    except ValueError:
        return
    for one in found:
        yield from dict.fromkeys(text for text in (one, unquote(one)) if text)


def without_password(url: str) -> str:
    """Returns the URL as people may see it: anything that could be a password is left out."""
    scheme, mark, rest = url.partition("://")
    if not mark or scheme == "sqlite":
        return url
    who, at, where = rest.rpartition("@")
    user = who.partition(":")[0] if at else ""
    return f"{scheme}://{user}{':***@' if ':' in who else at}{where.partition('?')[0]}"
