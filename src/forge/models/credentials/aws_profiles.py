"""Reads AWS profiles from `~/.aws/config` and `~/.aws/credentials`."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path

from forge.core.errors import ErrorKind
from forge.core.provider import ProviderError
from forge.core.yaml.bounded_yaml import Unreadable, bounded_text

ADVICE = "Run `aws configure` or `aws sso login`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."


class AwsProfiles:
    """The settings of all profiles, those of both files together."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Raises `ProviderError` for a file that cannot be read."""
        home = Path(environment.get("HOME") or os.path.expanduser("~"), ".aws")
        self.folder = home
        self.name = (environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default").strip()
        self._config = _read(environment.get("AWS_CONFIG_FILE") or home / "config")
        self._keys = _read(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials")
        self._is_named = bool(environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE"))

    def settings(self, name: str) -> dict[str, str]:
        """Returns the settings of a profile. Raises `ProviderError` if a profile that was named does not exist."""
        section = "default" if name == "default" else f"profile {name}"
        if section not in self._config and name not in self._keys and (self._is_named or name != "default"):
            known = sorted({one.removeprefix("profile ") for one in (*self._config, *self._keys)})
            way = f"The profiles are {', '.join(known[:20])}." if known else ADVICE
            raise ProviderError(f"choosing AWS credentials: there is no profile {name[:60]!r}", ErrorKind.CONFIG, way)
        return {**self._config.get(section, {}), **self._keys.get(name, {})}

    def session(self, name: str) -> dict[str, str]:
        """Returns the settings of a single sign-on session."""
        return self._config.get(f"sso-session {name}", {})


def _read(path: str | Path) -> dict[str, dict[str, str]]:
    path = Path(path).expanduser()
    if not path.exists():
        return {}
    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        parser.read_string(bounded_text(path, 1024 * 1024), str(path))
    except (Unreadable, configparser.Error) as error:
        problem = (
            error.problem if isinstance(error, Unreadable) else f"it is no file of profiles ({type(error).__name__})"
        )
        raise ProviderError(f"reading AWS profiles in {path}: {problem}", ErrorKind.CONFIG, "Fix the file.") from None
    return {name: dict(parser.items(name)) for name in parser.sections()}
