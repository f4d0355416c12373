"""What happens reaches every page: at once, in order, again after it was away, and whoever else reads slowly."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from forge.console import event_hub as module
from forge.console.event_entries import entries_after
from forge.console.event_hub import Hub
from forge.console.guard import new_key
from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun
from tests.console.conftest import Console, call, running_console, script


@pytest.fixture
def store(tmp_path):
    with RunStore(f"sqlite:///{tmp_path}/durable.db") as made:
        made.prepare()
        yield made


def tell(store: RunStore, count: int, run: str = "run-1", text: str = "x") -> None:
    store.create(NewRun(id=run))
    store.add_events(run, [(None, {"event": "text_delta", "ts": 1.0, "text": text}) for _ in range(count)])


def numbers_of(row: int, count: int) -> list[int]:
    """The numbers of events that were told together."""
    return [1_024 * row + place for place in range(count)]


async def taken(hub: Hub, listener, count: int) -> list[int]:
    numbers: list[int] = []
    async with asyncio.timeout(60):
        while len(numbers) < count:
            entries, gap = hub.take(listener)
            assert gap is None
            numbers += [one.number for one in entries]
            if not entries:
                listener.news.clear()
                await listener.news.wait()
    return numbers


async def test_every_listener_gets_every_event_once_and_in_order(store):
    hub = Hub(store)
    async with hub.opened(), hub.listener(None) as (one, _), hub.listener(None) as (two, _):
        await asyncio.to_thread(tell, store, 300)
        assert await taken(hub, one, 300) == numbers_of(1, 300)
        assert await taken(hub, two, 300) == numbers_of(1, 300)
        assert "runs" in one.notice.what


async def test_a_page_that_comes_back_gets_what_it_missed(store):
    tell(store, 50)
    hub = Hub(store)
    async with hub.opened():
        first, second = numbers_of(1, 50), numbers_of(2, 10)
        async with hub.listener(first[19]) as (listener, gap):
            assert gap is None
            assert await taken(hub, listener, 30) == first[20:]
            await asyncio.to_thread(tell, store, 10)
            assert await taken(hub, listener, 10) == second
        async with hub.listener(second[4]) as (listener, gap):
            assert await taken(hub, listener, 5) == second[5:]
        async with hub.listener(second[-1]) as (listener, gap):
            assert (hub.take(listener), gap) == (([], None), None)


async def test_a_page_that_was_away_for_too_long_is_told_so(store, monkeypatch):
    monkeypatch.setattr("forge.console.event_hub.MOST_KEPT", 20)
    tell(store, 50)
    hub = Hub(store)
    numbers = numbers_of(1, 50)
    async with hub.opened(), hub.listener(numbers[4]) as (_, gap):
        assert gap == (numbers[4], numbers[-1])


async def test_a_page_that_reads_too_slowly_holds_nobody_up_and_costs_nothing(store, monkeypatch):
    monkeypatch.setattr("forge.console.event_hub.MOST_KEPT", 20)
    hub = Hub(store)
    async with hub.opened(), hub.listener(None) as (slow, _), hub.listener(None) as (quick, _):
        for _ in range(5):
            await asyncio.to_thread(tell, store, 15)
            await taken(hub, quick, 15)
        assert len(hub.kept) == 20
        entries, gap = hub.take(slow)
        assert gap is not None
        assert [one.number for one in entries] == [*numbers_of(4, 15)[-5:], *numbers_of(5, 15)]


async def test_what_happens_at_a_terminal_is_noticed(store, tmp_path, monkeypatch):
    monkeypatch.setattr("forge.console.event_hub.OTHERS", 0.0)
    log = tmp_path / "audit.ndjson"
    hub = Hub(store, log)
    async with hub.opened(), hub.listener(None) as (listener, _):
        await hub._look()
        listener.notice.what.clear()
        log.write_text("{}")
        async with asyncio.timeout(60):
            while "sessions" not in listener.notice.what:
                listener.news.clear()
                await listener.news.wait()


async def test_what_the_clock_began_is_news_for_the_schedules_too(store):
    hub = Hub(store)
    async with hub.opened(), hub.listener(None) as (listener, _):
        await hub._look()
        for run, is_scheduled in (("run-1", False), ("sched-nightly-20260101T030000Z", True)):
            listener.notice.what.clear()
            await asyncio.to_thread(tell, store, 1, run)
            await taken(hub, listener, 1)
            async with asyncio.timeout(60):
                while "runs" not in listener.notice.what:
                    listener.news.clear()
                    await listener.news.wait()
            assert ("schedules" in listener.notice.what) is is_scheduled


async def test_numbers_that_come_late_are_not_missed(store, monkeypatch):
    """Postgres counts before it commits: another run's event may be seen first."""
    hidden: set[int] = {2}
    real = entries_after

    def without_hidden(*arguments):
        return [one for one in real(*arguments) if one.row not in hidden]

    monkeypatch.setattr(module, "entries_after", without_hidden)
    monkeypatch.setattr(type(store.database), "is_sqlite", property(lambda self: False))
    hub = Hub(store)
    for count in (1, 3, 2):
        await asyncio.to_thread(tell, store, count)
    found = [one.number for one in hub._new_entries()]
    assert found == [*numbers_of(1, 1), *numbers_of(3, 2)]
    hidden.clear()
    assert [one.number for one in hub._new_entries()] == numbers_of(2, 3)
    assert hub._new_entries() == []


@asynccontextmanager
async def watching(console: Console, **params):
    async with console.stream(**params) as events:
        first = await anext(events)
        assert first[0] == "changed"
        yield events, first


async def test_a_run_is_seen_by_two_browsers_as_it_happens(tmp_path):
    model = script(tmp_path, call("file_write", path="a.txt", content="hi"), "Done.")
    async with (
        running_console(tmp_path, model=model) as console,
        watching(console) as (one, first),
        watching(console) as (two, _),
    ):
        assert set(first[2]["what"]) >= {"runs", "questions", "workers"}
        run = (await console.post("/api/runs", {"prompt": "write"}, 201))["run"]
        async for kind, _, data in one:
            if kind == "changed" and data["waiting"] == 1:
                break
        question = await console.question()
        await console.post(f"/api/questions/{question['id']}/answer", {"kind": "once"})
        kinds = []
        async for kind, number, data in two:
            if kind == "event":
                assert (data["run"], str(data["n"])) == (run["id"], number)
                kinds.append(data["event"]["event"])
            if kinds and kinds[-1] == "run_finished":
                break
        assert kinds[0] == "run_started"
        assert kinds.count("tool_call_end") == 2
        async for kind, _, data in one:
            if kind == "changed" and data["waiting"] == 0:
                break


async def test_a_page_goes_on_after_the_server_was_started_again(tmp_path):
    key, model = new_key(), script(tmp_path, "One.", "Two.")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with running_console(tmp_path, model=model, key=key, port=port) as console:
        cookies, token = dict(console.client.cookies), console.token
        run = (await console.post("/api/runs", {"prompt": "first"}, 201))["run"]
        await console.run_is(run["id"], "finished")
        last = (await console.get("/api/overview"))["last"]
    async with running_console(tmp_path, model=model, key=key, port=port) as again:
        again.client.cookies.clear()
        again.client.cookies.update(cookies)
        again.client.headers["x-forge-token"] = token
        second = (await again.post("/api/runs", {"prompt": "second"}, 201))["run"]
        await again.run_is(second["id"], "finished")
        async with again.stream(after=last - 1) as events:
            numbers = []
            async for kind, number, data in events:
                if kind == "event":
                    numbers.append(int(number))
                    if data["run"] == second["id"] and data["event"]["event"] == "run_finished":
                        break
        told = await again.get(f"/api/runs/{second['id']}/events")
        assert numbers == [last, *(one["n"] for one in told["events"])]


@pytest.mark.slow
async def test_a_hundred_pages_may_look_and_too_many_are_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr("forge.console.api.event_stream.MOST_STREAMS", 100)
    async with (
        running_console(tmp_path, model=script(tmp_path, "Hi."), works=False) as console,
        AsyncExitStack() as stack,
    ):
        found = [await stack.enter_async_context(console.stream()) for _ in range(100)]
        for one in found:
            assert (await anext(one))[0] == "changed"
        assert console.home.hub.listeners == 100
        refused = await console.client.get("/api/stream")
        assert (refused.status_code, refused.json()["error"]["next"]) == (503, "Close some tabs.")
        tell(console.home.runs.store, 3)
        for one in found:
            async with asyncio.timeout(60):
                numbers = [number async for kind, number, _ in _only(one, 3)]
            assert numbers == [str(one) for one in numbers_of(1, 3)]


async def test_many_that_come_at_the_same_moment_are_counted_too(tmp_path, monkeypatch):
    monkeypatch.setattr("forge.console.api.event_stream.MOST_STREAMS", 10)
    async with running_console(tmp_path, model=script(tmp_path, "Hi."), works=False) as console:

        async def look() -> int:
            async with console.client.stream("GET", "/api/stream") as answer:
                statuses.append(answer.status_code)
                if len(statuses) == 30:
                    all_there.set()
                await all_there.wait()
            return answer.status_code

        statuses: list[int] = []
        all_there = asyncio.Event()
        async with asyncio.timeout(60):
            await asyncio.gather(*(look() for _ in range(30)))
        assert (statuses.count(200), statuses.count(503)) == (10, 20)

        async def is_empty() -> bool:
            return console.home.hub.listeners == 0

        await console.until(is_empty)
        async with console.stream() as events:
            assert (await anext(events))[0] == "changed"


@pytest.mark.parametrize("junk", ["junk", "-1", "1e9", "9" * 30, "0x1"])
async def test_a_stream_that_is_resumed_after_nonsense_begins_now(tmp_path, junk):
    async with running_console(tmp_path, model=script(tmp_path, "Hi."), works=False) as console:
        await asyncio.to_thread(tell, console.home.runs.store, 3)
        async with console.client.stream("GET", "/api/stream", headers={"last-event-id": junk}) as answer:
            lines = answer.aiter_lines()
            first = [await anext(lines) for _ in range(3)]
        assert first == ["retry: 1000", "", "event: changed"]
        async with console.client.stream("GET", "/api/stream", headers={"last-event-id": "1025"}) as answer:
            lines = answer.aiter_lines()
            assert "id: 1026" in [await anext(lines) for _ in range(4)]


async def _only(events, count):
    async for one in events:
        if one[0] == "event":
            yield one
            count -= 1
        if not count:
            return


async def test_a_reader_that_does_not_read_is_let_go(tmp_path, monkeypatch):
    monkeypatch.setattr("forge.console.api.event_stream.PATIENCE", 0.2)
    async with running_console(tmp_path, model=script(tmp_path, "Hi."), works=False) as console:
        reader, writer = await asyncio.open_connection("127.0.0.1", console.port, limit=1)
        cookie = "; ".join(f"{name}={value}" for name, value in console.client.cookies.items())
        head = [f"Host: 127.0.0.1:{console.port}", f"Cookie: {cookie}", f"X-Forge-Token: {console.token}"]
        writer.write("\r\n".join(["GET /api/stream HTTP/1.1", *head, "\r\n"]).encode())

        async def is_there() -> bool:
            return console.home.hub.listeners == 1

        async def is_gone() -> bool:
            return console.home.hub.listeners == 0

        await console.until(is_there)
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(10):
            await asyncio.to_thread(tell, console.home.runs.store, 100, text="x" * 10_000)
        await console.until(is_gone)
        assert len(console.home.runs.store.events("run-1", limit=2_000)) == 1_000
        writer.close()


async def test_a_page_that_leaves_is_forgotten(tmp_path):
    async with running_console(tmp_path, model=script(tmp_path, "Hi."), works=False) as console:
        async with console.stream() as events:
            await anext(events)
            assert console.home.hub.listeners == 1

        async def is_gone() -> bool:
            return console.home.hub.listeners == 0

        await console.until(is_gone)
