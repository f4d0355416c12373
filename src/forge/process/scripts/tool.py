"""A file as a tool: what a project's scripts and those of its skills have in common."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Mapping
from typing import Any, Protocol

from forge.core.arguments.schema import compile_parser
from forge.core.context import Scope
from forge.core.spec import Category, Permission, ToolSpec
from forge.core.tool import Tool
from forge.process.scripts.settings import ScriptSettings


class Described(Protocol):
    """What is said of a script: in its header, or in the text of its skill."""

    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def defaults(self) -> Mapping[str, Any]: ...


class FileTool(Tool):
    """Asks to execute its file. How it runs, and what happens if the file is another by then, is the subclass's."""

    checked = True  # the schema is of our own making

    def __init__(self, name: str, path: str, described: Described, settings: ScriptSettings, origin: str) -> None:
        self.path = path
        self.described = described
        self.settings = settings
        self.spec = ToolSpec(
            name=name,
            description=described.description,
            parameters=described.parameters,
            category=Category.CUSTOM,
            permissions=frozenset({Permission.EXECUTE}),
            timeout=settings.timeout,
            origin=origin,
        )

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """With the defaults filled in, so that a person who is asked sees all that the script will be given."""
        properties, defaults = self.spec.parameters.get("properties", {}), self.described.defaults
        parser = compile_parser(self.spec, takes=properties)
        wholes = {name for name, one in properties.items() if _is_whole(one) or _is_whole(one.get("items"))}

        def parse(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
            parsed = parser(arguments)
            for name in wholes & parsed.keys():
                parsed[name] = _whole(parsed[name])
            for name, value in defaults.items():
                if name not in parsed:
                    parsed[name] = copy.deepcopy(value)
            return parsed

        self.__dict__["parse"] = parse
        return parse(arguments)

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        """The file as a command."""
        return [shlex.quote(self.path)]

    def wants(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]] | None:
        """To execute the file; of other permissions that a person declared, the script cannot say what it touches."""
        (target,) = self.targets(arguments)
        return [(one, target if one is Permission.EXECUTE else "") for one in sorted(self.spec.permissions)] or None


def _is_whole(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "integer"


def _whole(value: Any) -> Any:
    """3.0 is a whole number to JSON Schema, and none to a script that was promised one."""
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
