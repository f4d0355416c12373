"""The fixtures of `forge.testing` for pytest. Forge is imported only when a test uses one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from forge.core.execution.chain import Step
    from forge.models.scripted import Scripted
    from forge.testing.clock import Clock
    from forge.testing.person import Person
    from forge.testing.serving import ToolServer
    from forge.testing.workbench import Bench, Project

_CHECKS = pytest.StashKey[list[Callable[[], None]]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a passed test with unused turns of a script or unused answers of a person."""
    yield
    for check in item.stash.get(_CHECKS, ()):
        check()


@pytest.fixture
def forge_project(tmp_path: Path) -> Project:
    """An empty project: `forge_project.write({"forge.yaml": {…}})`, `.forge("tool", "list")`, `.bench(tool)`."""
    from forge.testing.workbench import Project

    return Project(tmp_path / "project", home=tmp_path / "home")


@pytest.fixture
def forge_model(request: pytest.FixtureRequest) -> Callable[..., Scripted]:
    """Makes a scripted model: `forge_model(calls("add", a=1), says("Done."))`. Unused turns fail the test."""
    from forge.models.scripted import Scripted

    def make(*turns: Any) -> Scripted:
        model = Scripted(*turns)
        _check_at_end(request, model.check)
        return model

    return make


@pytest.fixture
def forge_person(request: pytest.FixtureRequest) -> Callable[..., Person]:
    """Makes a person to ask: `forge_person("yes", "no")`. A question too many or too few fails the test."""
    from forge.testing.person import Person

    def make(*answers: Any, **settings: Any) -> Person:
        person = Person(*answers, **settings)
        _check_at_end(request, person.check)
        return person

    return make


@pytest.fixture
def forge_clock() -> Clock:
    """A clock that only the test moves; it stands at noon on the first of January 2026, UTC."""
    from forge.testing.clock import Clock

    return Clock()


@pytest.fixture
def forge_no_real_requests() -> Iterator[None]:
    """Lets no model be asked but scripted ones. In pytest.ini: `usefixtures = forge_no_real_requests`."""
    from forge.testing.every_tool import no_real_requests

    with no_real_requests():
        yield


@pytest.fixture
def forge_bench(forge_project: Project) -> Callable[..., Bench]:
    """Puts tools on a bench in the project: `forge_bench(add).text("add", a=1, b=2)`."""
    return forge_project.bench


@pytest.fixture
def forge_mcp(tmp_path: Path) -> Iterator[Callable[..., ToolServer]]:
    """Starts an MCP server for the test: `forge_mcp(add, over="http").source()`."""
    from forge.testing.serving import mcp_server

    with ExitStack() as stack:
        yield lambda *tools, **settings: stack.enter_context(mcp_server(*tools, **{"workspace": tmp_path, **settings}))


@pytest.fixture
def forge_tape(request: pytest.FixtureRequest) -> Step:
    """A step that answers calls from `tapes/FILE.TEST.ndjson` beside the test, made at the first run."""
    from forge.testing.workbench import tape

    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in request.node.name)
    return tape(request.path.parent / "tapes" / f"{request.path.stem}.{name}.ndjson")


def _check_at_end(request: pytest.FixtureRequest, check: Callable[[], None]) -> None:
    request.node.stash.setdefault(_CHECKS, []).append(check)
