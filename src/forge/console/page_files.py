"""The files of the page: the sources are many small ones, and a browser is given one script and one style sheet.

The scripts are plain ES modules, and nothing has to be built: the server joins them when the page is first asked for.
`/?modules` is the page with the modules as they are, for whoever changes them.
"""

from __future__ import annotations

import gzip
import posixpath
import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
ASK_AGAIN = "no-cache"  # a browser keeps it, and asks whether it is still the same
FOR_EVER = "private, max-age=31536000, immutable"  # its name says what is in it
LEAST = 1_000  # bytes that are worth packing

_STYLES = re.compile(r'<link rel="stylesheet" href="/static/([^"]+)">\s*')
_SCRIPT = re.compile(r'<script type="module" src="/static/([^"]+)"></script>')
_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";$', re.M)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) ([A-Za-z_$][\w$]*))", re.M)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.M)


@dataclass(frozen=True, slots=True)
class JoinedPage:
    """`index`: the page that names one script and one style sheet. `files`: both of them, by their names."""

    index: bytes
    files: dict[str, bytes]


async def show_index(request: Request) -> Response:
    if "modules" in request.query_params:
        return _answer(request, _read("index.html"), ".html")
    return _answer(request, join_page(STATIC).index, ".html")


async def show_icon(request: Request) -> Response:
    return _answer(request, _read("icon.svg"), ".svg")


async def show_file(request: Request) -> Response:
    name = unquote(request.path_params["path"])
    suffix = Path(name).suffix
    if (joined := join_page(STATIC).files.get(name)) is not None:
        return _answer(request, joined, suffix, FOR_EVER)
    return _answer(request, _read(name), suffix)


def accepts_gzip(request: Request) -> bool:
    """Reads the header as far as browsers write it: `gzip;q=0` is a no."""
    for one in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = one.partition(";")
        if name.strip() == "gzip":
            return re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", weight) is None
    return False


@lru_cache(maxsize=2)
def join_page(static: Path) -> JoinedPage:
    """Returns the page of that folder, joined. The same sources always give the same bytes."""
    page = (static / "index.html").read_text(encoding="utf-8")
    files: dict[str, bytes] = {}
    if styles := _STYLES.findall(page):
        sheet = "\n".join((static / one).read_text(encoding="utf-8") for one in styles)
        name = _add(files, "css", sheet)
        page = _STYLES.sub("", page)
        page = page.replace("</head>", f'  <link rel="stylesheet" href="/static/{name}">\n  </head>')
    if (script := _SCRIPT.search(page)) is not None:
        name = _add(files, "js", join_modules(static, script[1]))
        page = page.replace(script[0], f'<script type="module" src="/static/{name}"></script>')
    return JoinedPage(page.encode(), files)


def join_modules(static: Path, first: str) -> str:
    """Returns one script that does what the module `first` does.

    Each module becomes a function that is called once, after those that it imports from. Only `import {…} from "…"`
    and `export` before a function, class or constant are understood; anything else is refused rather than guessed.
    """
    joined: dict[str, str] = {}

    def add(path: str, above: tuple[str, ...]) -> None:
        if path in above:
            raise ValueError(f"{path} cannot be joined: it imports itself, by way of {' and '.join(above)}")
        if path in joined:
            return
        source = (static / path).read_text(encoding="utf-8")
        folder = posixpath.dirname(path)

        def imported(found: re.Match[str]) -> str:
            names = " ".join(found[1].replace(" as ", ": ").split())
            return f"const {{ {names} }} = {_variable(posixpath.normpath(posixpath.join(folder, found[2])))};"

        for found in _IMPORT.finditer(source):
            add(posixpath.normpath(posixpath.join(folder, found[2])), (*above, path))
        names = _EXPORT.findall(source)
        body = _EXPORT.sub("", _IMPORT.sub(imported, source))
        if (odd := _OTHER.search(body)) is not None:
            raise ValueError(f"{path} cannot be joined: {odd[0][:100]!r} is no import or export that is understood")
        joined[path] = (
            f"// {path}\nconst {_variable(path)} = (() => {{\n{body}return {{ {', '.join(names)} }};\n}})();\n"
        )

    add(first, ())
    return "\n".join(joined.values())


def _variable(path: str) -> str:
    return "$" + re.sub(r"\W", "_", path.removesuffix(".js"))


def _add(files: dict[str, bytes], kind: str, text: str) -> str:
    content = text.encode()
    name = f"console-{sha256(content).hexdigest()[:16]}.{kind}"
    files[name] = content
    return name


def _read(name: str) -> bytes:
    """Returns only the console's own files, of known types."""
    parts = name.split("/")
    if Path(name).suffix not in TYPES or "\0" in name or "\\" in name:
        raise HTTPException(404)
    if any(part.startswith(".") or not part for part in parts):
        raise HTTPException(404)
    path = STATIC.joinpath(*parts)
    try:
        if path.is_file() and path.resolve().is_relative_to(STATIC.resolve()):
            return path.read_bytes()
    except OSError:  # a name that is too long, say
        pass
    raise HTTPException(404)


def _answer(request: Request, content: bytes, suffix: str, keeping: str = ASK_AGAIN) -> Response:
    headers = {"cache-control": keeping, "etag": f'W/"{sha256(content).hexdigest()[:32]}"', "vary": "accept-encoding"}
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if len(content) >= LEAST and suffix != ".png" and accepts_gzip(request):
        content = _packed(content)
        headers["content-encoding"] = "gzip"
    return Response(content, media_type=TYPES[suffix], headers=headers)


@lru_cache(maxsize=16)
def _packed(content: bytes) -> bytes:
    return gzip.compress(content, 9, mtime=0)
