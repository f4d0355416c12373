"""Commands that fetch a package: what they fetch, and the same with an exact version."""

from __future__ import annotations

import pytest

from forge.core.errors import ToolError
from forge.mcp.programs.fetching import Package, is_fetching, pin_command, read_command


@pytest.mark.parametrize(
    ("line", "package", "program", "arguments", "pinned"),
    [
        ("uvx x", Package("x"), "", (), "uvx --from x==1 x"),
        ("uvx x@2.0 --a b", Package("x", "==2.0"), "", ("--a", "b"), "uvx --from x==1 x --a b"),
        ("uvx x@latest", Package("x"), "", (), "uvx --from x==1 x"),
        ("uvx --from x[cli]>=2 run-it", Package("x", ">=2", "[cli]"), "run-it", (), "uvx --from x[cli]==1 run-it"),
        ("uvx -q --with y x", Package("x"), "", (), "uvx --from x==1 --with y x"),
        ("uv tool run x z", Package("x"), "", ("z",), "uv tool run --from x==1 x z"),
        ("/usr/bin/uvx x", Package("x"), "", (), "uvx --from x==1 x"),
        ("pipx run --spec x==3 y", Package("x", "==3"), "y", (), "pipx run --spec x==1 y"),
        ("npx -y @s/n", Package("@s/n"), "", (), "npx -y @s/n@1"),
        ("npx @s/n@^2 /data", Package("@s/n", "^2"), "", ("/data",), "npx -y @s/n@1 /data"),
        ("npx --package=n run", Package("n"), "run", (), "npx -y -p n@1 run"),
        ("npm exec -y -- n -v", Package("n"), "", ("-v",), "npm exec -y n@1 -v"),
        ("bunx n", Package("n"), "", (), "bunx -y n@1"),
        ("pnpm dlx n@latest", Package("n", "latest"), "", (), "pnpm dlx -y n@1"),
    ],
)
def test_commands_are_read_and_pinned(line, package, program, arguments, pinned):
    command = line.split()
    assert is_fetching(command)
    found = read_command(command)
    assert (found.package, found.program, found.arguments) == (package, program, arguments)
    assert pin_command(found, "1", command) == pinned.split()


@pytest.mark.parametrize("line", ["python server.py", "uv run server.py", "npm start", "node x.js", "./uvx-like x"])
def test_other_commands_fetch_nothing(line):
    assert not is_fetching(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "uvx",
        "uvx --from",
        "uvx --from git+https://example.com/x y",
        "uvx ./folder",
        "npx github:a/b",
        "npx https://example.com/x.tgz",
        "npx --call 'rm x'",
        "npx -p n ../../x",
        "uvx --index-url https://example.com x",
    ],
)
def test_what_cannot_be_pinned_is_refused(line):
    with pytest.raises(ToolError) as caught:
        read_command(line.split())
    assert caught.value.suggestion
