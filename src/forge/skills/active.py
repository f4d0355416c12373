"""Tracks the active skills of a project and of a session, and applies their tools and guardrails.

A skill that the model reads can only tighten its session: its guardrails and denied tools apply from then on. Only
skills that a person names in `forge.yaml: skills.active` can loosen anything (egress domains, groups of tools, their
own scripts as tools, variables for the scripts). If a requirement of such a skill is missing, the skill brings
nothing, but what it denies stays denied.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.core.tool import Tool
from forge.process.run_script import ScriptSettings
from forge.skills.catalog import Catalog, SkillProblem
from forge.skills.guardrails import Guardrails
from forge.skills.script_tool import skill_tools
from forge.skills.skill import Skill
from forge.workspace.state import is_foreign, state_directory
from forge.workspace.state.store import Store

MOST_SESSIONS = 1_000  # whose rules are cached

log = logging.getLogger(__name__)


class ActiveSkills:
    """The active skills of a project. Raises `ToolError` for a name in `names` that no skill has.

    Args:
        catalog: the skills that there are.
        names: the active ones.
        guardrails: further guardrails of the project.
        path: the store of the skills that each session read; None: in memory.

    Example:
        >>> ActiveSkills(Catalog(built_in=False)).skills
        []
    """

    def __init__(
        self,
        catalog: Catalog,
        names: Sequence[str] = (),
        guardrails: Guardrails | None = None,
        path: Path | None = None,
    ) -> None:
        self.catalog = catalog
        self.named: list[Skill] = [catalog.find(name) for name in dict.fromkeys(names)]
        self.problems: list[SkillProblem] = []
        self._always = (guardrails or Guardrails()).joined(*(skill.guardrails for skill in self.named))
        self._path = path
        self._rules: OrderedDict[str, Guardrails | None] = OrderedDict()
        self._read: dict[str, set[str]] = {}  # session -> names, also if the store is unavailable
        self._lock = threading.RLock()

    @property
    def skills(self) -> list[Skill]:
        """The skills that a person named and that are usable here."""
        return [skill for skill in self.named if not skill.missing]

    @property
    def inactive(self) -> dict[str, tuple[str, ...]]:
        """The skills that a person named and that lack a requirement."""
        return {skill.name: skill.missing for skill in self.named if skill.missing}

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(group for skill in self.skills for group in skill.front.groups))

    @property
    def egress_domains(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(domain for skill in self.skills for domain in skill.front.egress_domains))

    @property
    def environment(self) -> tuple[str, ...]:
        """The variables that the skills' scripts see; most are probably secrets."""
        return tuple(dict.fromkeys(name for skill in self.skills for name in skill.environment))

    def tools(self, settings: ScriptSettings | None = None, taken: Collection[str] = ()) -> list[Tool]:
        """Returns the skills' scripts as tools; `problems` lists the ones that cannot be used."""
        made: list[Tool] = []
        self.problems = []
        for skill in self.skills:
            tools, problems = skill_tools(skill, settings, {*taken, *(tool.spec.name for tool in made)})
            made += tools
            self.problems += problems
        return made

    def rules(self, session_id: str) -> Guardrails | None:
        """Returns the guardrails of a session; None if there are none. Raises `ToolError` if they are unknown now."""
        with self._lock:
            if session_id not in self._rules:
                self._rules[session_id] = self._gather_rules(session_id)
                if len(self._rules) > MOST_SESSIONS:
                    self._rules.popitem(last=False)
            return self._rules[session_id]

    def read(self, skill: Skill, session_id: str) -> None:
        """Records that the model read a skill: the skill's guardrails apply from now on."""
        if not skill.guardrails:
            return
        with self._lock:
            self._read.setdefault(session_id, set()).add(skill.name)
            self._rules.pop(session_id, None)
            try:
                self._store.add(session_id, skill.name)
            except ToolError as error:  # the rules apply while this process lives
                log.warning("the fact that the skill %s was read could not be stored: %s", skill.name, error)

    def forget(self, session_id: str = "") -> None:
        """Forgets the skills that a session read; without an id, those of all sessions."""
        with self._lock:
            for session in [session_id] if session_id else list(self._read):
                self._read.pop(session, None)
            if session_id:
                self._rules.pop(session_id, None)
            else:
                self._rules.clear()
            try:
                if self._path is None or self._path.exists():
                    self._store.forget(session_id)
            except ToolError as error:
                log.warning("the list of read skills could not be cleared: %s", error)

    def _gather_rules(self, session_id: str) -> Guardrails | None:
        names = set(self._read.get(session_id, ()))
        try:
            if self._path is None or self._path.exists():
                names |= self._store.names(session_id)
        except ToolError as error:
            if error.kind is not ErrorKind.CONFIG:  # busy or damaged: this does not mean that no skill was read
                raise
            log.warning("the list of read skills could not be loaded: %s", error)
        known = self.catalog.skills if names else {}
        found = self._always.joined(*(known[name].guardrails for name in sorted(names) if name in known))
        return found or None

    @cached_property
    def _store(self) -> ReadSkills:

        if self._path is None or is_foreign(self._path.parent):
            return ReadSkills(None)
        state_directory(self._path.parent.parent)  # created when there is something to store
        return ReadSkills(self._path)


class ReadSkills:
    """Stores the names of the skills that each session read, in the project's database or in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._store = Store(path, "skills", [_create_tables])

    def add(self, session_id: str, name: str) -> None:
        with self._store.write_transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO read_skills VALUES (?, ?)", (session_id, name))

    def names(self, session_id: str) -> set[str]:
        with self._store.read_transaction() as connection:
            found = connection.execute("SELECT name FROM read_skills WHERE session = ?", (session_id,)).fetchall()
        return {name for (name,) in found}

    def forget(self, session_id: str) -> None:
        """Deletes the names of a session; with "", those of all sessions."""
        with self._store.write_transaction() as connection:
            connection.execute("DELETE FROM read_skills WHERE ? IN ('', session)", (session_id,))


def _create_tables(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE read_skills (session TEXT, name TEXT, PRIMARY KEY (session, name)) WITHOUT ROWID")
