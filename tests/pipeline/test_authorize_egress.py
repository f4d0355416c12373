"""The project's egress holds inside a call, and nowhere else."""

from __future__ import annotations

import asyncio

from forge import tool
from forge.network.egress import Egress
from forge.pipeline.authorize import GuardEgress
from forge.pipeline.limit_calls import Isolate
from tests.pipeline.calling import call_once, executor_of

OWN = Egress(mode="allowlist", domains=("example.com",))


@tool
async def seen() -> str:
    """Say which mode of egress holds."""
    return f"{Egress.current().mode} {' '.join(Egress.current().domains)}".strip()


@tool
def seen_in_a_thread() -> str:
    """Say which mode of egress holds in the thread of a plain function."""
    return Egress.current().mode


@tool(isolate=True)
async def seen_elsewhere(url: str = "") -> str:
    """Say which egress holds in a process of its own, and what it lets pass."""
    from forge.network.address import read_url

    Egress.current().judge(read_url(url or "https://example.com/"))
    return f"{Egress.current().mode} {' '.join(Egress.current().domains)} {Egress.current().private}".strip()


def test_a_call_sees_the_projects_egress_in_the_loop_and_in_a_thread():
    assert call_once(seen, GuardEgress(OWN)).for_llm == "allowlist example.com"
    assert call_once(seen_in_a_thread, GuardEgress(OWN)).for_llm == "allowlist"


def test_without_one_only_public_addresses_are_allowed():
    assert call_once(seen, GuardEgress(None)).for_llm == "open"
    assert call_once(seen).for_llm == "open"


def test_it_ends_with_the_call():
    call_once(seen, GuardEgress(OWN))
    assert Egress.current() == Egress()


def test_calls_at_the_same_time_keep_their_own():
    from forge import Scope, ToolCall

    async def both() -> list[str]:
        executors = [executor_of([seen], GuardEgress(one)) for one in (OWN, Egress(mode="deny-all"))]
        results = await asyncio.gather(*(one.execute(ToolCall("seen", {}), Scope()) for one in executors))
        return [one.for_llm for one in results]

    assert asyncio.run(both()) == ["allowlist example.com", "deny-all"]


def test_a_tool_that_says_nothing_of_the_network_is_guarded_all_the_same():
    assert not seen.spec.permissions
    assert call_once(seen, GuardEgress(Egress(mode="deny-all"))).for_llm == "deny-all"


def test_a_process_of_its_own_is_guarded_all_the_same():
    steps = (GuardEgress(OWN), Isolate())
    assert call_once(seen_elsewhere, *steps).for_llm == "allowlist example.com ()"
    refused = call_once(seen_elsewhere, *steps, url="https://elsewhere.example/")
    assert refused.failure is not None
    assert refused.failure.kind == "security_error"
    assert "is not in the allowlist" in refused.for_llm
    assert call_once(seen_elsewhere, GuardEgress(Egress(mode="deny-all")), Isolate()).failure is not None


def test_what_is_private_and_allowed_here_is_allowed_in_a_process_of_its_own():
    url = "http://127.0.0.1:8080/"
    allowed = GuardEgress(Egress(private=("127.0.0.1:8080",)))
    assert call_once(seen_elsewhere, allowed, Isolate(), url=url).success
    assert call_once(seen_elsewhere, Isolate(), url=url).failure is not None


def test_the_standard_executor_takes_one():
    from forge import Scope, ToolCall
    from forge.pipeline import standard_executor

    for egress, mode in ((OWN, "allowlist example.com"), (None, "open")):
        executor = standard_executor([seen], egress=egress)
        assert asyncio.run(executor.execute(ToolCall("seen", {}), Scope())).for_llm == mode
