"""What may be said by a provider, a tool or a source beside what it must say: the protocols hold for those of Forge."""

from __future__ import annotations

from forge import Scripted, Tool
from forge.core.provider import ExpectsCalls, HasWindow, expects_calls, window_of
from forge.core.registry import ReportsProblems
from forge.core.secrets import HoldsSecrets
from forge.mcp.client.source import McpSource
from forge.models.fallback import Fallback
from forge.models.text_calls import TextCalls
from forge.openapi.source import OpenApi
from forge.scripts.folder import ScriptFolder
from forge.webhooks import WebhookTool


def provided(text: TextCalls, several: Fallback) -> list[ExpectsCalls]:
    return [text, several]


def secret(server: McpSource, api: OpenApi, hook: WebhookTool) -> list[HoldsSecrets]:
    return [server, api, hook]


def reported(server: McpSource, api: OpenApi, folder: ScriptFolder) -> list[ReportsProblems]:
    return [server, api, folder]


class Large:
    window = 200_000


class Vague:
    window = "large"


class Careful(Tool):
    """Do something once."""

    deduplicates_by_key = True

    def run(self, text: str) -> str:
        return text


large: HasWindow = Large()
vague: HasWindow = Vague()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
tokens: int = window_of(Large())
calls: bool = expects_calls(Scripted("done"))
