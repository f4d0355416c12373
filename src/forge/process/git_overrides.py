"""Settings that make Git start no program but itself: the environment of a line that only reads.

They win over those of the person, the system and the repository. What they cannot cover has a name of its own (filters,
text converters) or no value that means "none" (`diff.external`): `forge.permissions.read_only_git` looks for those.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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


def _environment() -> dict[str, str]:
    numbered: dict[str, str] = {}
    for number, (key, value) in enumerate(SETTINGS.items()):
        numbered |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {
        "GIT_CONFIG_COUNT": str(len(SETTINGS)),
        **numbered,
        # Git takes the numbered ones away when it runs itself in a submodule, and hands this one on.
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


GIT_OVERRIDES: Mapping[str, str] = MappingProxyType(_environment())
"""The environment variables that apply `SETTINGS`, without pager, editor, questions and network."""
