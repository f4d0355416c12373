"""Stage 1: reads forge.yaml, and finds the variables that the project needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forge.project.assemble.sources import SCRIPTS as FOLDER
from forge.project.assemble.workspace import workspace_root
from forge.project.build.output import check_output, unusable_output
from forge.project.build.record import Build, BuildOrder, Problem, StageRefused
from forge.project.build.variables import READ_AT_ONCE, model_key, variables
from forge.project.config import Configuration, load_configuration
from forge.project.config.declaration import known_variables

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


def missing_values(build: Build) -> Iterator[Problem]:
    """Yields required variables and files of secrets that are missing."""
    for name, places in sorted(build.required.items()):
        if not os.environ.get(name):
            yield Problem(f"the variable {name} is not set ({', '.join(places)})", f"Set {name} before you build.")
    for path in build.configuration.secret_files:
        if not path.is_file():
            yield Problem(f"the secret file {path} does not exist", "Create it, or remove it from secrets.")


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
