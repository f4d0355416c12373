"""Writes a Dockerfile for the agent. No image is built."""

from __future__ import annotations

from forge.core.extras import DISTRIBUTION
from forge.project.build.record import SCRIPTS, Build
from forge.project.version import version

PYTHON = "3.13"


def dockerfile(build: Build) -> str:
    """Returns the same text for the same project; only names of variables and packages come from the project."""
    packages = sorted(_packages(build))
    install = " ".join(("apt-get install --yes --no-install-recommends", *packages))
    lines = [
        "# Builds an image of the agent. Run in this directory: docker build --tag my-agent .",
        "# To make sure that this build runs, append --expect and the SHA-256 of build-manifest.json to the command.",
        f"ARG PYTHON={PYTHON}",
        "FROM python:${PYTHON}-slim",
        f"RUN apt-get update && {install} && rm -rf /var/lib/apt/lists/*",
        _install_line(build),
        "RUN useradd --create-home --uid 10001 agent && install --directory --owner agent /workspace",
        "COPY --chown=root:root . /agent",
        "USER agent",
        "WORKDIR /workspace",
    ]
    if needs := sorted({*build.required, *([build.key] if build.key else ())}):
        lines.append(f"# The agent needs these variables; pass them with --env or --env-file: {' '.join(needs)}")
    if build.configuration.servers:
        lines.append("# This image does not contain the programs of the MCP servers: install them above.")
    lines.append('ENTRYPOINT ["forge", "run", "--from", "/agent"]')
    return "\n".join(lines) + "\n"


def _install_line(build: Build) -> str:
    number = version()
    if " " in number:  # the version is unknown
        return f"# Install {DISTRIBUTION} here: Forge ran from source during the build, so its version is unknown."
    extras = ",".join(sorted(_extras(build)))
    package = f"'{DISTRIBUTION}[{extras}]=={number}'" if extras else f"{DISTRIBUTION}=={number}"
    return f"RUN pip install --no-cache-dir {package}"


def _extras(build: Build) -> set[str]:
    """Returns the extras that the agent's tools and sections need."""
    found = {spec.extra for spec in build.tools.values() if spec.extra}
    if build.configuration.servers:
        found.add("mcp")
    if build.configuration.durable is not None:
        found.add("durable")
    return found


def _packages(build: Build) -> set[str]:
    found = {"bubblewrap", "ca-certificates"}
    endings = {path.rpartition(".")[2] for path in build.files if path.startswith(f"{SCRIPTS}/")}
    if endings & {"js", "ts"}:
        found.add("nodejs")
    if "ts" in endings:
        found.add("esbuild")  # the Node.js of the image's system is too old to run TypeScript by itself
    return found
