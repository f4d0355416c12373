"""Makes a file a tool: the common part of project scripts and skill scripts."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from forge.core.arguments.schema import compile_parser
from forge.core.context import Scope
from forge.core.spec import Category, Permission, ToolSpec
from forge.core.tool import Tool


class ScriptDescription(Protocol):
    """The description of a script: from its header, or from the text of its skill."""

    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def defaults(self) -> Mapping[str, Any]: ...


class FileTool(Tool):
    """Asks to execute its file. The subclass runs the file and handles a file that changed."""

    checked = True  # Forge built the schema itself
    keeps_deadline = True  # `run_script` ends the program when its time is up, and returns the output so far

    def __init__(
        self, name: str, path: str, described: ScriptDescription, settings: ScriptSettings, origin: str
    ) -> None:
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
        """Parses arguments and fills in the defaults, so that a person who is asked sees all values."""
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
        """Returns the file as a command."""
        return [shlex.quote(self.path)]

    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None:
        """Wants to execute the file; for other declared permissions, the target is unknown."""
        (target,) = self.targets(arguments)
        return [(one, target if one is Permission.EXECUTE else "") for one in sorted(self.spec.permissions)] or None


def _is_whole(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "integer"


def _whole(value: Any) -> Any:
    """Converts 3.0 to 3: an integer to JSON Schema, but not to a script."""
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Defines the person's settings for scripts that become tools.


TIMEOUT = 120.0  # seconds
MAX_OUTPUT = 1024 * 1024  # bytes of each stream


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSettings:
    """The person's settings for scripts; a script itself cannot change them."""

    timeout: float | None = TIMEOUT
    python: str = ""  # a program's name or path; by default the Python that runs Forge
    env_passthrough: tuple[str, ...] = ()  # names of variables that scripts see
    network: bool = False  # in a sandbox
    sandbox: str | bool = "auto"
    max_output_bytes: int = MAX_OUTPUT
