"""The network of the programs that tools start: all of it, none, or the hosts that rules allow."""

from __future__ import annotations

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError, Waiting
from forge.core.messages import ToolCall
from forge.core.spec import Permission, ToolSpec
from forge.network.egress import Egress
from forge.permissions.gate import gate_of, rule_allows
from forge.permissions.policy import Rules
from forge.permissions.questions import Decision, PermissionRequest
from forge.process.running.run import find_tier
from forge.process.sandbox import Tier
from forge.process.sandbox.layout import NetworkProxy

MOST_REFUSALS = 3  # of one program, after which it gets no more questions


async def program_network(ctx: ToolContext, *, opened: bool, sandbox: str | bool | None) -> bool | NetworkProxy:
    """Returns True for the whole network, False for none, or the proxy that judges each host by the rules.

    `opened`: a setting opens the network. Rules that ask about hosts, or deny some, hold all the same. Where they
    cannot be enforced, a person is asked. Raises `ToolError` if that is refused.
    """
    opened = opened or rule_allows(ctx, Permission.NETWORK)
    allows, restricts = _host_rules(ctx)
    egress = Egress.current()
    needs_proxy = restricts if opened else allows or bool(egress.secrets)
    if not needs_proxy and not restricts:
        return opened
    tier = find_tier("auto" if sandbox is None else sandbox)
    if needs_proxy and tier is Tier.BUBBLEWRAP:
        from forge.network.program_proxy import ProgramProxy  # it loads the HTTP client

        return ProgramProxy(_HostJudge(ctx, opened=opened), egress)
    if restricts and (opened or tier is Tier.NONE):  # without a sandbox, a program has the whole network
        await _ask_for_all(ctx)
    return opened


def server_network(
    name: str, hosts: Rules, egress: Egress | None, *, opened: bool, sandbox: str
) -> bool | NetworkProxy:
    """Returns the network of an MCP server's program, as `program_network` does for a call; no one can be asked.

    Raises `ToolError` where rules restrict the hosts of a program with `opened` network, and cannot be enforced.
    """
    spec = ToolSpec(
        name=name,
        description="the program of an MCP server",
        parameters={},
        permissions=frozenset({Permission.NETWORK}),
    )
    allows = Decision.ALLOW in hosts.decisions_about_targets(spec, Permission.NETWORK, Scope())
    restricts = hosts.restricts(spec, Permission.NETWORK, Scope())
    if not restricts and (opened or not allows):
        return opened
    tier = find_tier(sandbox)
    if (restricts if opened else allows) and tier is Tier.BUBBLEWRAP:
        from forge.network.program_proxy import ProgramProxy  # it loads the HTTP client

        return ProgramProxy(_ServerHosts(spec, hosts, opened=opened), egress or Egress())
    if restricts and (opened or tier is Tier.NONE):
        raise ToolError(
            f"the MCP server {name} is not started: rules ask about hosts or deny some, and only bubblewrap can hold a"
            " program to that",
            ErrorKind.CONFIG,
            "Install bubblewrap, or set network: false and a sandbox for this server.",
        )
    return opened


class _ServerHosts:
    """Judges the servers that the program of an MCP server wants to reach."""

    def __init__(self, spec: ToolSpec, hosts: Rules, *, opened: bool) -> None:
        self._spec, self._hosts, self._opened = spec, hosts, opened

    async def __call__(self, url: str) -> str:
        call = ToolCall(self._spec.name, {"url": url})
        ruling = self._hosts.explain(
            PermissionRequest(self._spec, call, {"url": url}, Permission.NETWORK, url, Scope())
        )
        if ruling.decision is Decision.ALLOW or (self._opened and ruling.decision is Decision.ASK and not ruling.rule):
            return ""
        why = "; no one can be asked about the program of a server" if ruling.decision is Decision.ASK else ""
        return f"{ruling.reason}{why}"


async def _ask_for_all(ctx: ToolContext) -> None:
    question = (
        "Rules ask about hosts or deny some, and programs can be held to that only in bubblewrap, which is not used"
        " here. Run it with the whole network?"
    )
    if not await gate_of(ctx).confirm(ctx, question):
        raise ToolError(
            "it was not run: the rules about hosts cannot be enforced for programs without bubblewrap",
            ErrorKind.PERMISSION,
            "Use http_request, which they hold for; or the person can install bubblewrap.",
        )


def _host_rules(ctx: ToolContext) -> tuple[bool, bool]:
    """Returns whether rules allow (or ask about) some hosts, and whether they ask about or deny some."""
    policy = gate_of(ctx).policy
    if not isinstance(policy, Rules):
        return False, False
    found = policy.decisions_about_targets(ctx.spec, Permission.NETWORK, ctx.scope)
    return bool(found & {Decision.ALLOW, Decision.ASK}), policy.restricts(ctx.spec, Permission.NETWORK, ctx.scope)


class _HostJudge:
    """Judges the servers that one call's program wants to reach."""

    def __init__(self, ctx: ToolContext, *, opened: bool) -> None:
        self._ctx, self._opened = ctx, opened
        self._refusals = 0

    async def __call__(self, url: str) -> str:
        ctx = self._ctx
        ruling = gate_of(ctx).judge(ctx, Permission.NETWORK, url)
        if ruling.decision is Decision.DENY:
            return ruling.reason
        if ruling.decision is Decision.ALLOW or (self._opened and not ruling.rule):
            return ""
        if self._refusals >= MOST_REFUSALS:
            return f"no one is asked any more: {MOST_REFUSALS} hosts of this program were refused"
        try:
            await ctx.require(Permission.NETWORK, url)
        except Waiting:  # the run could be stored until the answer comes, and the program could not
            self._refusals += 1
            return "a person can answer only later, and the program cannot wait for that: a rule has to allow the host"
        except ToolError as error:
            self._refusals += 1
            return error.message
        return ""
