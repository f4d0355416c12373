"""Stage 1: reads forge.yaml, and finds the variables that the project needs. No value is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from forge.models.vendors import SERVERS
from forge.project.assemble.access import workspace_root
from forge.project.assemble.sources import SCRIPTS as FOLDER
from forge.project.build.output import check_output, unusable_output
from forge.project.build.record import Build, BuildOrder, StageProblem, StageRefused
from forge.project.config.declaration import Configuration, known_variables
from forge.project.config.load import load_configuration

_NOBODY = f"{os.devnull}/nobody"  # an organisation without a policy
_USER_VARIABLES = frozenset({"HOME", "XDG_CONFIG_HOME", *known_variables()})


def load(build: Build) -> str:
    """Reads the project into the build."""
    order = build.order
    check_output(order.output)
    build.document = dict(load_configuration(order.config, resolve=False, **_without_user()).document)
    for one in variables(build.document):
        if not one.optional:
            build.required.setdefault(one.name, []).append(one.key_path)
    build.optional = {one.name for one in variables(build.document) if one.optional} - build.required.keys()
    _check_set(build)
    build.configuration = project_alone(order.config)
    build.effective = load_configuration(order.config)
    if build.configuration.root is not None and not order.named:
        build.order = order._replace(workspace=workspace_root(None, build.configuration.root))
    _check_output_location(build.order)
    build.key = model_key(build.configuration.agent.model)
    return Path(order.config).name


def project_alone(config: str) -> Configuration:
    """Returns the project's own configuration, independent of user and machine. Raises `ToolError`."""
    return load_configuration(config, **_without_user())


def missing_values(build: Build) -> Iterator[StageProblem]:
    """Yields required variables and files of secrets that are missing."""
    for name, places in sorted(build.required.items()):
        if not os.environ.get(name):
            yield StageProblem(f"the variable {name} is not set ({', '.join(places)})", f"Set {name} before you build.")
    for path in build.configuration.secret_files:
        if not path.is_file():
            yield StageProblem(f"the secret file {path} does not exist", "Create it, or remove it from secrets.")


def _check_set(build: Build) -> None:
    """Refuses unset variables that servers and documents need; in production, all must be set."""
    unset = {name: places for name, places in build.required.items() if not os.environ.get(name)}
    needed = {name for name, places in unset.items() if any(place.startswith(READ_AT_ONCE) for place in places)}
    if needed:
        every = list(missing_values(build))
        raise StageRefused(
            every if build.order.prod else [one for one in every if any(f" {name} " in one.text for name in needed)]
        )


def _check_output_location(order: BuildOrder) -> None:
    """Refuses an output directory that the next build would copy."""
    if order.output.resolve().is_relative_to(order.workspace / FOLDER):
        raise unusable_output(order.output, f"it is inside {FOLDER}/, which is copied into the build")


def _without_user() -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name not in _USER_VARIABLES}
    return {"environment": environment, "organisation": _NOBODY}


# Finds the environment variables that a project needs in its document; no value is read.


READ_AT_ONCE = ("mcpServers", "openapi", "webhooks")  # their variables are needed to read the configuration
_SECTIONS = (*READ_AT_ONCE, "channels", "durable", "memory")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NamedVariable(NamedTuple):
    """A variable and the key path that names it."""

    name: str
    key_path: str
    optional: bool = False


def variables(document: Mapping[str, Any]) -> list[NamedVariable]:
    """Returns the variables of a forge.yaml, also of an invalid one."""
    found = [*_secrets(document.get("secrets"))]
    for section in _SECTIONS:
        entries = document.get(section)
        for key, entry in entries.items() if isinstance(entries, Mapping) else ():
            if not (isinstance(entry, Mapping) and entry.get("disabled") is True):
                found += _variables_below(entry, f"{section}.{key}", str(key))
    return [*found, *_passed_variables(document.get("tools"))]


def model_key(model: str) -> str:
    """Returns the variable with the key of a model's provider; empty if none is needed or known."""
    prefix = model.removeprefix("text:").partition(":")[0].strip().lower()
    if prefix == "anthropic":
        return "ANTHROPIC_API_KEY"
    return SERVERS[prefix].key if prefix in SERVERS else ""


def _secrets(entries: Any) -> Iterator[NamedVariable]:
    """Yields the names under `secrets`; secrets in files have no variable."""
    for index, one in enumerate(entries if isinstance(entries, list) else ()):
        if _is_name(one):
            yield NamedVariable(one, f"secrets[{index}]")


def _variables_below(value: Any, key_path: str, key: str) -> Iterator[NamedVariable]:
    if isinstance(value, str):
        if key.endswith("_env"):
            if _is_name(value):
                yield NamedVariable(value, key_path)
        elif not key_path.startswith(("channels", "memory")):  # `${NAME}` has no meaning there
            for match in _VARIABLE.finditer(value):
                yield NamedVariable(match[1], key_path, match[2] is not None)
    elif isinstance(value, Mapping):
        for inner, one in value.items():
            yield from _variables_below(one, f"{key_path}.{inner}", key if key.endswith("_env") else str(inner))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _variables_below(one, f"{key_path}[{index}]", "")


def _passed_variables(tools: Any) -> Iterator[NamedVariable]:
    """Yields variables that programs are allowed to see; they are optional."""
    for index, entry in enumerate(tools if isinstance(tools, list) else ()):
        config = entry.get("config") if isinstance(entry, Mapping) else None
        names = config.get("env_passthrough") if isinstance(config, Mapping) else None
        for name in names if isinstance(names, list) else ():
            if _is_name(name):
                yield NamedVariable(name, f"tools[{index}].config.env_passthrough", optional=True)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None
