"""Reads the YAML at the beginning of a skill's file, with bounds, and checks it key by key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from forge.core.arguments.checks import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.yaml.bounded_yaml import LARGEST, Unreadable, bounded_yaml, safe_loader
from forge.skills.guardrails import Guardrails

PUBLISHED = ("name", "description", "license", "compatibility", "allowed-tools", "metadata", "version", "tags")
OWN = ("requires", "egress_domains", "denied_tools", "guardrails", "timeout_hint", "groups", "tools")
LONGEST_DESCRIPTION = 1_024  # characters
LONGEST_TEXT = 500
LONGEST_WORDS = 10_000  # characters of a list written as words: splitting takes quadratic time
MOST = 200  # entries of a list
MAX_TIMEOUT = 3_600.0  # seconds

_BLOCK = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)(?:^---[ \t]*\r?$|^\.\.\.[ \t]*\r?$)\n?", re.DOTALL | re.MULTILINE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")


class Requires(NamedTuple):
    """The programs and environment variables that a skill requires."""

    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()  # all of these
    one_of: tuple[str, ...] = ()  # one of these
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """The front matter of a skill."""

    name: str = ""
    description: str = ""
    version: str = ""
    license: str = ""
    compatibility: str = ""
    tags: tuple[str, ...] = ()
    allowed_tools: tuple[str, ...] = ()  # shown to people; a skill cannot permit anything
    metadata: Mapping[str, Any] = field(default_factory=dict)
    requires: Requires = field(default_factory=Requires)
    egress_domains: tuple[str, ...] = ()
    denied_tools: tuple[str, ...] = ()
    guardrails: Guardrails = field(default_factory=Guardrails)
    timeout_hint: float | None = None
    groups: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def split_front_matter(text: str) -> tuple[str | None, str]:
    """Splits a file into its front matter (None if there is none) and its body."""
    found = _BLOCK.match(text)
    return (None, text) if found is None else (found[1], text[found.end() :])


def read_front_matter(text: str, where: str) -> FrontMatter:
    """Parses front matter. Raises `ToolError` of kind `config_error`, with the file and the key."""
    if len(text) > LARGEST:
        raise _config_error(where, f"its front matter is larger than {LARGEST // 1024} KiB", "Move text into the body.")
    try:
        document = bounded_yaml(text, where, lambda yaml, source: yaml.load(source, Loader=safe_loader()))
    except Unreadable as error:
        raise _config_error(error.place, error.problem, error.advice) from None
    if not isinstance(document, dict):
        raise _config_error(where, "its front matter is not a mapping", "Write name: … and description: …")
    return _FrontMatterReader(where).read_document(document)


def one_line(text: object, limit: int = LONGEST_TEXT) -> str:
    """Cleans foreign text for use in a sentence: no line breaks, no invisible characters, bounded."""
    shown = " ".join(_UNSEEN.sub(" ", str(text)[: limit * 4]).split())
    return shown if len(shown) <= limit else f"{shown[: limit - 1].rstrip()}…"


class _FrontMatterReader:
    def __init__(self, where: str) -> None:
        self.where = where
        self.notes: list[str] = []

    def read_document(self, document: dict[Any, Any]) -> FrontMatter:
        top = {str(key): value for key, value in document.items()}
        if unknown := [key for key in top if key not in PUBLISHED and key != "allowed_tools"]:
            self.notes.append(f"keys that Forge ignores: {one_line(', '.join(unknown), 200)}")
        metadata = top.get("metadata")
        if metadata is not None and not isinstance(metadata, dict):
            self.notes.append("metadata is not a mapping, so it is ignored")
            metadata = None
        own = (metadata or {}).get("forge")
        description = one_line(top.get("description") or "", 10 * LONGEST_DESCRIPTION)
        if len(description) > LONGEST_DESCRIPTION:
            self.notes.append(f"its description has more than {LONGEST_DESCRIPTION:,} characters, so it is cut")
        return FrontMatter(
            name=one_line(top.get("name") or "", 100),
            description=one_line(description, LONGEST_DESCRIPTION),
            version=one_line(top.get("version") or (metadata or {}).get("version") or "", 60),
            license=one_line(top.get("license") or "", 200),
            compatibility=one_line(top.get("compatibility") or ""),
            tags=self.read_loose_list(top.get("tags")),
            allowed_tools=self.read_loose_list(top.get("allowed-tools", top.get("allowed_tools"))),
            metadata=metadata or {},
            **self.read_own_keys(own, "metadata.forge"),
            notes=tuple(self.notes),
        )

    def read_own_keys(self, value: Any, key_path: str) -> dict[str, Any]:
        """Reads Forge's own keys. Mistakes in them are errors, since an unread limit would not hold."""
        if value is None:
            return {}
        said = self.read_mapping(value, key_path)
        for key in said:
            if key not in OWN:
                if hint := near(key, OWN, 1):
                    raise self.error(f"{key_path}.{key}", "there is no such key", f"Did you mean {hint[0]!r}?")
                self.notes.append(f"{key_path}.{one_line(key, 60)} is ignored: Forge does not know this key")
        return {
            "requires": self.read_requires(said.get("requires"), f"{key_path}.requires"),
            "egress_domains": self.read_texts(said.get("egress_domains"), f"{key_path}.egress_domains"),
            "denied_tools": self.read_texts(said.get("denied_tools"), f"{key_path}.denied_tools"),
            "guardrails": Guardrails.of(said.get("guardrails"), f"{self.where}: {key_path}.guardrails"),
            "timeout_hint": self.read_seconds(said.get("timeout_hint"), f"{key_path}.timeout_hint"),
            "groups": (
                *self.read_texts(said.get("groups"), f"{key_path}.groups"),
                *self.read_texts(said.get("tools"), f"{key_path}.tools"),
            ),
        }

    def read_requires(self, value: Any, key_path: str) -> Requires:
        if value is None:
            return Requires()
        said = self.read_mapping(value, key_path, ("bins", "env"))
        env = said.get("env")
        named = self.read_mapping(
            {"required": env} if env is None or isinstance(env, list | str) else env,
            f"{key_path}.env",
            ("required", "one_of", "optional"),
        )
        required, one_of, optional = (
            self.read_variables(named.get(key), f"{key_path}.env.{key}") for key in ("required", "one_of", "optional")
        )
        bins = self.read_texts(said.get("bins"), f"{key_path}.bins")
        if odd := next((one for one in bins if "/" in one or one.startswith("-")), None):
            raise self.error(
                f"{key_path}.bins", f"{one_line(odd, 60)!r} is not the name of a program", "Write [git, jq]."
            )
        return Requires(bins, required, one_of, optional)

    def read_mapping(self, value: Any, key_path: str, keys: Iterable[str] = ()) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(key_path, "expected a mapping", "Fix the file.")
        known = list(keys)
        for key in value:
            if known and key not in known:
                raise self.error(f"{key_path}.{one_line(key, 60)}", "there is no such key", f"Use {', '.join(known)}.")
        return {str(key): one for key, one in value.items()}

    def read_variables(self, value: Any, key_path: str) -> tuple[str, ...]:
        named = self.read_texts(value, key_path)
        if any(not _VARIABLE.fullmatch(name) for name in named):  # not repeated: it may be the secret itself
            raise self.error(key_path, "expected names of environment variables", "Write [GITHUB_TOKEN].")
        return named

    def read_texts(self, value: Any, key_path: str) -> tuple[str, ...]:
        if value is None:
            return ()
        listed = [value] if isinstance(value, str) else value
        is_list = isinstance(listed, list) and len(listed) <= MOST
        if not is_list or not all(isinstance(one, str) and one.strip() and one.isprintable() for one in listed):
            raise self.error(key_path, "expected a list of strings", "Write [a, b].")
        return tuple(one.strip() for one in listed)

    def read_seconds(self, value: Any, key_path: str) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_TIMEOUT:
            raise self.error(key_path, f"expected seconds, from 1 to {MAX_TIMEOUT:g}", "Write a number such as 300.")
        return float(value)

    def read_loose_list(self, value: Any) -> tuple[str, ...]:
        """Reads a list, or words separated by commas or blanks, as other systems write them."""
        words = re.split(r",\s*|\s+(?![^(]*\))", value[:LONGEST_WORDS]) if isinstance(value, str) else value
        if not isinstance(words, list):
            return ()
        return tuple(one_line(word, 100) for word in words[:MOST] if str(word).strip())

    def error(self, key_path: str, problem: str, advice: str) -> ToolError:
        return _config_error(f"{self.where}: {key_path}", problem, advice)


def _config_error(where: str, problem: str, advice: str) -> ToolError:
    return ToolError(f"{where}: {problem}", ErrorKind.CONFIG, advice)
