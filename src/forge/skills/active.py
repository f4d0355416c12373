"""Which skills are active, and what follows from it.

A skill that the model reads is active for its session only as far as that tightens: its guardrails and denied tools
hold from then on. What loosens (egress domains, groups of tools, its own scripts as tools, variables for them) holds
only for skills that a person names in `forge.yaml: skills.active`. Where something that such a skill requires is
missing, it brings nothing, and what it denies stays denied all the same.
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
from forge.process.scripts.settings import ScriptSettings
from forge.skills.catalog import Catalog, Problem
from forge.skills.guardrails import Guardrails
from forge.skills.script_tool import skill_tools
from forge.skills.skill import Skill
from forge.workspace.state.store import Store

MOST_SESSIONS = 1_000  # whose rules are kept at hand

log = logging.getLogger(__name__)


class ActiveSkills:
    """Of a project. `path` is its store, where it is kept which skills a session read; without one, in memory.

    Raises `ToolError` for a name in `names` that no skill has.
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
        self.problems: list[Problem] = []
        self._always = (guardrails or Guardrails()).joined(*(skill.guardrails for skill in self.named))
        self._path = path
        self._rules: OrderedDict[str, Guardrails | None] = OrderedDict()
        self._read: dict[str, set[str]] = {}  # session -> names, where the store cannot be used
        self._lock = threading.RLock()

    @property
    def skills(self) -> list[Skill]:
        """Those that a person named and that can be used here."""
        return [skill for skill in self.named if not skill.missing]

    @property
    def inactive(self) -> dict[str, tuple[str, ...]]:
        """Those that a person named and that lack something."""
        return {skill.name: skill.missing for skill in self.named if skill.missing}

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(group for skill in self.skills for group in skill.front.groups))

    @property
    def egress_domains(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(domain for skill in self.skills for domain in skill.front.egress_domains))

    @property
    def environment(self) -> tuple[str, ...]:
        """The variables that their scripts see: secrets, as like as not."""
        return tuple(dict.fromkeys(name for skill in self.skills for name in skill.environment))

    def tools(self, settings: ScriptSettings | None = None, taken: Collection[str] = ()) -> list[Tool]:
        """Their scripts as tools; what is wrong with some is in `problems`."""
        made: list[Tool] = []
        self.problems = []
        for skill in self.skills:
            tools, problems = skill_tools(skill, settings, {*taken, *(tool.spec.name for tool in made)})
            made += tools
            self.problems += problems
        return made

    def rules(self, session_id: str) -> Guardrails | None:
        """What is denied in this session; None if nothing is. Raises `ToolError` where that cannot be known now."""
        with self._lock:
            if session_id not in self._rules:
                self._rules[session_id] = self._gathered(session_id)
                if len(self._rules) > MOST_SESSIONS:
                    self._rules.popitem(last=False)
            return self._rules[session_id]

    def read(self, skill: Skill, session_id: str) -> None:
        """The model read it: what it denies is denied from now on."""
        if not skill.guardrails:
            return
        with self._lock:
            self._read.setdefault(session_id, set()).add(skill.name)
            self._rules.pop(session_id, None)
            try:
                self._store.add(session_id, skill.name)
            except ToolError as error:  # it holds while this process lives
                log.warning("that the skill %s was read could not be kept: %s", skill.name, error)

    def forget(self, session_id: str = "") -> None:
        """A session begins anew; without one, all do."""
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
                log.warning("that skills were read could not be forgotten: %s", error)

    def _gathered(self, session_id: str) -> Guardrails | None:
        names = set(self._read.get(session_id, ()))
        try:
            if self._path is None or self._path.exists():
                names |= self._store.names(session_id)
        except ToolError as error:
            if error.kind is not ErrorKind.CONFIG:  # busy or damaged: not taken for "none was read"
                raise
            log.warning("which skills were read could not be found out: %s", error)
        known = self.catalog.skills if names else {}
        found = self._always.joined(*(known[name].guardrails for name in sorted(names) if name in known))
        return found or None

    @cached_property
    def _store(self) -> ReadSkills:
        from forge.workspace.state import state_directory
        from forge.workspace.state.ownership import is_foreign

        if self._path is None or is_foreign(self._path.parent):
            return ReadSkills(None)
        state_directory(self._path.parent.parent)  # made when there is something to keep
        return ReadSkills(self._path)


class ReadSkills:
    """In the project's store, or in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._store = Store(path, "skills", [_tables])

    def add(self, session_id: str, name: str) -> None:
        with self._store.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO read_skills VALUES (?, ?)", (session_id, name))

    def names(self, session_id: str) -> set[str]:
        with self._store.reading() as connection:
            found = connection.execute("SELECT name FROM read_skills WHERE session = ?", (session_id,)).fetchall()
        return {name for (name,) in found}

    def forget(self, session_id: str) -> None:
        """All of a session; of every session, where none is named."""
        with self._store.writing() as connection:
            connection.execute("DELETE FROM read_skills WHERE ? IN ('', session)", (session_id,))


def _tables(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE read_skills (session TEXT, name TEXT, PRIMARY KEY (session, name)) WITHOUT ROWID")
