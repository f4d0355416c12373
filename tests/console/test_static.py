"""Files of the page: ours alone, of types we know, joined, packed and kept."""

from __future__ import annotations

import gzip
import re
from graphlib import TopologicalSorter

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from forge.console import page_files, server
from forge.console.page_files import join_modules, join_page
from tests.console.conftest import running_console


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
    monkeypatch.setattr(page_files, "STATIC", static)
    routes = [Route("/", page_files.show_index), Route("/static/{path:path}", page_files.show_file)]
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
        for path in (page_files.STATIC / "js").rglob("*.js")
    }
    order = list(TopologicalSorter(imports).static_order())  # raises CycleError
    assert sorted(order) == sorted(imports), "an import names a file that is not there"
    assert len(order) > 30


async def test_the_page_is_one_script_and_one_style_sheet_which_are_packed_and_kept(tmp_path):
    async with running_console(tmp_path, works=False) as console:
        page = await console.client.get("/")
        named = re.findall(r'(?:src|href)="(/static/console-[0-9a-f]{16}\.(?:js|css))"', page.text)
        assert len(named) == 2
        assert page.text.count("/static/") == 3, "and the icon"
        for path in named:
            found = await console.client.get(path)
            assert (found.status_code, found.headers["content-encoding"]) == (200, "gzip")
            assert found.headers["cache-control"] == "private, max-age=31536000, immutable"
            assert "script-src 'self';" in found.headers["content-security-policy"]
            whole = await console.client.get(path, headers={"accept-encoding": "gzip;q=0, identity"})
            assert ("content-encoding" in whole.headers, whole.content) == (False, found.content)
            assert len(gzip.compress(whole.content)) < len(whole.content) / 3
        assert (await console.client.get(named[0].replace("console-", "console-0"))).status_code == 404

        assert page.headers["cache-control"] == "no-cache"
        known = {"if-none-match": page.headers["etag"]}
        same = await console.client.get("/", headers=known)
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", page.headers["etag"])
        other = await console.client.get("/static/js/dom.js", headers=known)
        assert (other.status_code, other.headers["cache-control"]) == (200, "no-cache")

        assert (await console.client.get("/?modules")).text.count('src="/static/js/main.js"') == 1


async def test_long_answers_are_packed_and_short_ones_are_not(tmp_path):
    async with running_console(tmp_path, works=False) as console:
        assert (await console.client.get("/api/tools")).headers["content-encoding"] == "gzip"
        plain = await console.client.get("/api/tools", headers={"accept-encoding": "identity"})
        assert ("content-encoding" in plain.headers, plain.json()["tools"] != []) == (False, True)
        assert "content-encoding" not in (await console.client.get("/api/overview")).headers
        assert "content-encoding" not in (await console.client.get("/api/nothing")).headers


def test_the_same_sources_give_the_same_script():
    join_page.cache_clear()
    first = join_page(page_files.STATIC).files
    join_page.cache_clear()
    assert join_page(page_files.STATIC).files == first


@pytest.mark.parametrize(
    "odd",
    ['import all from "./b.js";', 'import * as b from "./b.js";', 'import "./b.js";', "export default 1;",
     "export { b };", 'export * from "./b.js";', "export let b = 1;"],
)  # fmt: skip
def test_what_the_joiner_does_not_understand_is_refused(tmp_path, odd):
    (tmp_path / "b.js").write_text("export const b = 1;\n")
    (tmp_path / "a.js").write_text(f"{odd}\n")
    with pytest.raises(ValueError, match=r"a\.js cannot be joined"):
        join_modules(tmp_path, "a.js")


def test_a_module_stands_after_those_that_it_imports_from(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "a.js").write_text('import {\n    b,\n    c as d,\n} from "./parts/b.js";\nb(d);\n')
    (tmp_path / "parts" / "b.js").write_text('import { e } from "../e.js";\nexport async function b() {}\n'
                                             "export const c = e;\n")  # fmt: skip
    (tmp_path / "e.js").write_text("export class e {}\n")
    joined = join_modules(tmp_path, "a.js")
    assert re.findall(r"^const (\$\w+) = ", joined, re.M) == ["$e", "$parts_b", "$a"]
    assert "const { b, c: d, } = $parts_b;" in joined
    assert "return { b, c };" in joined
    (tmp_path / "e.js").write_text('import { b } from "./parts/b.js";\nexport class e {}\n')
    with pytest.raises(ValueError, match="it imports itself"):
        join_modules(tmp_path, "a.js")
