"""The network of the programs that tools start: all of it, none, or the hosts that rules allow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError, Waiting
from forge.core.messages import ToolCall
from forge.core.spec import Permission, ToolSpec
from forge.network.egress import Egress
from forge.permissions.gate import gate_of, rule_allows
from forge.permissions.policy import Policy, Rules
from forge.permissions.questions import Decision, PermissionRequest
from forge.process.running.run import find_tier
from forge.process.sandbox import Tier
from forge.process.sandbox.layout import NetworkProxy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from forge.network.program_proxy import Judge

MOST_REFUSALS = 3  # of one program, after which it gets no more questions


async def program_network(ctx: ToolContext, *, opened: bool, sandbox: str | bool | None) -> bool | NetworkProxy:
    """Returns True for the whole network, False for none, or the proxy that judges each host by the rules.

    `opened`: a setting opens the network. Rules that ask about hosts, or deny some, hold all the same, and so do
    secrets, which only the proxy can put in. Where rules cannot be enforced, a person is asked. Raises `ToolError` if
    that is refused.
    """
    opened = opened or rule_allows(ctx, Permission.NETWORK)
    egress = Egress.current()
    about = _HostRules.of(gate_of(ctx).policies, ctx.spec, ctx.scope)
    judge = _HostJudge(ctx, opened=opened)
    wanted = "auto" if sandbox is None else sandbox
    found = _choose_network(about, egress, judge, opened=opened, sandbox=wanted, for_secrets=bool(egress.secrets))
    if found is None:
        await _require_all(ctx, about)
        return opened
    return found


def server_network(
    name: str, hosts: Rules, egress: Egress | None, *, opened: bool, sandbox: str
) -> bool | NetworkProxy:
    """Returns the network of an MCP server's program, as `program_network` does for a call; no one can be asked.

    A server with `opened` network keeps it where there are secrets: its settings name those that it gets. Raises
    `ToolError` where rules about hosts cannot be enforced.
    """
    spec = ToolSpec(
        name=name,
        description="the program of an MCP server",
        parameters={},
        permissions=frozenset({Permission.NETWORK}),
    )
    about = _HostRules.of([hosts], spec, Scope())
    judge = _ServerHosts(spec, hosts, opened=opened)
    found = _choose_network(about, egress or Egress(), judge, opened=opened, sandbox=sandbox)
    if found is None:
        raise ToolError(
            f"the MCP server {name} is not started: rules are about single hosts, and only bubblewrap can hold a"
            " program to them",
            ErrorKind.CONFIG,
            "Install bubblewrap, or set network: false and a sandbox for this server.",
        )
    return found


class _HostRules(NamedTuple):
    """The rules of all policies about the hosts of a tool's programs, in short."""

    allows: bool  # they allow some hosts, or ask about some
    restricts: bool  # they ask about some or all hosts, or deny them
    is_function: bool  # a policy is a function: it may say anything about any host

    @classmethod
    def of(cls, policies: Iterable[Policy], spec: ToolSpec, scope: Scope) -> _HostRules:
        allows = restricts = is_function = False
        for one in policies:
            if not isinstance(one, Rules):
                is_function = True
                continue
            decisions = one.decisions_about_targets(spec, Permission.NETWORK, scope)
            allows |= bool(decisions & {Decision.ALLOW, Decision.ASK})
            restricts |= one.restricts(spec, Permission.NETWORK, scope)
        return cls(allows, restricts, is_function)


def _choose_network(
    about: _HostRules, egress: Egress, judge: Judge, *, opened: bool, sandbox: str | bool, for_secrets: bool = False
) -> bool | NetworkProxy | None:
    """Returns the network of a program; None where rules are about hosts, and cannot be enforced here."""
    restricts = about.restricts or about.is_function or egress.inspect
    needs_proxy = for_secrets or (restricts if opened else about.allows)
    is_limited = restricts or (about.allows and not opened)
    if not needs_proxy and not is_limited:
        return opened
    tier = find_tier(sandbox)
    if needs_proxy and tier is Tier.BUBBLEWRAP:
        from forge.network.program_proxy import ProgramProxy  # it loads the HTTP client

        return ProgramProxy(judge, egress)
    return None if is_limited and (opened or tier is Tier.NONE) else opened  # without a sandbox it has all of it


class _ServerHosts:
    """Judges the servers that the program of an MCP server wants to reach."""

    def __init__(self, spec: ToolSpec, hosts: Rules, *, opened: bool) -> None:
        self._spec, self._hosts, self._opened = spec, hosts, opened

    async def __call__(self, url: str) -> str:
        call = ToolCall(self._spec.name, {"url": url})
        ruling = self._hosts.explain(
            PermissionRequest(self._spec, call, {"url": url}, Permission.NETWORK, url, Scope())
        )
        if ruling.decision is Decision.ALLOW or (
            self._opened and ruling.decision is Decision.ASK and ruling.is_default
        ):
            return ""
        why = "; no one can be asked about the program of a server" if ruling.decision is Decision.ASK else ""
        return f"{ruling.reason}{why}"


async def _require_all(ctx: ToolContext, about: _HostRules) -> None:
    """Asks about the whole network. A policy that is a function decides that itself, if no rules are about hosts."""
    if about.is_function and not about.allows and not about.restricts:
        ruling = gate_of(ctx).judge(ctx, Permission.NETWORK, "")
        if ruling.decision is Decision.ALLOW:
            return
        if ruling.decision is Decision.DENY:
            raise _not_run(ruling.reason)
    question = (
        "There are rules about single hosts, and programs can be held to them only in bubblewrap, which is not used"
        " here. Run it with the whole network?"
    )
    if not await gate_of(ctx).confirm(ctx, question):
        raise _not_run("no one allowed the whole network")


def _not_run(why: str) -> ToolError:
    return ToolError(
        f"it was not run: the rules about hosts cannot be enforced for programs without bubblewrap ({why})",
        ErrorKind.PERMISSION,
        "Use http_request, which they hold for; or the person can have programs run in bubblewrap: with"
        " `sandbox: auto`, and `forge doctor` says what is missing.",
    )


class _HostJudge:
    """Judges the servers that one call's program wants to reach."""

    def __init__(self, ctx: ToolContext, *, opened: bool) -> None:
        self._ctx, self._opened = ctx, opened
        self._refusals = 0
        self._questions = asyncio.Semaphore(MOST_REFUSALS)  # at a time: a program may try many hosts at once

    async def __call__(self, url: str) -> str:
        ctx = self._ctx
        ruling = gate_of(ctx).judge(ctx, Permission.NETWORK, url)
        if ruling.decision is Decision.DENY:
            return ruling.reason
        if ruling.decision is Decision.ALLOW or (self._opened and ruling.is_default):
            return ""
        async with self._questions:
            return await self._ask(url)

    async def _ask(self, url: str) -> str:
        if self._refusals >= MOST_REFUSALS:
            return f"no one is asked any more: {MOST_REFUSALS} hosts of this program were refused"
        try:
            await self._ctx.require(Permission.NETWORK, url)
        except Waiting:  # the run could be stored until the answer comes, and the program could not
            self._refusals += 1
            return "a person can answer only later, and the program cannot wait for that: a rule has to allow the host"
        except ToolError as error:
            self._refusals += 1
            return error.message
        return ""
