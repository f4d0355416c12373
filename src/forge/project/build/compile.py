"""Stages 3 to 5: removes development tools, writes tools down, compiles what a run enforces, collects its files."""

from __future__ import annotations

import asyncio
import copy
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from forge.core.arguments.schema import check_schema
from forge.core.errors import DefinitionError, ToolError
from forge.core.files import open_regular
from forge.core.registry import ToolRegistry
from forge.core.spec import Category, ToolSpec
from forge.network.address import read_url
from forge.network.egress import Egress
from forge.permissions.rules import Rule
from forge.project.assemble.access import project_egress, project_policy
from forge.project.assemble.sources import SCRIPTS as FOLDER
from forge.project.build.load import missing_values
from forge.project.build.record import (
    DOCUMENTS,
    EGRESS,
    GUARDRAILS,
    PINS,
    POLICY,
    PROJECT,
    SCHEMAS,
    SCRIPTS,
    SKILLS,
    Build,
    OutputFile,
    StageProblem,
    StageRefused,
    to_bytes,
)
from forge.project.config.access import SANDBOXES
from forge.project.config.agent import ToolEntry
from forge.skills.guardrails import GuardrailRule, Guardrails
from forge.tools import built_ins
from forge.workspace.paths import PathValidator
from forge.workspace.paths.open import explain_errors, open_directory, open_file

_EGRESS = "Write egress: {mode: allowlist, domains: [...]}, or {mode: deny-all}."
_SANDBOX = "Write auto, or required."
_NETWORK = "Remove it, or list the allowed hosts: egress: {mode: allowlist, domains: [...]}."
_PRIVATE = "List the intended hosts or networks, such as 10.0.0.0/8."
_NETWORK_PARTS = re.compile(r"\[?([^\]/]+)\]?/([0-9.]+)")
_WIDEST = {4: 8, 6: 7}  # prefix lengths of the widest private networks: 10.0.0.0/8, fc00::/7


def filter_tools(build: Build) -> str:
    """Filters the tools. Raises `Refused` for the problems of a production build."""
    if not build.order.prod:
        build.notes += map(str, build.source_problems)
        return _count_by_category(build)
    dropped = [name for name, spec in build.tools.items() if spec.category is Category.DEV]
    for name in dropped:
        del build.tools[name]
    if dropped:
        build.notes.append(f"left out, because they are for development only: {', '.join(dropped)}")
    problems = [
        *_open_settings(build),
        *missing_values(build),
        *_agents_without_tools(build),
        *_unapproved_tools(build),
        *_unusable_skills(build),
    ]
    if problems := [*problems, *build.source_problems]:
        raise StageRefused(problems)
    return _count_by_category(build)


def _open_settings(build: Build) -> Iterator[StageProblem]:
    """Yields settings that allow more than a production project should."""
    egress = build.configuration.egress
    if egress is None or egress.mode == "open":
        how = "egress.mode is open" if egress else "egress is not set"
        yield StageProblem(f"{how}: the agent could reach every public address", _EGRESS)
    if build.configuration.sandbox == "off":
        yield StageProblem("sandbox is off: programs could change everything that the user can change", _SANDBOX)
    for index, network in enumerate(egress.private if egress is not None else ()):
        if _is_too_wide(network):
            yield StageProblem(
                f"egress.private[{index}] is {network}, which is wider than any private network", _PRIVATE
            )
    for entry in build.configuration.tools or ():
        yield from _open_tool_settings(entry, nowhere=egress is not None and egress.mode == "deny-all")


def _open_tool_settings(entry: ToolEntry, *, nowhere: bool) -> Iterator[StageProblem]:
    name = entry.name or entry.group
    sandbox = entry.config.get("sandbox", True)
    if sandbox is False or str(sandbox).strip().lower() == "off":
        yield StageProblem(f"{entry.key_path}.config.sandbox is off for {name}", _SANDBOX)
    elif sandbox not in (None, True, *SANDBOXES):
        yield StageProblem(
            f"{entry.key_path}.config.sandbox is {sandbox!r:.60} for {name}, which is not a sandbox", _SANDBOX
        )
    if nowhere and entry.config.get("network"):
        problem = f"{entry.key_path}.config.network opens the network to {name}, but egress.mode is deny-all"
        yield StageProblem(problem, _NETWORK)


def _is_too_wide(entry: str) -> bool:
    """Returns whether a network is wider than any private one; a host, with a port or without, is not."""
    parts = _NETWORK_PARTS.match(entry.strip())
    try:
        network = ip_network(f"{parts[1]}/{parts[2]}", strict=False) if parts else None
    except ValueError:  # the compile stage reports it
        return False
    return network is not None and network.prefixlen < _WIDEST[network.version]


def is_for_developers(entry: Any) -> bool:
    """Returns whether an entry of `tools` names only development tools."""
    name = entry.get("name") if isinstance(entry, dict) else entry
    if not isinstance(name, str):
        return False
    meant = [spec for spec in _built_in() if any(fnmatchcase(one, name) for one in (spec.name, *spec.aliases))]
    return bool(meant) and all(spec.category is Category.DEV for spec in meant)


@cache
def _built_in() -> tuple[ToolSpec, ...]:
    return tuple(tool.spec for tool in built_ins(ToolRegistry()))


def _agents_without_tools(build: Build) -> Iterator[StageProblem]:
    """Yields sub-agents that would lose all their tools, and so get other tools than intended."""
    for name, agent in build.configuration.agents.items():
        if agent.tools and all(map(is_for_developers, agent.tools)):
            yield StageProblem(
                f"agents.{name} has only tools for development", "Give it other tools, or remove the sub-agent."
            )


def _unapproved_tools(build: Build) -> Iterator[StageProblem]:
    """Yields servers with tools that are not approved."""
    states: dict[tuple[str, str], list[str]] = {}
    for name, tool in build.remote.items():
        if tool.state != "pinned" and name in build.tools:
            states.setdefault((tool.server, tool.state), []).append(name)
    for (server, state), names in states.items():
        how = "were never approved" if state == "new" else "changed since they were approved"
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        yield StageProblem(
            f"mcpServers.{server}: {shown} {how}", f"Review and approve them with forge mcp approve {server}."
        )


def _unusable_skills(build: Build) -> Iterator[StageProblem]:
    """Yields active skills that lack something other than variables, which are reported separately."""
    for name, lacks in (build.active.inactive if build.active else {}).items():
        for one in lacks:
            if not any(f"the variable {variable} is" in one for variable in build.required):
                yield StageProblem(f"the skill {name} cannot be active: {one}", "Install it, or deactivate the skill.")


def _count_by_category(build: Build) -> str:
    counts = build.counts
    return ", ".join(f"{number} {category}" for category, number in counts.items() if number and category != "total")


# Stage 5: compiles the rules, egress, guardrails and pins that a run enforces.


def compile_guards(build: Build) -> str:
    """Writes the compiled documents into the build."""
    documents = gather_documents(build)
    build.files |= documents.files
    build.project = _project(build, documents)
    documents_by_path = {
        PROJECT: build.project,
        POLICY: _policy(build),
        EGRESS: _egress(build),
        GUARDRAILS: _guardrails(build),
        PINS: _pins(build),
    }
    try:
        build.files |= {path: OutputFile(to_bytes(value)) for path, value in documents_by_path.items()}
    except (TypeError, ValueError) as error:  # a date, or a number such as .nan
        raise StageRefused(
            [StageProblem(f"{build.configuration.name}: {error}", "Write that value as a string.")]
        ) from None
    return f"{len(documents_by_path[POLICY]['rules'])} rules, egress {documents_by_path[EGRESS]['mode']}"


def _project(build: Build, documents: Documents) -> dict[str, Any]:
    """Returns forge.yaml for a run without the project: the files that it names are part of the build."""
    document = copy.deepcopy(build.document)
    for name, changes in documents.entries.items():
        said = document["openapi"][name]
        document["openapi"][name] = {**(said if isinstance(said, dict) else {}), **changes}
    if isinstance(document.get("skills"), dict):
        document["skills"].pop("paths", None)
    if build.order.prod:
        for holder in (document, *(document.get("agents") or {}).values()):
            if "tools" in holder:
                holder["tools"] = [one for one in holder["tools"] if not is_for_developers(one)]
    return document


def _policy(build: Build) -> dict[str, Any]:
    """Returns the project's own rules; those of a user or an organisation belong to the machine of the run."""
    found = project_policy(build.configuration, None).all_rules()
    return {"rules": [_rule(one) for one in found], "otherwise": {"read": "allow", "*": "ask"}}


def _rule(rule: Rule) -> dict[str, Any]:
    said = {
        "action": str(rule.decision),
        "permission": rule.permission_text,
        **{key: getattr(rule, key) for key in ("tool", "target", "agent", "user", "channel")},
    }
    return {key: value for key, value in said.items() if value}


def _egress(build: Build) -> dict[str, Any]:
    project_egress(build.configuration)  # reports an entry that cannot be read
    said = build.configuration.egress
    return {
        "mode": said.mode if said else "open",
        "domains": sorted(said.domains) if said else [],
        "private": sorted(said.private) if said else [],
        "skill_domains": sorted(build.active.egress_domains) if build.active else [],
    }


def _guardrails(build: Build) -> dict[str, Any]:
    """Returns the guardrails of the project and of its active skills."""
    rules = Guardrails.of(build.configuration.guardrails, f"{build.configuration.name}: guardrails")
    rules = rules.joined(*(skill.guardrails for skill in (build.active.named if build.active else ())))
    return {
        "deny_commands": _guardrail_entries(rules.commands),
        "deny_output": [
            {**one, "action": rule.action}
            for one, rule in zip(_guardrail_entries(rules.output), rules.output, strict=True)
        ],
        "deny_prompts": _guardrail_entries(rules.prompts),
        "deny_responses": _guardrail_entries(rules.responses),
        "denied_tools": sorted(rules.tools),
    }


def _guardrail_entries(rules: Iterable[GuardrailRule]) -> list[dict[str, str]]:
    return [{"pattern": rule.pattern.source, "message": rule.message} for rule in rules]


def _pins(build: Build) -> dict[str, Any]:
    """Returns the tools that a person approved for each server: a run accepts no others."""
    servers: dict[str, dict[str, Any]] = {}
    for name, tool in build.remote.items():
        if name in build.tools and tool.state == "pinned":
            servers.setdefault(tool.server, {})[tool.remote] = tool.definition
    return {"servers": servers}


# Collects the project's files that the agent needs: scripts with their neighbours, skills, documents.


MOST_FILES = 5_000
MOST_BYTES = 64 * 1024 * 1024  # bytes of all files together
DEEPEST_FOLDERS = 20  # folders within folders

_LEFT = frozenset({"__pycache__", "node_modules"})  # and names that begin with a dot
_HOW = f"Keep in {FOLDER}/ and skills only what the agent needs."


@dataclass(slots=True)
class Documents:
    """The OpenAPI documents, and their changed entries of forge.yaml."""

    files: dict[str, OutputFile] = field(default_factory=dict)
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)


def gather_scripts(build: Build) -> dict[str, OutputFile]:
    """Returns the whole folder if it has tools: scripts may import files beside them."""
    origins = [spec.origin.removeprefix("script:") for spec in build.tools.values() if _is_script(spec.origin)]
    paths = PathValidator(build.order.workspace)
    found: dict[str, OutputFile] = {}
    if any(one.startswith(f"{FOLDER}/") for one in origins):
        found = dict(_files_below(paths, FOLDER, f"{SCRIPTS}/{FOLDER}"))
    for one in origins:
        if not one.startswith(f"{FOLDER}/"):
            found[f"{SCRIPTS}/{one}"] = _read_file(paths, one)
    return _check_size(found)


def gather_skills(build: Build) -> dict[str, OutputFile]:
    """Returns the files of the project's skills."""
    found: dict[str, OutputFile] = {}
    for skill in build.skills:
        if skill.folder is not None:
            found |= _files_below(PathValidator(skill.folder.path, environment={}), ".", f"{SKILLS}/{skill.name}")
        else:
            paths = PathValidator(skill.location.path.parent, environment={})
            found[f"{SKILLS}/{skill.name}.md"] = _read_file(paths, skill.location.name)
    return _check_size(found)


def gather_documents(build: Build) -> Documents:
    """Also downloads documents at a URL, so that a run uses what was built. Raises `ToolError`."""
    from forge.openapi.document import is_url

    documents, problems = Documents(), []
    for name, entry in build.configuration.openapi.items():
        said = build.document["openapi"][name]
        spec = said if isinstance(said, str) else said["spec"]
        if not is_url(entry.spec):
            content, server = _read_document(Path(entry.spec)), ""
        elif entry.server or "${" not in spec:
            content, server = asyncio.run(_download(build, name))
        else:
            problems.append(
                StageProblem(
                    f"openapi.{name}: the URL of its document contains variables, so its server is unknown",
                    f"Write openapi.{name}.server too.",
                )
            )
            continue
        path = f"{DOCUMENTS}/{name}.{'json' if content.lstrip()[:1] == b'{' else 'yaml'}"
        documents.files[path] = OutputFile(content)
        documents.entries[name] = {"spec": f"../{path}", **({"server": server} if server else {})}
    if problems:
        raise StageRefused(problems)
    return documents


async def _download(build: Build, name: str) -> tuple[bytes, str]:
    """Returns the document and the server of its operations: a copy no longer says from which server it came."""
    from forge.openapi.document import download, parse_document
    from forge.openapi.operations import Servers

    entry = build.configuration.openapi[name]
    egress = project_egress(build.configuration)
    judged = (egress if egress is not None else Egress.current()).reaching(read_url(entry.spec))
    content, url = await download(entry.spec, judged)
    return content, "" if entry.server else Servers(await parse_document(content, url, url), "", egress).base()


def _read_document(path: Path) -> bytes:
    """Reads the named file, which may be anywhere."""
    from forge.openapi.document import LARGEST_JSON, unreadable

    with os.fdopen(open_regular(path), "rb") as file:
        content = file.read(LARGEST_JSON + 1)
    if len(content) > LARGEST_JSON:
        raise unreadable(path.name, f"it has more than {LARGEST_JSON // 1024 // 1024} MiB", "Make it smaller.")
    return content


def _files_below(paths: PathValidator, folder: str, to: str, depth: int = 0) -> Iterator[tuple[str, OutputFile]]:
    """Yields every file with its path in the output. Links are followed as long as they stay inside."""
    if depth > DEEPEST_FOLDERS:
        raise StageRefused(
            [
                StageProblem(
                    f"{folder} is more than {DEEPEST_FOLDERS} folders deep",
                    "Check for a symbolic link that points to its own parent.",
                )
            ]
        )
    descriptor = open_directory(paths.resolve(folder, blank=True))
    try:
        names = sorted(name for name in os.listdir(descriptor) if not name.startswith(".") and name not in _LEFT)
        kinds = {name: _file_mode(descriptor, name) for name in names}
    finally:
        os.close(descriptor)
    for name, kind in kinds.items():
        inner = name if folder == "." else f"{folder}/{name}"
        if stat.S_ISDIR(kind):
            yield from _files_below(paths, inner, f"{to}/{name}", depth + 1)
        elif not name.endswith(".pyc"):
            yield f"{to}/{name}", _read_file(paths, inner)


def _file_mode(within: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=within).st_mode
    except OSError:  # a broken link: reading it fails later
        return 0


def _read_file(paths: PathValidator, path: str) -> OutputFile:
    """Reads a file. Raises `ToolError` for a path that leads out of the folder, is not a file, or is too large."""
    file_path = paths.resolve(path)
    with open(open_file(file_path), "rb") as file, explain_errors(file_path.shown):
        content = file.read(MOST_BYTES + 1)
        executable = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
    if len(content) > MOST_BYTES:
        raise ToolError(f"{file_path.shown} has more than {MOST_BYTES // 1024 // 1024} MiB", suggestion=_HOW)
    return OutputFile(content, executable)


def _check_size(found: dict[str, OutputFile]) -> dict[str, OutputFile]:
    size = sum(len(file.content) for file in found.values())
    if len(found) > MOST_FILES or size > MOST_BYTES:
        most = f"{MOST_FILES:,} files or {MOST_BYTES // 1024 // 1024} MiB"
        raise StageRefused([StageProblem(f"there are {len(found):,} files of {size:,} bytes, more than {most}", _HOW)])
    return found


def _is_script(origin: str) -> bool:
    return origin.startswith("script:")


# Stage 4: a JSON Schema of each tool's arguments, and its entry in the agent's list.


def schemas(build: Build) -> str:
    problems: list[StageProblem] = []
    seen: dict[str, str] = {}
    for name, spec in build.tools.items():
        other = seen.setdefault(name.lower(), name)
        if other != name:
            problems.append(
                StageProblem(f"{other} and {name} differ only in case", "Rename one: some file systems ignore case.")
            )
        try:
            check_schema(name, spec.parameters)
            build.files[schema_path(name)] = OutputFile(to_bytes(schema_of(spec)))
        except (DefinitionError, ValueError) as error:  # a number that JSON does not know
            problems.append(StageProblem(f"{name}: cannot write its schema: {error}"))
    if problems:
        raise StageRefused(problems)
    return f"{len(build.tools)} schemas"


# Writes tools down: their schema for programs, their entry in the agent's list.


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(spec: ToolSpec) -> dict[str, Any]:
    """Returns a tool's definition for models as a JSON Schema of its arguments."""
    own = {"type": "object", "properties": {}, **spec.parameters}
    return {"$schema": DIALECT, **own, "title": spec.name, "description": spec.description}


def schema_path(name: str) -> str:
    return f"{SCHEMAS}/{name}.schema.json"


def entry_of(spec: ToolSpec) -> dict[str, Any]:
    """Returns the fields of a tool that the gate and the steps use."""
    entry: dict[str, Any] = {
        "name": spec.name,
        "description": spec.description,
        "category": str(spec.category),
        "permissions": sorted(map(str, spec.permissions)),
        "optional_permissions": sorted(map(str, spec.optional_permissions)),
        "origin": spec.origin,
        "aliases": sorted(spec.aliases),
        "groups": sorted(spec.groups),
        "confirm": spec.confirm,
        "irreversible": spec.irreversible,
        "harmless": sorted(spec.harmless),
        "ends_turn": spec.ends_turn,
        "hidden": spec.hidden,
        "timeout": spec.timeout,
        "schema": schema_path(spec.name),
    }
    if spec.fixed:
        entry["fixed"] = dict(spec.fixed)
    if spec.rate is not None:
        entry["rate"] = spec.rate._asdict()
    if spec.max_concurrency:
        entry["max_concurrency"], entry["concurrency_key"] = spec.max_concurrency, spec.concurrency_key
    return entry
