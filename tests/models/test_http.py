"""Requests are retried where that may help, bounded in every way, and never tell a key."""

from __future__ import annotations

import asyncio
import gc
import time
import traceback
from base64 import b64encode
from email.utils import formatdate
from gzip import compress
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge.core.errors import ErrorKind
from forge.core.events import Retrying
from forge.core.provider import ProviderError
from forge.models.http import events as sse_reader
from forge.models.http import post
from forge.models.http.events import EventReader
from forge.models.http.outgoing import BrokeOff, PromptTooLong
from forge.models.http.post import SentEvent, post_stream, stream_error
from forge.network import connections
from forge.network.address import read_url
from forge.network.egress import CredentialEgress
from tests.models.serving import CUT, RESET, Reply, Server, named_sse, refusal, serving, sse, stream

KEY = "sk-live/Ab+c==0123456789"
HEADERS = {"Authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01"}
GOOD = stream(sse({"n": 1}, {"n": 2}))
EVENTS = [SentEvent("message", '{"n": 1}'), SentEvent("message", '{"n": 2}'), SentEvent("message", "[DONE]")]


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """How long it would have waited."""
    waited: list[float] = []

    async def pause(seconds):
        waited.append(seconds)

    monkeypatch.setattr(post, "pause", pause)
    return waited


async def ask(server: Server | str, **changes) -> list[SentEvent]:
    url = server if isinstance(server, str) else server.url
    given = {"headers": HEADERS, "body": {"model": "m"}, "label": "openai", **changes}
    return [event async for event in post_stream(url, **given) if isinstance(event, SentEvent)]


async def announced(server: Server, **changes) -> list[Retrying]:
    """The retries that were announced."""
    stream = post_stream(server.url, headers=HEADERS, body={"model": "m"}, label="openai", **changes)
    return [event async for event in stream if isinstance(event, Retrying)]


async def failure(server: Server | str, **changes) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(server, **changes)
    assert_tells_no_key(caught.value)
    return caught.value


def written(value: str | int) -> str:
    """A header as it is, or a date so many seconds from now."""
    return formatdate(time.time() + value, usegmt=True) if isinstance(value, int) else value


def assert_tells_no_key(error: ProviderError) -> None:
    told = "".join(traceback.format_exception(error)) + repr(error) + error.message + error.suggestion
    assert KEY not in told
    assert error.message.startswith("asking openai")
    assert error.suggestion


async def test_events_come_as_they_were_sent():
    async with serving(GOOD) as server:
        assert await ask(server) == EVENTS
    (asked,) = server.asked
    assert asked.method == "POST"
    assert asked.body == {"model": "m"}
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["content-type"] == "application/json"


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529, 599])
async def test_a_failure_that_may_pass_is_tried_again(status, pauses):
    async with serving(refusal(status), refusal(status), GOOD) as server:
        assert await ask(server) == EVENTS
    assert len(server.asked) == 3
    assert len(pauses) == 2


@pytest.mark.parametrize("status", [500, 429])
async def test_five_requests_are_the_most(status, pauses):
    async with serving(refusal(status, {"error": {"message": "not now"}})) as server:
        error = await failure(server)
    assert len(server.asked) == 5
    assert error.passing
    assert error.status == status
    assert "not now" in error.message
    assert "tried 5 times" in error.message
    assert [0.25, 0.5, 1.0, 2.0] <= pauses <= [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ErrorKind.VALIDATION),
        (401, ErrorKind.CONFIG),
        (402, ErrorKind.CONFIG),
        (403, ErrorKind.CONFIG),
        (404, ErrorKind.CONFIG),
        (418, ErrorKind.VALIDATION),
        (422, ErrorKind.VALIDATION),
    ],
)
async def test_a_failure_that_stays_is_not_tried_again(status, kind, pauses):
    async with serving(refusal(status, {"error": {"message": "no"}})) as server:
        error = await failure(server)
    assert (error.kind, error.status, error.passing) == (kind, status, False)
    assert len(server.asked) == 1
    assert not pauses


async def test_an_account_without_money_is_not_asked_again():
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    async with serving(refusal(429, body)) as server:
        error = await failure(server)
    assert (error.kind, error.passing, len(server.asked)) == (ErrorKind.CONFIG, False, 1)


async def test_a_server_may_say_that_another_try_is_useless():
    async with serving(refusal(500, x_should_retry="false")) as server:
        error = await failure(server)
    assert error.passing
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry_After": "2"}, 2, 2.2),
        ({"Retry_After": "0.5"}, 0.5, 0.55),
        ({"Retry_After": " 7 "}, 7, 7.7),
        ({"Retry_After": "60"}, 60, 60),
        ({"retry_after_ms": "1500"}, 1.5, 1.65),
        ({"retry_after_ms": "1500", "Retry_After": "40"}, 1.5, 1.65),
        ({"retry_after_ms": "soon", "Retry_After": "4"}, 4, 4.4),
        ({"Retry_After": +30}, 28, 33),
        ({"Retry_After": -30}, 0.25, 0.5),
        ({"Retry_After": "-3"}, 0.25, 0.5),
        ({"Retry_After": "0"}, 0.25, 0.5),
        ({"Retry_After": "nonsense"}, 0.25, 0.5),
        ({"Retry_After": "nan"}, 0.25, 0.5),
        ({"Retry_After": "inf"}, 0.25, 0.5),
        ({"Retry_After": ""}, 0.25, 0.5),
        ({"Retry_After": "Wed, 99 Foo 2099 99:99:99 GMT"}, 0.25, 0.5),
        ({"Retry_After": "9" * 400}, 0.25, 0.5),
        ({}, 0.25, 0.5),
    ],
)
async def test_the_server_says_how_long_to_wait(headers, least, most, pauses):
    dated = {name: written(value) for name, value in headers.items()}
    async with serving(refusal(429, **dated), GOOD) as server:
        assert await ask(server) == EVENTS
    (waited,) = pauses
    assert least <= waited <= most


async def test_every_retry_is_announced_before_its_wait(pauses):
    async with serving(
        refusal(429, {"error": {"message": "slow down"}}, Retry_After="2"), refusal(529), GOOD
    ) as server:
        first, second = await announced(server)
    assert (first.attempt, first.status, first.seconds) == (1, 429, round(pauses[0], 3))
    assert "HTTP 429: slow down" in first.reason
    assert (second.attempt, second.status, second.seconds) == (2, 529, round(pauses[1], 3))
    async with serving(GOOD) as server:
        assert await announced(server) == []


@pytest.mark.parametrize("asked", ["61", "86400", "1e300", 9_000])
async def test_a_wait_of_more_than_a_minute_is_an_error_at_once(asked, pauses):
    async with serving(refusal(429, Retry_After=written(asked)), GOOD) as server:
        error = await failure(server)
    assert (error.kind, error.passing, error.status) == (ErrorKind.RATE_LIMITED, True, 429)
    assert "asks to wait" in error.suggestion
    assert len(server.asked) == 1
    assert not pauses


async def test_a_wait_that_goes_past_the_deadline_is_an_error_at_once(pauses):
    async with serving(refusal(429, Retry_After="50"), GOOD) as server:
        error = await failure(server, timeout=20)
    assert error.status == 429
    assert len(server.asked) == 1
    assert not pauses


async def test_waiting_can_be_cancelled(monkeypatch):
    waiting = asyncio.Event()

    async def for_ever(seconds):
        waiting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(post, "pause", for_ever)
    async with serving(refusal(500)) as server:
        task = asyncio.create_task(ask(server))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(server.asked) == 1


async def test_a_request_can_be_cancelled_while_the_server_thinks():
    arrived = asyncio.Event()

    async def think():
        arrived.set()
        await asyncio.Event().wait()

    async with serving(Reply(before=think)) as server:
        task = asyncio.create_task(ask(server))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.left.wait()


@pytest.mark.parametrize("broken", [Reply([RESET]), Reply([CUT]), Reply(), Reply([b": comment\n\n", RESET])])
async def test_a_connection_that_breaks_before_the_first_event_is_tried_again(broken):
    async with serving(broken, GOOD) as server:
        assert await ask(server) == EVENTS
    assert len(server.asked) == 2


@pytest.mark.parametrize("end", [RESET, CUT])
async def test_a_connection_that_breaks_after_the_first_event_is_not_tried_again(end):
    async with serving(Reply([sse({"n": 1}, done=False), end]), GOOD) as server:
        events = post_stream(server.url, headers=HEADERS, body={}, label="openai")
        assert await anext(events) == EVENTS[0]
        with pytest.raises(ProviderError) as caught:
            await anext(events)
    assert isinstance(caught.value, BrokeOff)
    assert caught.value.passing
    assert caught.value.kind == ErrorKind.SYSTEM
    assert len(server.asked) == 1
    assert_tells_no_key(caught.value)


async def test_nobody_listening_is_said_so():
    async with serving() as server:
        pass
    error = await failure(server)
    assert not isinstance(error, BrokeOff)
    assert "no connection" in error.message
    assert "tried 5 times" in error.message
    assert error.passing


async def test_a_server_without_encryption_is_said_so(pauses):
    def greet(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad\r\n\r\n")
        writer.close()

    plain = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with plain:
        error = await failure(f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}/v1")
    assert error.kind == ErrorKind.CONFIG
    assert "secure" in error.message
    assert not pauses


async def test_time_runs_out_while_the_server_thinks():
    async with serving(Reply(before=asyncio.Event().wait)) as server:
        error = await failure(server, timeout=0.05)
        await server.left.wait()
    assert (error.kind, error.passing, len(server.asked)) == (ErrorKind.TIMEOUT, True, 1)


async def test_time_runs_out_in_the_middle_of_an_answer():
    async with serving(Reply([sse({"n": 1}, done=False), asyncio.Event().wait])) as server:
        error = await failure(server, timeout=0.2)
        await server.left.wait()
    assert error.kind == ErrorKind.TIMEOUT


async def test_silence_ends_an_answer():
    async with serving(Reply([sse({"n": 1}, done=False), asyncio.Event().wait])) as server:
        error = await failure(server, silence=0.05)
        await server.left.wait()
    assert (error.kind, error.passing, len(server.asked)) == (ErrorKind.TIMEOUT, True, 1)
    assert "no data for" in error.message


async def test_the_deadline_does_not_cancel_whoever_reads():
    async with serving(stream(sse({"n": 1}, {"n": 2}, done=False))) as server:
        events = post_stream(server.url, headers={}, body={}, label="openai")
        assert await anext(events)
        timers = [*asyncio.get_running_loop()._scheduled]  # type: ignore[attr-defined]
        for timer in timers:
            if not timer.cancelled():
                timer._run()  # time is up while somebody works on the first event
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert await anext(events)  # it had arrived already
        with pytest.raises(ProviderError, match="no complete response"):
            await anext(events)
        assert task.cancelling() == 0


async def test_a_reader_that_is_cancelled_at_the_deadline_is_cancelled():
    async with serving(Reply([sse({"n": 1}, done=False), asyncio.Event().wait])) as server:
        events = post_stream(server.url, headers={}, body={}, label="openai")
        assert await anext(events)
        reading = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        reading.cancel()
        for timer in [*asyncio.get_running_loop()._scheduled]:  # type: ignore[attr-defined]
            if not timer.cancelled():
                timer._run()
        with pytest.raises(asyncio.CancelledError):
            await reading


async def test_closing_the_generator_closes_the_connection_at_once():
    async with serving(Reply([sse({"n": 1}, done=False), asyncio.Event().wait])) as server:
        events = post_stream(server.url, headers=HEADERS, body={}, label="openai")
        assert await anext(events) == EVENTS[0]
        await events.aclose()
        await server.left.wait()


def packed(body: bytes, encoding: str) -> Reply:
    pieces = [body[at : at + 3] for at in range(0, len(body), 3)]
    return Reply(pieces, headers={"Content-Type": "text/event-stream", "Content-Encoding": encoding})


async def test_an_answer_that_is_compressed_is_read_or_explained():
    body = compress(sse({"n": 1}, {"n": 2}))
    async with serving(packed(body, "gzip"), packed(body, "br"), packed(body[:-9], "gzip")) as server:
        assert await ask(server) == EVENTS
        assert "compressed with 'br'" in (await failure(server, attempts=1)).message
        assert "ends too early" in (await failure(server, attempts=1)).message
    assert server.asked[0].headers["accept-encoding"] == "identity"


async def test_an_error_that_is_compressed_is_told():
    told = compress(b'{"error": {"message": "Bad thing"}}')
    async with serving(Reply([told], 400, {"Content-Type": "application/json", "Content-Encoding": "gzip"})) as server:
        assert "Bad thing" in (await failure(server)).message


async def test_one_connection_serves_many_requests():
    async with serving(GOOD) as server:
        for _ in range(5):
            await ask(server)
    assert server.opened == 1


async def test_many_requests_run_side_by_side():
    async with serving(GOOD) as server:
        answers = await asyncio.gather(*(ask(server) for _ in range(30)))
    assert all(answer == EVENTS for answer in answers)


def test_a_loop_takes_its_connections_with_it():
    async def once():
        async with serving(GOOD) as server:
            return await ask(server)

    assert asyncio.run(once()) == asyncio.run(once()) == EVENTS
    gc.collect()
    assert not connections._pools


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"error": {"message": "Bad thing", "type": "server_error"}}, "HTTP 500: Bad thing (server_error)"),
        ({"error": "just text"}, "just text"),
        ({"message": "flat"}, "flat"),
        ({"detail": [{"loc": ["body", "x"], "msg": "Extra"}]}, "Extra"),
        ([{"error": {"code": 500, "message": "in a list"}}], "in a list"),
        ({"error": {"message": "Router", "metadata": {"raw": "upstream said so"}}}, "upstream said so"),
        ({"error": {}}, "HTTP 500"),
        ([], "HTTP 500"),
        (None, "HTTP 500"),
        (b"plain \x1b[31m\x00text\nin lines", "plain [31m text in lines"),
        (b"\xff\xfe", "HTTP 500"),
        (b"", "HTTP 500"),
        (
            b"<html><head><title>502 Bad\n Gateway &amp; more</title></head><body><h1>x</h1>",
            "HTTP 500: 502 Bad Gateway & more",
        ),
        (b"<html><body><h1>Oops</h1><p>deep</p></body></html>", "HTTP 500: Oops"),
        (b"<p>no <b>title</b></p>", "HTTP 500: no title"),
        (b"[" * 100_000, "HTTP 500"),
    ],
)
async def test_what_a_server_says_is_told_in_one_line(body, told):
    async with serving(refusal(500, body)) as server:
        error = await failure(server, attempts=1)
    assert told in error.message
    assert error.message.isprintable()
    assert len(error.message) < 700


async def test_a_long_error_is_not_read_to_its_end():
    endless = Reply([b"x" * 65536] * 200 + [asyncio.Event().wait], 400)
    async with serving(endless) as server:
        error = await failure(server)
        await server.left.wait()
    assert len(error.message) < 700


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 8192 tokens",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "the request exceeds the available context size",
    ],
)
async def test_a_prompt_that_does_not_fit_has_its_own_error(text):
    async with serving(refusal(400, {"error": {"message": text}})) as server:
        assert isinstance(await failure(server), PromptTooLong)
    async with serving(refusal(400, {"error": {"message": "something else"}})) as server:
        assert not isinstance(await failure(server), PromptTooLong)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_not_followed(status):
    async with serving(GOOD) as elsewhere, serving(refusal(status, Location=elsewhere.url)) as server:
        error = await failure(server)
    assert error.kind == ErrorKind.CONFIG
    assert not elsewhere.asked


async def test_an_answer_in_plain_json_is_one_event():
    whole = Reply([b'{"a":', b" 1}"], headers={"Content-Type": "application/json; charset=utf-8"})
    async with serving(whole) as server:
        assert await ask(server) == [SentEvent("message", '{"a": 1}')]


async def test_a_web_page_is_no_answer():
    page = Reply([b"<title>Welcome</title>"], headers={"Content-Type": "text/html"})
    async with serving(page) as server:
        error = await failure(server)
    assert error.kind == ErrorKind.CONFIG
    assert "Welcome" in error.message
    assert "/v1" in error.suggestion


async def test_an_error_in_place_of_the_first_event_is_tried_again_where_it_may_pass():
    busy = stream(named_sse(("error", {"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}})))
    async with serving(busy, GOOD) as server:
        assert await ask(server) == EVENTS
    async with serving(busy) as server:
        error = await failure(server)
    assert (error.status, error.passing, len(server.asked)) == (529, True, 5)


async def test_an_error_in_place_of_the_first_event_that_stays_is_raised():
    wrong = stream(sse({"error": {"type": "invalid_request_error", "message": "Wrong"}}))
    async with serving(wrong) as server:
        error = await failure(server)
    assert (error.status, error.passing, len(server.asked)) == (400, False, 1)


async def test_an_event_that_only_speaks_of_an_error_is_none():
    async with serving(stream(sse({"text": 'an "error" here', "error": None}, done=False))) as server:
        assert len(await ask(server)) == 1


@pytest.mark.parametrize("url", ["", "localhost:1", "ftp://x/y", "http://", "http://[::1", "http://[::1]:port/", "/v1"])
async def test_a_url_that_is_none_is_said_so(url):
    error = await failure(url)
    assert error.kind == ErrorKind.CONFIG
    assert "base URL" in error.suggestion


@pytest.mark.parametrize(
    "key", [KEY + "\n", " " + KEY, KEY + "é", KEY + "\x00", KEY + "\r\nX-Other: 1", f"{KEY}\u200b"]
)
async def test_a_key_that_cannot_be_sent_is_not_told(key):
    async with serving(GOOD) as server:
        error = await failure(server, headers={"authorization": f"Bearer {key}", "x-api-key": key})
    assert error.kind == ErrorKind.CONFIG
    assert not server.asked


@pytest.mark.parametrize(
    "said",
    [
        {"error": {"message": f"Incorrect API key provided: {KEY}.", "code": KEY}},
        f"no {KEY}".encode(),
        f"<title>no {KEY}</title>".encode(),
        ("x" * 480 + " " + KEY).encode(),
        {"error": {"message": "x" * 495 + KEY}},
        {"error": {"message": f"Bearer {KEY}"}},
    ],
)
@pytest.mark.parametrize("status", [400, 401, 500])
async def test_a_key_that_the_server_repeats_is_not_told(said, status):
    async with serving(refusal(status, said)) as server:
        error = await failure(server)
    assert KEY[:12] not in error.message


async def test_a_key_is_not_told_by_an_error_inside_the_stream():
    error = stream_error({"message": f"no {KEY}"}, url="http://x/", headers=HEADERS, label="openai")
    assert_tells_no_key(error)
    async with serving(stream(sse({"error": {"message": f"no {KEY}"}}))) as server:
        assert "[secret]" in (await failure(server)).message


async def test_a_key_in_a_url_is_not_told():
    async with serving(refusal(400)) as server:
        error = await failure(server.url.replace("http://", f"http://user:{KEY[:6]}pass@") + f"/?key={KEY}")
    assert "pass" not in error.message


async def test_a_login_in_a_url_is_sent_as_a_header():
    async with serving(GOOD) as server:
        await ask(server.url.replace("http://", "http://ada:s%3Aecret@"), headers={})
    assert server.asked[0].headers["authorization"] == f"Basic {b64encode(b'ada:s:ecret').decode()}"
    assert server.asked[0].headers["host"] == server.url.removeprefix("http://")


@pytest.mark.parametrize("host", ["169.254.169.254", "metadata.google.internal", "[fd00:ec2::254]", "0xa9fea9fe"])
async def test_a_model_is_not_asked_where_a_cloud_gives_out_credentials(host):
    error = await failure(f"http://{host}/v1/chat", attempts=3)
    assert error.kind == ErrorKind.CONFIG
    assert "metadata address" in error.message
    url = read_url(f"http://{host}/latest")
    CredentialEgress().judge(url)  # a person's own login may ask there
    assert CredentialEgress().judge_addresses(url, [ip_address("169.254.169.254")])


async def test_a_name_that_leads_nowhere_is_tried_again_and_a_url_that_is_none_is_not():
    error = await failure("http://nowhere.invalid/v1", attempts=2)
    assert "no connection: the name nowhere.invalid cannot be resolved" in error.message
    assert "(tried 2 times)" in error.message
    assert "tried" not in (await failure("ftp://nowhere.invalid/v1", attempts=2)).message


async def test_the_environments_proxy_counts_for_models_if_it_is_trusted(monkeypatch):
    async with serving(GOOD) as proxy, serving(GOOD) as server:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert await ask(server) == EVENTS
        assert proxy.opened == 0
        monkeypatch.setenv("FORGE_TRUST_ENV", "1")
        assert await ask(server) == EVENTS
        assert (proxy.opened, len(server.asked)) == (1, 1)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert await ask(server) == EVENTS
        assert (proxy.opened, len(server.asked)) == (1, 2)


async def test_harmless_headers_stay_readable():
    async with serving(refusal(400, {"error": {"message": "version 2023-06-01 is too old"}})) as server:
        assert "2023-06-01" in (await failure(server)).message


@pytest.mark.parametrize("body", [{"a": float("nan")}, {"a": object()}, {"a": {1, 2}}])
async def test_a_body_that_is_no_json_is_said_so(body):
    async with serving(GOOD) as server:
        error = await failure(server, body=body)
    assert error.kind == ErrorKind.VALIDATION
    assert not server.asked


async def test_lone_surrogates_do_not_stop_a_request():
    async with serving(GOOD) as server:
        await ask(server, body={"text": "a\ud800b é"})
    assert server.bodies == [{"text": "a?b é"}]


@pytest.mark.parametrize(
    ("raw", "events"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data: a\n\r\ndata: b\r\n\n", ["a", "b"]),
        (b"data: a\rdata: b\ndata: c\n\n", ["a\nb\nc"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", ["b"]),
        (b": hello\n\ndata: a\n: in between\n\n", ["a"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data: a\n", ["a"]),
        (b"data: a", ["a"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a \n\n", [" a "]),
        (b"data\n\n", [""]),
        (b"data:\n\n", [""]),
        (b"data: a: b\n\n", ["a: b"]),
        (b"datum: a\nid: 3\nretry: 5\n data: x\nnonsense\n\ndata: b\n\n", ["b"]),
        (b"event: x\n\ndata: b\n\n", ["b"]),
        (b"\n\n\n\n", []),
        (b"", []),
        (b"\xef\xbb", []),
        ("data: grüße 😀\n\n".encode(), ["grüße 😀"]),
        (b"data: \xff\xfe\n\n", ["\ufffd\ufffd"]),
        (b"data: a\x0bb\x0c\x1c\x85\n\n", ["a\x0bb\x0c\x1c\ufffd"]),
        ("data: a\u2028b\u0085c\n\n".encode(), ["a\u2028b\u0085c"]),
    ],
)
def test_events_are_read_as_the_specification_says(raw, events):
    for size in range(1, len(raw) + 2):
        reader = EventReader()
        found = [event for at in range(0, len(raw), size) for event in reader.feed(raw[at : at + size])]
        assert [event.data for event in found + reader.finish()] == events


def test_events_may_have_names():
    reader = EventReader()
    assert reader.feed(b"event: ping\ndata: 1\n\ndata: 2\n\n") == [SentEvent("ping", "1"), SentEvent("message", "2")]


@given(
    st.lists(st.sampled_from([b"data: x", b"data:", b"\r", b"\n", b":", b"event: e", "é😀".encode(), b"\xef\xbb\xbf"])),
    st.data(),
)
@settings(max_examples=200, deadline=None)
def test_every_split_gives_the_same_events(parts, data):
    raw = b"".join(parts)
    whole = EventReader()
    expected = whole.feed(raw) + whole.finish()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=10)))
    reader = EventReader()
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert [event for piece in pieces for event in reader.feed(piece)] + reader.finish() == expected


@pytest.mark.parametrize(
    "raw", [b"data: " + b"x" * 2000, b"data: x\n" * 600, b"data\n" * 1001, b":" + b"c" * 2000 + b"\n"]
)
async def test_an_event_without_end_is_refused(raw, monkeypatch):
    monkeypatch.setattr(sse_reader, "LONGEST_EVENT", 1000)
    async with serving(stream(raw, every=100)) as server:
        error = await failure(server)
    assert not error.passing
    assert len(server.asked) == 1
    assert "too long" in error.message


async def test_an_answer_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(post, "LONGEST_ANSWER", 1000)
    async with serving(stream(sse(*range(500)), every=100)) as server:
        assert "too long" in (await failure(server)).message


def test_a_long_line_in_small_pieces_takes_linear_time():
    reader = EventReader()
    piece = b"x" * 16
    started = time.perf_counter()
    for _ in range(200_000):
        reader.feed(piece)
    assert time.perf_counter() - started < 10
