"""Protocols by which others reach an agent of Forge, and formats that they share: conformance by their own judges."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from scores.report import Missing, Row, Score

SOURCE = "npm @agentclientprotocol/sdk 2.4.0 (its JSON Schema, v1), PyPI ag-ui-protocol, skills-ref"
MEASURES = (
    "The verdicts of each protocol's own validator, SDK or schema. For Slack and Telegram only of shapes that we wrote"
    " ourselves, and of the methods that their channels call: no judge of theirs."
)


def run() -> Score:
    rows = [*acp(), *agui(), *chats(), *skills()]
    return Score("doors", SOURCE, MEASURES, rows)


def acp() -> list[Row]:
    """The Agent Client Protocol: a session with the SDK's own client, judged by the published schema."""
    from scores.acp import judge

    found = judge()
    return [
        Row(
            "ACP: messages of a session, both ways, that fit the published schema",
            found.messages - len(found.wrong),
            found.messages,
            failures=found.wrong,
        ),
        Row(
            "ACP: methods of the stable protocol that Forge offers or uses",
            found.methods - len(found.unused),
            found.methods,
            failures=found.unused,
        ),
        Row(
            "ACP: kinds of updates that Forge sends",
            found.updates - len(found.unsent),
            found.updates,
            failures=found.unsent,
        ),
    ]


def chats() -> list[Row]:
    """Slack and Telegram: a conversation with each, whose requests are judged by our own shapes of their APIs."""
    from scores.chats import judge

    rows = []
    for kind, name in (("slack", "Slack"), ("telegram", "Telegram")):
        found = judge(kind)
        fitting = found.requests - len(found.wrong)
        used = found.methods - len(found.unused)
        shaped = f"{name}: requests of a conversation that fit our own shapes of its API"
        rows.append(Row(shaped, fitting, found.requests, failures=found.wrong))
        rows.append(Row(f"{name}: methods of its channel that were used", used, found.methods, failures=found.unused))
    return rows


def agui() -> list[Row]:
    """AG-UI: a session over HTTP, each event judged by the SDK's models, and the order of all."""
    from scores.agui import judge

    found = judge()
    return [
        Row(
            "AG-UI: events of a session that fit the SDK's models, in the order of the protocol",
            found.events - len(found.wrong),
            found.events,
            failures=found.wrong,
        ),
        Row(
            "AG-UI: kinds of events that Forge sends",
            found.kinds - len(found.unsent),
            found.kinds,
            failures=found.unsent,
        ),
    ]


def skills() -> list[Row]:
    """Agent Skills: generated valid and broken skills, judged by the reference validator and by Forge."""
    from scores.skills import judge

    try:
        judged_by = f"skills-ref {version('skills-ref')}"
    except PackageNotFoundError:
        raise Missing("skills-ref cannot be installed") from None
    cases, valid, unlike, unused = judge()
    verdicts = f"Agent Skills: verdicts of `forge skill check` like those of {judged_by}"
    return [
        Row(verdicts, cases - len(unlike), cases, failures=unlike),
        Row("Agent Skills: valid skills that Forge can use", valid - len(unused), valid, failures=unused),
    ]
