"""Defines what a program that a tool starts may reach in a sandbox, and explains failures that the sandbox caused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from forge.core.context import ToolContext
from forge.permissions.program_network import program_network
from forge.process.sandbox.layout import Confinement, NetworkProxy, confinement_of, find_hidden
from forge.workspace.paths import PathValidator
from forge.workspace.state import config_file

_NAMES_SETTINGS = re.compile(r"CONFIG|CREDENTIAL|CERT|CA_BUNDLE|CA_FILE|PASSFILE|NETRC|[A-Z]RC\Z")


async def confinement(
    ctx: ToolContext,
    paths: PathValidator,
    *,
    network: bool,
    sandbox: str | bool | None,
    readable: Sequence[Path] = (),
    home: Path | None = None,
) -> Confinement:
    """Returns the confinement: the workspace, the declared roots, `readable`, and the network or the hosts that rules
    open.
    """
    opened = await program_network(ctx, opened=network, sandbox=sandbox)
    found = confinement_of(ctx.scope, paths, also=readable, network=opened, home=home)
    return replace(found, sandbox="auto" if sandbox is None else sandbox)


def find_settings(env: Mapping[str, str], passthrough: Iterable[str], paths: PathValidator) -> dict[str, list[Path]]:
    """Returns the settings of programs that passed variables name: KUBECONFIG, GH_CONFIG_DIR, SSL_CERT_FILE, …

    The sandbox would hide these files and directories. A directory that holds the home directory or Forge's own
    settings stays hidden.
    """
    found: dict[str, list[Path]] = {}
    for name in passthrough:
        if not _NAMES_SETTINGS.search(name.upper()):
            continue
        named = [one for one in env.get(name, "").split(os.pathsep) if os.path.isabs(one)]
        shown = [Path(one) for one in named if _is_hidden_settings(os.path.realpath(one), paths)]
        if shown:
            found[name] = shown
    return found


def spell_settings(env: Mapping[str, str], settings: Mapping[str, Sequence[Path]]) -> dict[str, str]:
    """Returns these variables with real paths, since a sandbox shows the real files and not the links to them."""
    found = {}
    for name, paths in settings.items():
        real = {str(path): os.path.realpath(path) for path in paths}
        found[name] = os.pathsep.join(real.get(one, one) for one in env[name].split(os.pathsep))
    return found


def _is_hidden_settings(real: str, paths: PathValidator) -> bool:
    if paths.location_of(real) is not None or not (os.path.isfile(real) or os.path.isdir(real)):
        return False
    own = config_file("") or os.path.expanduser("~")
    kept = [os.path.realpath(one) for one in (os.path.expanduser("~"), str(own))]
    return not any(f"{one}/".startswith(f"{real.rstrip('/')}/") for one in kept)


# Explains failures that the sandbox caused, since the failed program cannot know it.

_MISSING = re.compile(
    r"no such file|not found|cannot (?:open|find|access)|can't (?:open|find|cd)|could not (?:open|find)|ENOENT"
    r"|permission denied|EACCES|does not exist|no module named|unable to (?:open|read)|failed to (?:open|read)",
    re.IGNORECASE,
)
_LOOKED_AT = 8_000  # characters at the end of what a program wrote

_UNREACHED = re.compile(
    r"could ?n.t resolve|could not resolve|name resolution|name or service not known|nodename nor servname"
    r"|network is unreachable|getaddrinfo|EAI_AGAIN|ENOTFOUND|dns error|failed to lookup address|no such host"
    r"|\(from versions: none\)",  # pip, when it is told to be quiet
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"connection refused|ECONNREFUSED|couldn't connect|failed to connect|can't connect", re.IGNORECASE
)
_HERE = re.compile(r"\blocalhost\b|\b127\.0\.0\.\d|\[?::1\b")
_CLIENT = re.compile(  # at the place of a command, not in its arguments
    r"(?:^|[;|&(`\n]|\$\()\s*(?:\w+=\S*\s+|(?:time|then|do|if|!)\s+)*(?:[^\s;|&]*/)?"
    r"(curl|wget|aria2c|https?|xh|ssh|scp|sftp|rsync|nc|ncat|netcat|telnet|ftp|ping|kubectl|gh)(?=\s)"
)
_UNREACHED_CODES = {"curl": (5, 6, 7), "wget": (4,)}  # exit codes for "no such host" and "no connection"
_NAMELESS = re.compile(r"^\*\*\* Please tell me who you are", re.MULTILINE)
_SETTINGS = re.compile(r"could not (?:write|lock) config file \S*\.git/config")

_NO_NETWORK = (
    "programs have no network in this sandbox; the person can open it with the rule `allow network`, or network: true"
    " in the tool's config"
)
_NO_SINGLE_HOSTS = "; rules about single hosts hold for programs only in bubblewrap"
_ONLY_PROXY = (
    "programs reach hosts only through a proxy here: by https_proxy and its kin, or with TLS on port 443; a client that"
    " can do neither, such as ssh or that of a database, does not get out"
)
_OWN_LOOPBACK = (
    "each command has its own network in this sandbox: a server can be reached only from the line that starts it, as"
    " in `server & sleep 1; client`, unless the person opens the network"
)
_OWN_LOOPBACK_ALONE = (
    "each program has its own network in this sandbox, so it cannot reach a server that another call started; use a"
    " tool that runs shell lines to start the server and the client in one line, or the person can open the network"
)
_NO_NAME = "name the author in the command: git -c user.name=… -c user.email=… commit"
_READ_ONLY = "Git's settings are read-only in this sandbox; give them for one command: git -c KEY=VALUE …"


def find_hints(
    output: str,
    sandbox: str,
    *,
    network: bool | NetworkProxy | None,
    line: str = "",
    exit_code: int | None = None,
    in_shell: bool = True,
) -> list[str]:
    """Returns hints to show after a failed program's output; usually none. `line`: the command.

    `in_shell`: False for a tool that starts one program, so that advice about command lines is of no use.
    """
    if sandbox == "none":
        return []
    end = output[-_LOOKED_AT:]
    found = []
    why = "" if network is True else _find_network_failure(end, line, exit_code)
    own_loopback = _OWN_LOOPBACK if in_shell else _OWN_LOOPBACK_ALONE
    if network and network is not True:  # every name leads to this loopback, where nothing but the proxy listens
        is_told = any(one.get("refused") for one in network.report())
        if (why or _REFUSED.search(end)) and not is_told:
            found.append(own_loopback if _HERE.search(line) else _ONLY_PROXY)
    elif why:
        no_network = _NO_NETWORK if sandbox == "bubblewrap" else _NO_NETWORK + _NO_SINGLE_HOSTS
        found.append(own_loopback if why == "loopback" and sandbox == "bubblewrap" else no_network)
    if _NAMELESS.search(end):
        found.append(_NO_NAME)
    if _SETTINGS.search(end):
        found.append(_READ_ONLY)
    return found


def explain_hidden(
    output: str, sandbox: str, confinement: Confinement, env: Mapping[str, str], directory: Path
) -> list[str]:
    """Returns a hint if a failed program could not find a path that the sandbox hides; usually none."""
    if sandbox == "none":
        return []
    lines = [line for line in output[-_LOOKED_AT:].splitlines() if _MISSING.search(line)]
    return [
        f'the sandbox hides "{path}", which is outside the workspace and its roots; the person can add its directory to'
        " workspace.roots in forge.yaml"
        for path in find_hidden(lines, confinement, env, directory)[:1]
    ]


def _find_network_failure(end: str, line: str, exit_code: int | None) -> str:
    """Returns `network` or `loopback`, which was not reached; "" if nothing points to it."""
    if _UNREACHED.search(end):
        return "network"
    clients = {found[1] for found in _CLIENT.finditer(line)}
    failed_silently = bool(clients) and not end.strip()  # as with `curl -s`
    failed_by_code = any(exit_code in _UNREACHED_CODES.get(client, ()) for client in clients)
    is_here = bool(_HERE.search(end) or _HERE.search(line))
    if failed_silently or failed_by_code or (is_here and _REFUSED.search(end)):
        return "loopback" if is_here else "network"
    return ""
