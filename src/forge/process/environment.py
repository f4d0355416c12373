"""Builds the environment of programs: only the variables they need, so that secrets stay here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

_SHELL = ("PATH", "HOME", "LANG", "USER", "TMPDIR", "VIRTUAL_ENV")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
_NON_INTERACTIVE = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
}
"""Prevents prompts, pagers, editors and colours."""


_NO_SETTINGS = {
    **dict.fromkeys(
        (
            *("GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME", "HGRCPATH", "NPM_CONFIG_USERCONFIG", "PIP_CONFIG_FILE"),
            *("PSQLRC", "WGETRC", "AWS_CONFIG_FILE", "KUBECONFIG"),
        ),
        os.devnull,
    ),
    "PYTHONNOUSERSITE": "1",
}
"""Stops programs from reading an untrusted home directory's settings, which could name programs."""


def shell_environment(passthrough: Iterable[str] = (), environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of command lines: paths, language, non-interactive settings, and the project's
    passthrough.
    """
    language = [name for name in environment if name.startswith("LC_")]
    selected = _select_variables([*_SHELL, *language], environment)
    return {"PATH": os.defpath, **selected, **_NON_INTERACTIVE, **_select_variables(passthrough, environment)}


def reading_environment(roots: Iterable[Path], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of read-only command lines: it names no program, and PATH has no folder inside the
    `roots`.
    """
    real = [os.path.realpath(root) for root in roots]
    outside = [
        folder
        for folder in environment.get("PATH", os.defpath).split(os.pathsep)
        if os.path.isabs(folder) and not any(_is_inside(folder, root) for root in real)
    ]
    language = [name for name in environment if name.startswith("LC_")]
    selected = _select_variables(["LANG", "USER", *language], environment)
    fixed = {"PATH": os.pathsep.join(outside) or os.defpath, "HOME": os.devnull, "GIT_CONFIG_GLOBAL": os.devnull}
    return {**selected, **_NON_INTERACTIVE, **GIT_OVERRIDES, **fixed}


def command_environment(
    workspace: Path, passthrough: Iterable[str] = (), environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Returns the environment of single commands: PATH, LANG, the workspace as home, proxies, and the project's
    passthrough.

    Settings in that home that could name programs are not read.
    """
    proxies = [spelling for name in _PROXIES for spelling in (name, name.lower())]
    selected = _select_variables(["PATH", "LANG", *proxies, "OPENAI_ORG_ID"], environment)
    return {
        **_NO_SETTINGS,
        "PATH": os.defpath,
        **selected,
        **_select_variables(passthrough, environment),
        "HOME": str(workspace),
    }


def _is_inside(folder: str, root: str) -> bool:
    spellings = (os.path.normpath(folder), os.path.realpath(folder))
    return any(one == root or one.startswith(f"{root.rstrip('/')}/") for one in spellings)


def _select_variables(names: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in names if name in environment}


SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "core.fsmonitor": "false",
        "core.hooksPath": "/dev/null",
        "core.pager": "cat",
        "core.editor": "false",
        "core.sshCommand": "false",
        "core.gitProxy": "false",
        "core.askPass": "false",
        "core.alternateRefsCommand": "false",
        "credential.helper": "",
        "gpg.program": "false",
        "gpg.ssh.program": "false",
        "gpg.x509.program": "false",
        "log.showSignature": "false",
        "protocol.allow": "never",
        "safe.bareRepository": "explicit",
        "status.submoduleSummary": "false",
        "diff.submodule": "short",
        "maintenance.auto": "false",
        "gc.auto": "0",
    }
)


def _git_environment() -> dict[str, str]:
    numbered: dict[str, str] = {}
    for number, (key, value) in enumerate(SETTINGS.items()):
        numbered |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {
        "GIT_CONFIG_COUNT": str(len(SETTINGS)),
        **numbered,
        # Git removes the numbered variables when it runs itself in a submodule, and passes this one on.
        "GIT_CONFIG_PARAMETERS": " ".join(f"'{key}={value}'" for key, value in SETTINGS.items()),
        "GIT_PAGER": "cat",
        "PAGER": "cat",
        "GIT_EDITOR": "false",
        "GIT_SEQUENCE_EDITOR": "false",
        "GIT_ASKPASS": "false",
        "SSH_ASKPASS": "false",
        "GIT_SSH_COMMAND": "false",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",  # no hook runs for an index that is written
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
    }


GIT_OVERRIDES: Mapping[str, str] = MappingProxyType(_git_environment())
"""The environment variables that apply `SETTINGS`, without pager, editor, questions and network."""


# Finds programs that may be started without asking: never one that the model could have put there.


def find_trusted_program(name: str, writable: Iterable[Path] = ()) -> str | None:
    """Returns the program beside this Python, or else the first one on PATH outside the `writable` roots."""
    roots = [Path(os.path.realpath(root)).parts for root in writable]
    for folder, ours in _folders():
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK) and (ours or not _is_inside_any(roots, folder, path)):
            return path
    return None


def find_packaged_program(name: str, writable: Iterable[Path] = ()) -> str | None:
    """Returns the program that an installed Python package brought, or else a trusted one.

    In a virtual environment a package's programs are beside this Python; elsewhere they have directories of their own.
    """
    if sys.prefix == sys.base_prefix:
        roots = [Path(os.path.realpath(root)).parts for root in writable]
        for folder in _script_folders():
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.access(path, os.X_OK) and not _is_inside_any(roots, folder, path):
                return path
    return find_trusted_program(name, writable)


def _script_folders() -> Iterator[str]:
    import sysconfig  # slow to load, and rarely needed

    yield sysconfig.get_path("scripts")
    yield sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))


def _folders() -> Iterator[tuple[str, bool]]:
    if sys.executable:
        yield os.path.dirname(sys.executable), True  # who can write there controls this process anyway
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(folder):
            yield folder, False


def _is_inside_any(roots: list[tuple[str, ...]], *paths: str) -> bool:
    """Returns whether one of the paths, as written or resolved, lies in one of the roots."""
    spellings = [Path(one).parts for path in paths for one in (os.path.normpath(path), os.path.realpath(path))]
    return any(parts[: len(root)] == root for parts in spellings for root in roots)
