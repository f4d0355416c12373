"""The same project gives the same bytes, whoever builds it and wherever."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forge
from forge.project.build.record import to_bytes
from forge.project.read_yaml import read_yaml
from tests import programs

WORK = """
import os, sys
from pathlib import Path
os.umask(int(sys.argv[2], 8))
from forge.project.build.record import BuildOrder
from forge.project.build.stages import build
root = Path(sys.argv[1])
print(build(BuildOrder(str(root / "forge.yaml"), root, root / ".forge-output", prod=True)).sha256)
"""


@pytest.mark.slow
def test_another_path_umask_environment_and_user_give_the_same_bytes(
    new_project: Callable[[str], Any], tmp_path: Path
) -> None:
    one, other = new_project("one"), new_project("some/where/else/with a space")
    config = tmp_path / "someone" / "forge"
    config.mkdir(parents=True)
    (config / "config.yaml").write_text("agent: {model: 'openai:other'}\nsandbox: required\nsecrets: [SHELL]\n")
    (config / "config.yaml").chmod(0o600)
    changes = {
        "XDG_CONFIG_HOME": str(tmp_path / "someone"),
        "FORGE_MODEL": "anthropic:another",
        "FORGE_TURNS": "3",
        "LANG": "tr_TR.UTF-8",
        "TZ": "Asia/Tokyo",
        "PYTHONHASHSEED": "7",
        "ANTHROPIC_API_KEY": "k" * 40,
    }
    one.says("tools")
    other.says("tools")
    assert work(one, "077", {"PYTHONHASHSEED": "1"}) == work(other, "000", changes)
    assert one.bytes() == other.bytes()
    assert str(tmp_path).encode() not in b"".join(other.bytes().values())
    assert {path.stat().st_mode & 0o022 for path in other.output.rglob("*")} == {0}


def test_something_else_in_the_project_gives_other_bytes(project: Any) -> None:
    before = project.make().sha256
    project.write("tools/loud.py", "def loud(text):\n    return text.upper() + '!'\n")
    assert project.make().sha256 != before


def test_a_second_build_of_the_same_changes_nothing(project: Any) -> None:
    first = project.make()
    before = project.bytes()
    assert project.make().sha256 == first.sha256
    assert project.bytes() == before


@pytest.mark.parametrize(
    "value", [1e-7, 1e16, -2.5e-300, 0.1, 10**20, "1e5", "off", "\x85\u2028\ufeff\x00", None, [[]]]
)
def test_every_value_is_read_again_as_what_it_was(value: Any, tmp_path: Path) -> None:
    document = {"a": [value, {"b": value}]}
    (tmp_path / "x.json").write_bytes(to_bytes(document))
    assert read_yaml(str(tmp_path / "x.json")) == document
    assert json.loads(to_bytes(document)) == document


def test_small_prices_are_built(project: Any) -> None:
    project.says(limits={"cost": 1, "price": {"input": 0.0000001, "output": 0.5}})
    project.make()


def work(project: Any, umask: str, changes: dict[str, str]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(forge.__file__).parents[1]), **changes}
    done = programs.run(
        [sys.executable, "-c", WORK, str(project.root), umask], env=environment, capture_output=True, timeout=150
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()
