"""Files of the page: ours alone, of types we know."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from forge.console import server


@pytest.fixture
def client(tmp_path, monkeypatch) -> httpx2.AsyncClient:
    static = tmp_path / "static"
    (static / "js").mkdir(parents=True)
    (static / "index.html").write_text("<!doctype html>")
    (static / "js" / "a.js").write_text("export {};")
    (static / "notes.md").write_text("secret")
    (static / ".hidden.js").write_text("secret")
    (tmp_path / "secret.js").write_text("secret")
    (static / "link.js").symlink_to(tmp_path / "secret.js")
    monkeypatch.setattr(server, "STATIC", static)
    routes = [Route("/", server._index), Route("/static/{path:path}", server._static)]
    app = Starlette(routes=routes, exception_handlers={HTTPException: server._not_found})
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://x")


@pytest.mark.parametrize(
    ("path", "kind"), [("/", "text/html; charset=utf-8"), ("/static/js/a.js", "text/javascript; charset=utf-8")]
)
async def test_files_have_their_types(client, path, kind):
    found = await client.get(path)
    assert (found.status_code, found.headers["content-type"]) == (200, kind)


@pytest.mark.parametrize(
    "path",
    ["../secret.js", "%2e%2e/secret.js", "..%2fsecret.js", "js/../../secret.js", "js/%2e%2e/%2e%2e/secret.js",
     "link.js", "notes.md", ".hidden.js", "//etc/passwd", "%2fetc%2fpasswd", "js\\..\\..\\secret.js", "a%00.js",
     "js", "js/", "", "nope.js", f"{'x' * 3_000}.js"],
)  # fmt: skip
async def test_nothing_else_is_served(client, path):
    found = await client.get(f"/static/{path}")
    assert found.status_code == 404
    assert "secret" not in found.text


def test_no_script_imports_one_that_imports_it():
    named = re.compile(r'^import .*?"([^"]+)";', re.M | re.S)
    imports = {
        path: {(path.parent / name).resolve() for name in named.findall(path.read_text())}
        for path in (server.STATIC / "js").rglob("*.js")
    }
    order = list(TopologicalSorter(imports).static_order())  # raises CycleError
    assert sorted(order) == sorted(imports), "an import names a file that is not there"
    assert len(order) > 30
