"""Writes a Dockerfile for the agent. No image is built."""

from __future__ import annotations

from forge.project.build.record import SCRIPTS, Build
from forge.project.version import DISTRIBUTION, version

PYTHON = "3.13"


def dockerfile(build: Build) -> str:
    """Returns the same text for the same project; only names of variables and packages come from the project."""
    packages = sorted(_packages(build))
    install = " ".join(("apt-get install --yes --no-install-recommends", *packages))
    lines = [
        "# The agent in an image. In this directory: docker build --tag my-agent .",
        "# To be certain of what runs, append --expect and the SHA-256 of build-manifest.json to its command.",
        f"ARG PYTHON={PYTHON}",
        "FROM python:${PYTHON}-slim",
        f"RUN apt-get update && {install} && rm -rf /var/lib/apt/lists/*",
        _install_line(),
        "RUN useradd --create-home --uid 10001 agent && install --directory --owner agent /workspace",
        "COPY --chown=root:root . /agent",
        "USER agent",
        "WORKDIR /workspace",
    ]
    if needs := sorted({*build.required, *([build.key] if build.key else ())}):
        lines.append(f"# It needs these variables, given with --env or --env-file: {' '.join(needs)}")
    if build.configuration.servers:
        lines.append("# The programs of its MCP servers are not in this image: install them above.")
    lines.append('ENTRYPOINT ["forge", "run", "--from", "/agent"]')
    return "\n".join(lines) + "\n"


def _install_line() -> str:
    number = version()
    if " " in number:  # the version is unknown
        return f"# Install {DISTRIBUTION} here: this build was made from its source, which has no version."
    return f"RUN pip install --no-cache-dir {DISTRIBUTION}=={number}"


def _packages(build: Build) -> set[str]:
    found = {"bubblewrap", "ca-certificates"}
    endings = {path.rpartition(".")[2] for path in build.files if path.startswith(f"{SCRIPTS}/")}
    if endings & {"js", "ts"}:
        found.add("nodejs")
    if "ts" in endings:
        found.add("esbuild")  # the Node.js of the image's system is too old to run TypeScript by itself
    return found
