"""The JSON Schema of `forge.yaml`: what editors complete, and where errors and pages take their words from.

It accepts what the reader accepts. Some things need more than the document (whether a tool, a file or a variable
exists, whether a cron rule or a pattern can be read); the reader alone checks them.
"""

from __future__ import annotations

from forge.project.config.declaration import Configuration, keys_said_by
from forge.project.config.kinds import Schema
from forge.project.config.section import Section

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MADE: dict[type[Section], Schema] = {}


def config_schema(declaration: type[Section] = Configuration) -> Schema:
    if declaration not in _MADE:
        entry = declaration.schema()
        _MADE[declaration] = {
            "$schema": DIALECT,
            "title": "forge.yaml",
            "description": entry.pop("description"),
            "anyOf": [{"type": "null"}, entry],
            "examples": entry.pop("examples"),
        }
    return _MADE[declaration]


def organisation_schema() -> Schema:
    """Returns the schema of the organisation's file, which nothing loosens."""
    entry = Configuration.schema()
    known = keys_said_by("organisation")
    return {**entry, "properties": {key: one for key, one in entry["properties"].items() if key in known}}
