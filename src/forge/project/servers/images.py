"""Pins the image of a server that runs in a container."""

from __future__ import annotations

import shutil

from forge.core.errors import ErrorKind, ToolError
from forge.project.servers.plan import ServerPlan
from forge.project.servers.registry_document import is_pinned_image
from forge.sources.mcp.programs.run_installer import run_installer, scratch_folder

_STARTER = "docker"


async def pin_image(plan: ServerPlan) -> ServerPlan:
    """Names the image of a container by its digest; another entry stays as it is. Raises `ToolError`."""
    words = list(plan.entry.get("args", ()))
    if plan.entry.get("command") != _STARTER or words[:1] != ["run"]:
        return plan
    starter = shutil.which(_STARTER) or shutil.which("podman")
    if starter is None:
        raise ToolError(
            "a server in a container needs docker or podman, and neither is installed",
            ErrorKind.CONFIG,
            "Install one of them, or choose another offer with --kind.",
        )
    place = next((index for index, word in enumerate(words) if index > 2 and _is_image(words, index)), -1)
    image = words[place]
    if not is_pinned_image(image):
        with scratch_folder() as folder:
            await run_installer([starter, "pull", "--quiet", image], folder)
            said = await run_installer(
                [starter, "image", "inspect", "--format", "{{index .RepoDigests 0}}", image], folder
            )
        words[place] = said.strip()
    if not is_pinned_image(words[place]):
        raise ToolError(
            f"the image {image[:200]} cannot be pinned: it has no digest",
            ErrorKind.USER,
            "Name it with its digest: IMAGE@sha256:…",
        )
    entry = {**plan.entry, "command": starter.rpartition("/")[2], "args": words}
    return plan._replace(entry=entry, notes=(*plan.notes, "It runs in a container, outside Forge's sandbox."))


def _is_image(words: list[str], index: int) -> bool:
    return not words[index].startswith("-") and words[index - 1] not in ("-e", "-v", "--mount", "--env", "--network")
