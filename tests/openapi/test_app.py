"""An app in this process as a source: FastAPI, Starlette and a plain ASGI function, called without a network."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, BackgroundTasks, FastAPI, Request, UploadFile
from fastapi.responses import RedirectResponse, Response, StreamingResponse
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Host, Mount, Route

from forge import Agent, Scripted, ToolCall, openapi, rules
from forge.core.errors import DefinitionError, DuplicateToolError, ToolError
from forge.network.egress import Egress
from tests.openapi.mounting import document, kind_of, mount

HOST = "http://pets.in-process.invalid"


class Pet(BaseModel):
    name: str
    age: int = 0


def make_app(**options: Any) -> FastAPI:
    app = FastAPI(title="Shop", generate_unique_id_function=lambda route: route.name, **options)

    @app.get("/pets/first")
    def first() -> Pet:
        """The first pet."""
        return Pet(name="Rex")

    @app.get("/pets/{name}")
    async def show(name: str, loud: bool = False) -> dict[str, Any]:
        return {"name": name.upper() if loud else name}

    @app.post("/pets", status_code=201)
    async def add(pet: Pet, request: Request) -> dict[str, Any]:
        client = request.client.host if request.client else ""
        return {"made": pet.name, "key": request.headers.get("x-key", ""), "client": client}

    return app


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every attempt to connect or to resolve a name is an error."""

    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("a request left the process")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


async def test_an_app_is_a_source_and_no_request_leaves_the_process(no_sockets):
    call = ToolCall("pets__show", {"name": "rex", "loud": True})
    async with Agent(
        Scripted(call, "done"),
        tools=[openapi(make_app(), name="pets")],
        policy=rules("allow network pets.in-process.invalid"),
    ) as agent:
        assert {name for name in agent.registry if name.startswith("pets__")} == {
            *("pets__first", "pets__show", "pets__add")
        }
        result = await agent.run("Show Rex.")
    assert result.text == "done"
    assert any('{"name": "REX"}' in message.text for message in result.messages), result.messages
    assert not [name for name in agent.registry if name.startswith("pets__")]


async def test_arguments_rules_and_credentials_are_those_of_any_api(no_sockets):
    async with mount(make_app(), headers={"X-Key": "k-1234567890"}, egress=Egress("deny-all")) as api:
        wrong = await api.call("pets__add", age=3)
        assert kind_of(wrong) == "validation_error"
        assert api.asked == []
        made = await api.call("pets__add", name="Rex")
        assert made.data["status"] == 201, made.for_llm
        assert made.data["body"]["made"] == "Rex"
        assert made.data["body"]["client"] == "forge"  # not an address that an app might trust
        assert "k-1234567890" not in made.for_llm  # the app got it, and the model does not see it
        assert made.data["body"]["key"] not in ("", "k-1234567890")
        assert api.asked == [("network", f"{HOST}/pets")]
        api.refused.add(f"{HOST}/pets/rex")
        assert kind_of(await api.call("pets__show", name="rex")) == "permission_error"
        assert (await api.call("pets__show", name="max")).data["body"] == {"name": "max"}


@pytest.mark.parametrize("name", ["first", "x/y", "../pets", "first?", "a%2Fb"])
async def test_a_value_never_runs_another_operation(name):
    app = make_app()
    ran: list[str] = []
    router = APIRouter(prefix="/pets")

    @router.get("/x/y", include_in_schema=False)
    async def hidden() -> None:
        ran.append("hidden")

    app.include_router(router)
    async with mount(app, exclude=["first"]) as api:
        result = await api.call("pets__show", name=name)
        if name in ("first?", "a%2Fb"):  # such a value is a value
            assert result.data["body"] == {"name": name}
        else:
            assert kind_of(result) == "validation_error", result.for_llm
    assert ran == []


async def test_a_parameter_of_the_kind_path_takes_slashes():
    app = FastAPI(generate_unique_id_function=lambda route: route.name)
    router = APIRouter(prefix="/files")

    @router.get("/{path:path}")
    async def read(path: str) -> str:
        return path

    app.include_router(router)
    async with mount(app) as api:
        assert (await api.call("pets__read", path="a/b.txt")).data["body"] == "a/b.txt"


def make_redirecting_app(ran: list[str]) -> FastAPI:
    app = FastAPI(title="Pets", generate_unique_id_function=lambda route: route.name)

    @app.get("/go")
    async def go(to: str) -> RedirectResponse:
        return RedirectResponse(to)

    @app.post("/send")
    async def send(to: str) -> RedirectResponse:
        return RedirectResponse(to, status_code=307)

    @app.get("/kept/{name}")
    async def kept(name: str) -> RedirectResponse:
        return RedirectResponse(f"/kept/{name}/")

    @app.get("/kept/{name}/", include_in_schema=False)
    @app.get("/go/", include_in_schema=False)
    @app.get("/hidden", include_in_schema=False)
    @app.post("/hidden", include_in_schema=False)
    @app.get("/offered")
    async def offered() -> str:
        ran.append("offered")
        return "arrived"

    return app


@pytest.mark.parametrize(
    "to",
    ["/hidden", "hidden", f"{HOST}/hidden", "https://pets.in-process.invalid/hidden", "/offered", "/go?to=/hidden"],
)
async def test_a_redirect_never_runs_another_operation(no_sockets, to):
    ran: list[str] = []
    async with mount(make_redirecting_app(ran)) as api:
        for name in ("pets__go", "pets__send"):
            answer = await api.call(name, to=to)
            assert (answer.data["status"], answer.data["headers"]["location"]) == (307, to)
        assert (await api.call("pets__kept", name="x")).data["status"] == 307  # a slash that leads to a hidden route
        assert (await api.call("pets__go", to="/go/?to=x")).data["status"] == 307
        assert ran == []
        assert (await api.call("pets__offered")).data["body"] == "arrived"  # the twin


async def test_a_redirect_reaches_nothing_that_a_rule_denies():
    ran: list[str] = []
    calls = [ToolCall("pets__go", {"to": "/offered"}), ToolCall("pets__offered", {})]
    for rule, expected in (("deny tool:pets__offered", []), ("allow tool:pets__offered", ["offered"])):
        source = openapi(make_redirecting_app(ran))
        async with Agent(Scripted(calls, "x"), tools=[source], policy=rules("allow network", rule)) as agent:
            await agent.run("go")
        assert ran == expected


async def test_the_slash_that_a_router_adds_is_followed_within_one_operation(no_sockets):
    app = FastAPI(generate_unique_id_function=lambda route: route.name)

    @app.get("/end/{name}/")
    @app.post("/end/{name}/")
    async def end(name: str, request: Request, loud: bool = False) -> str:
        return f"{request.method} {name} {loud}"

    @app.get("/outside")
    async def outside() -> RedirectResponse:
        return RedirectResponse("http://169.254.169.254/latest/meta-data")

    loud = [{"name": "loud", "in": "query", "schema": {"type": "boolean"}}]
    name = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    for method in ("get", "post"):
        described = document(loud + name, path="/end/{name}", method=method, operationId="end")
        async with mount(described, server=app) as api:
            answer = await api.call("pets__end", name="a b", loud=True)
            assert answer.data["body"] == f"{method.upper()} a b True"
    described["paths"]["/end/{name}/"] = {"get": {"operationId": "other", "responses": {}}}
    async with mount(described, server=app) as api:  # with the slash, it is another operation
        assert (await api.call("pets__end", name="a b")).data["status"] == 307
        assert (await api.call("pets__other", name="a b")).data["status"] == 200  # the twin
    async with mount(app) as api:
        answer = await api.call("pets__outside")
        assert answer.data["status"] == 307
        assert answer.data["headers"]["location"] == "http://169.254.169.254/latest/meta-data"


def wrap(app: Any) -> Any:
    async def wrapper(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    return wrapper


@pytest.mark.parametrize(
    "server",
    [
        CORSMiddleware,
        lambda app: CORSMiddleware(GZipMiddleware(app)),
        lambda app: Starlette(routes=[Mount("/", app=app)]),
        lambda app: Starlette(routes=[Mount("/", app=GZipMiddleware(app))]),
        lambda app: Starlette(routes=[Mount("/", routes=[Mount("/", app=app)])]),
        lambda app: Starlette(routes=[Host("other.example.com", app=Starlette()), Host("{name:path}", app=app)]),
        lambda app: Starlette(routes=[Host("{name:path}", app=CORSMiddleware(app))]),
        lambda app: Starlette(routes=[Mount("/", app=wrap(app))]),
        wrap,  # nobody can see its routes: the document tells of the other operation
    ],
)
async def test_a_value_never_runs_another_operation_of_a_wrapped_app(server):
    app = make_app()
    async with mount(app.openapi(), server=server(app), exclude=["first"]) as api:
        for name in ("first", "x/y", "../pets"):
            assert kind_of(await api.call("pets__show", name=name)) == "validation_error", name
        assert (await api.call("pets__show", name="rex")).data["body"] == {"name": "rex"}  # the twin
        assert (await api.call("pets__add", name="Rex")).data["status"] == 201


async def test_a_wrapped_app_hides_no_route_that_its_document_lacks():
    app, ran = make_app(), list[str]()

    @app.get("/{kind}/{name}")
    async def find(kind: str, name: str) -> str:
        return f"{kind} {name}"

    async def private(scope: Any, receive: Any, send: Any) -> None:
        ran.append(scope["path"])
        await JSONResponse("private")(scope, receive, send)

    outer = Starlette(routes=[Mount("/private", app=private), Mount("/", app=app)])
    async with mount(app.openapi(), server=CORSMiddleware(outer)) as api:
        assert kind_of(await api.call("pets__find", kind="private", name="x")) == "validation_error"
        assert kind_of(await api.call("pets__find", kind="pets", name="x")) == "validation_error"
        assert ran == []
        assert (await api.call("pets__find", kind="cats", name="x")).data["body"] == "cats x"  # the twin
    async with mount(app.openapi(), server=wrap(app)) as api:
        assert kind_of(await api.call("pets__find", kind="pets", name="x")) == "validation_error"
        assert (await api.call("pets__find", kind="cats", name="x")).data["body"] == "cats x"  # the twin
        assert (await api.call("pets__first")).data["body"]["name"] == "Rex"


@pytest.mark.filterwarnings("ignore:The `root_path` parameter")
async def test_the_root_path_of_an_app_hides_no_route():
    app = make_app(root_path="/pets")

    @app.get("/secret", include_in_schema=False)
    async def secret() -> str:
        return "secret"

    async with mount(app) as api:
        assert kind_of(await api.call("pets__show", name="secret")) == "validation_error"
    async with mount(make_app(root_path="/api"), server="http://shop.example.com/api") as api:  # the twin
        assert (await api.call("pets__show", name="rex")).data["body"] == {"name": "rex"}


async def test_what_the_app_raises_is_an_error_of_the_tool(caplog):
    app = FastAPI(generate_unique_id_function=lambda route: route.name)

    @app.get("/bad")
    async def bad() -> str:
        raise TimeoutError("the database is gone")

    ended = asyncio.Event()

    async def end_badly() -> None:
        ended.set()
        raise ValueError("too late")

    @app.get("/late")
    async def late(tasks: BackgroundTasks) -> str:
        tasks.add_task(end_badly)
        return "fine"

    @app.get("/half")
    async def half() -> StreamingResponse:
        async def parts() -> AsyncIterator[str]:
            yield "one"
            raise ValueError("no more")

        return StreamingResponse(parts())

    async with mount(app) as api:
        failed = await api.call("pets__bad")
        assert failed.failure is not None
        assert "the database is gone" in failed.for_llm
        assert "no complete response" not in failed.for_llm
        assert "no more" in (await api.call("pets__half")).for_llm
        assert (await api.call("pets__late")).data["body"] == "fine"
        await asyncio.wait_for(ended.wait(), 10)
    assert "the app failed after its answer" in caplog.text


async def test_streams_and_bytes_are_read_up_to_the_limit(tmp_path: Path):
    app = FastAPI(generate_unique_id_function=lambda route: route.name)
    closed = asyncio.Event()

    @app.get("/picture")
    async def picture() -> Response:
        return Response(b"\x89PNG\r\n\x1a\n\x00\x00", media_type="image/png")

    class Endless(StreamingResponse):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            try:
                await super().__call__(scope, receive, send)
            finally:
                closed.set()

    @app.get("/endless")
    async def endless() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            while True:
                yield b"a" * 1_000_000

        return Endless(parts(), media_type="text/plain")

    @app.post("/upload")
    async def upload(file: UploadFile) -> int:
        return len(await file.read())

    (tmp_path / "photo.bin").write_bytes(b"\x00" * 300_000)
    async with mount(app, workspace=tmp_path) as api:
        assert (await api.call("pets__picture")).attachments[0].media_type == "image/png"
        long = await api.call("pets__endless")
        assert long.data["truncated"] is True
        await asyncio.wait_for(closed.wait(), 10)
        assert (await api.call("pets__upload", file="file:photo.bin")).data["body"] == 300_000


async def test_a_timeout_cancels_the_request_and_others_go_on():
    app = FastAPI(generate_unique_id_function=lambda route: route.name)
    cancelled, arrived = asyncio.Event(), asyncio.Event()

    @app.get("/slow")
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    @app.get("/meet/{who}")
    async def meet(who: str) -> str:
        if who == "b":
            arrived.set()
        await arrived.wait()  # the first goes on only when the second runs
        return who

    async with mount(app, timeout=3) as api:
        waiting = asyncio.create_task(api.call("pets__slow"))
        both = await asyncio.gather(api.call("pets__meet", who="a"), api.call("pets__meet", who="b"))
        assert [one.data["body"] for one in both] == ["a", "b"]
        assert kind_of(await waiting) == "timeout"
        await asyncio.wait_for(cancelled.wait(), 10)


async def test_the_app_starts_and_stops_with_the_source():
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
        seen.append("start")
        yield {"stock": 7}
        seen.append("stop")

    app = FastAPI(lifespan=lifespan, generate_unique_id_function=lambda route: route.name)

    @app.get("/stock")
    async def stock(request: Request) -> int:
        return int(getattr(request.state, "stock", -1))

    async with mount(app) as api:
        assert (await api.call("pets__stock")).data["body"] == 7
        assert seen == ["start"]
    assert seen == ["start", "stop"]
    async with mount(app, lifespan=False) as api:
        assert (await api.call("pets__stock")).data["body"] == -1
    assert seen == ["start", "stop"]


async def test_two_sources_of_one_name_need_another_prefix():
    with pytest.raises(DuplicateToolError, match="give one of the two sources another prefix than 'shop': prefix="):
        async with Agent(Scripted("x"), tools=[openapi(make_app()), openapi(make_app())]):
            pass
    async with Agent(Scripted("x"), tools=[openapi(make_app()), openapi(make_app(), prefix="other")]) as agent:
        assert {"shop__show", "other__show"} <= set(agent.registry)  # the twin


async def test_two_agents_share_one_app():
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        seen.append("start")
        yield
        seen.append("stop")

    source = openapi(make_app(lifespan=lifespan), name="pets")
    policy = rules("allow *")
    async with Agent(None, tools=[source], policy=policy) as one:
        async with Agent(None, tools=[source], policy=policy) as other:
            for agent in (one, other):
                assert (await agent.call("pets__first", {})).success
        assert (await one.call("pets__first", {})).success
        assert seen == ["start"]
    assert seen == ["start", "stop"]
    async with source as tools:  # and it opens again
        assert len(tools) == 3


async def test_an_app_that_cannot_start_is_an_error_and_one_that_opens_itself_too():
    @asynccontextmanager
    async def broken(app: Starlette) -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    with pytest.raises(ToolError, match=r"cannot start the app Shop: OSError: no database"):
        await openapi(make_app(lifespan=broken)).__aenter__()

    @asynccontextmanager
    async def itself(app: Starlette) -> AsyncIterator[None]:
        async with openapi(app):
            yield

    with pytest.raises(ToolError, match=r"its own lifespan opens it.*") as caught:
        await openapi(make_app(lifespan=itself)).__aenter__()
    assert "lifespan=False" in caught.value.suggestion
    sources: list[Any] = []

    @asynccontextmanager
    async def same(app: Starlette) -> AsyncIterator[None]:
        async with sources[0]:
            yield

    sources.append(openapi(make_app(lifespan=same)))
    with pytest.raises(ToolError, match=r"its own lifespan opens it"):
        await sources[0].__aenter__()

    @asynccontextmanager
    async def served(app: Starlette) -> AsyncIterator[None]:
        async with openapi(app, lifespan=False) as tools:
            app.state.tools = len(tools)
            yield

    app = make_app(lifespan=served)
    async with openapi(app):
        assert app.state.tools == 3


async def test_starlette_needs_a_document():
    async def it(request: Request) -> JSONResponse:
        return JSONResponse({"host": request.url.hostname})

    plain = Starlette(routes=[Route("/it", it)])
    with pytest.raises(ToolError) as caught:
        await openapi(plain).__aenter__()
    assert str(caught.value).startswith("cannot read the OpenAPI document of the app Starlette: it has none: ")
    assert caught.value.suggestion == "Serve one at /openapi.json, or pass it: openapi(document, server=app)."
    async with mount(document(), server=plain) as api:  # the servers of the document do not count
        assert (await api.call("pets__it")).data["body"] == {"host": "pets.in-process.invalid"}

    async def schema(request: Request) -> JSONResponse:
        return JSONResponse(document())

    async with mount(Starlette(routes=[Route("/it", it), Route("/openapi.json", schema)])) as api:
        assert (await api.call("pets__it")).success


async def test_any_asgi_function_works_and_sees_the_url_that_a_person_gave():
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"  # it has no lifespan
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": dict(scope["headers"])[b"host"] + scope["raw_path"]})

    wanted = document([{"name": "id", "in": "path"}], path="/it/{id}")
    async with mount(wanted, server=app) as api:
        assert (await api.call("pets__it", id="a b")).data["body"] == "pets.in-process.invalid/it/a%20b"
        assert kind_of(await api.call("pets__it", id="a/b")) == "validation_error"
    async with mount(make_app(), server="https://shop.example.com/") as api:
        await api.call("pets__first")
        assert api.asked == [("network", "https://shop.example.com/pets/first")]


def test_what_is_no_app_is_refused():
    def wsgi(environ: Any, start_response: Any) -> list[bytes]:
        return [b""]

    for wrong in (wsgi, FastAPI):
        with pytest.raises(DefinitionError, match="it is not an ASGI app"):
            openapi(wrong)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="pass one app"):
        openapi(make_app(), server=make_app())
