"""A workspace with skills in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forge.core.context import Scope
from forge.skills.catalog import Catalog

HEAD = "---\nname: {name}\ndescription: {description}\n{more}---\n{body}"


class Project:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.scope = Scope(session_id="s", workspace=root)

    def put(self, path: str, content: str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def skill(self, name: str, body: str = "Do it.\n", more: str = "", description: str = "Does it.") -> Path:
        text = HEAD.format(name=name, description=description, more=more, body=body)
        return self.put(f"skills/{name}/SKILL.md", text)

    def catalog(self, *paths: str, **options: Any) -> Catalog:
        return Catalog(paths or ("skills",), self.scope, **{"built_in": False, **options})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.delenv("AGENT_WORKSPACE_ROOT", raising=False)
    return Project(tmp_path)
