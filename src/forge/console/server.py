"""The console's server: its routes, and how they are served."""

from __future__ import annotations

from collections.abc import Callable
from socket import socket
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from forge.console import page_files
from forge.console.api import apps as app_pages
from forge.console.api import memory as memory_pages
from forge.console.api import policy as policy_pages
from forge.console.api import project as project_pages
from forge.console.api import questions as question_pages
from forge.console.api import run_list as list_pages
from forge.console.api import runs as run_pages
from forge.console.api import schedules as schedule_pages
from forge.console.api import sessions as session_pages
from forge.console.api import tools as tool_pages
from forge.console.api import trends as trend_pages
from forge.console.api.event_stream import Stream
from forge.console.api.requests import LOOK_AGAIN, Answering, json_response, make_endpoint
from forge.console.console_state import ConsoleState
from forge.console.guard import APPS, ConsoleGuard, Entrance
from forge.network.serve import serve_app

GET: dict[str, Answering] = {
    "/api/apps/{tool}": app_pages.show_app,
    "/api/me": project_pages.show_me,
    "/api/overview": project_pages.show_overview,
    "/api/questions": question_pages.list_questions,
    "/api/questions/{id}": question_pages.show_question,
    "/api/runs": list_pages.list_runs,
    "/api/cases": list_pages.download_cases,
    "/api/runs/{id}": run_pages.show_run,
    "/api/runs/{id}/events": run_pages.show_events,
    "/api/runs/{id}/events/{number:int}": run_pages.show_event,
    "/api/runs/{id}/events/{number:int}/attachments/{index:int}": run_pages.show_attachment,
    "/api/runs/{id}/messages": run_pages.show_messages,
    "/api/runs/{id}/export": run_pages.export_run,
    "/api/runs/{id}/files/{name:path}": run_pages.show_file,
    "/api/runs/{id}/undo": run_pages.show_changes,
    "/api/sessions": session_pages.list_sessions,
    "/api/sessions/{name}": session_pages.show_session,
    "/api/sessions/{name}/events": session_pages.show_session_events,
    "/api/sessions/{name}/messages": session_pages.show_session_messages,
    "/api/sessions/{name}/turns": session_pages.show_session_turns,
    "/api/tools": tool_pages.list_tools,
    "/api/tools/{name}": tool_pages.show_tool,
    "/api/policy": policy_pages.show_policy,
    "/api/denials": policy_pages.show_denials,
    "/api/schedules": schedule_pages.list_schedules,
    "/api/memory": memory_pages.search_memory,
    "/api/memory/note": memory_pages.show_note,
    "/api/workers": project_pages.show_workers,
    "/api/trends": trend_pages.show_trends,
}
POST: dict[str, Answering] = {
    "/api/questions/{id}/answer": question_pages.answer_question,
    "/api/questions/{id}/check": question_pages.check_answer,
    "/api/runs": run_pages.begin_run,
    "/api/runs/migrate": run_pages.migrate_runs,
    "/api/runs/questions": list_pages.list_selected_questions,
    "/api/runs/retry": list_pages.retry_runs,
    "/api/runs/delete": list_pages.delete_runs,
    "/api/runs/{id}/mark": list_pages.mark_answer,
    "/api/runs/{id}/cancel": run_pages.cancel_run,
    "/api/runs/{id}/resume": run_pages.resume_run,
    "/api/runs/{id}/answer": run_pages.answer_run,
    "/api/runs/{id}/send": run_pages.send_message,
    "/api/runs/{id}/undo": run_pages.undo_run,
    "/api/runs/{id}/rerun": run_pages.rerun,
    "/api/sessions/{name}/fork": run_pages.fork_session,
    "/api/sessions/{name}/rewind": session_pages.rewind_session,
    "/api/tools/{name}/call": tool_pages.call_tool,
    "/api/tools/{name}/check": tool_pages.check_call,
    "/api/tools/{name}/copy": tool_pages.copy_call,
    "/api/policy/explain": tool_pages.explain_call,
    "/api/policy/rule": policy_pages.add_rule,
    "/api/memory/note": memory_pages.add_note,
    "/api/schedules": schedule_pages.add_schedule,
    "/api/schedules/{id}/remove": schedule_pages.remove_schedule,
    "/api/schedules/{id}/pause": schedule_pages.pause_schedule,
    "/api/schedules/{id}/resume": schedule_pages.resume_schedule,
    "/api/schedules/{id}/run": schedule_pages.run_schedule,
}


_METHODS = "Use GET to read and POST to change something."


def make_app(console: ConsoleState, entrance: Entrance, port: int) -> ASGIApp:
    """Returns the guarded application. The console must be open while it is used."""
    routes = [
        Route("/", page_files.show_index),
        Route("/static/{path:path}", page_files.show_file),
        Route("/favicon.ico", page_files.show_icon),
        Route("/api/stream", Stream(console.hub)),
        Route(f"{APPS}{{tool}}", app_pages.AppFrame(console).__call__),
    ]
    routes += [Route(path, make_endpoint(console, answer), methods=["GET"]) for path, answer in GET.items()]
    routes += [Route(path, make_endpoint(console, answer), methods=["POST"]) for path, answer in POST.items()]
    inside = Starlette(routes=routes, exception_handlers={HTTPException: _not_found})
    return ConsoleGuard(_Undecoded(inside), entrance, port)


async def serve(app: ASGIApp, console: ConsoleState, listening: socket, ready: Callable[[], None]) -> None:
    """Serves until it is cancelled; then everything ends within a few seconds."""
    settings: dict[str, Any] = {"date_header": False, "proxy_headers": False, "lifespan": "off"}
    await serve_app(app, listening, ready, console.hub.close, **settings)


class _Undecoded:
    """Routes undecoded addresses: a `/` that was sent as %2F does not end a name."""

    def __init__(self, inside: ASGIApp) -> None:
        self.inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        await self.inside({**scope, "path": raw.partition(b"?")[0].decode("latin-1")}, receive, send)


async def _not_found(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        told = {
            "what": f"{request.method} is not allowed for this address",
            "why": "validation_error",
            "next": _METHODS,
        }
    else:
        told = {"what": "there is nothing at this address", "why": "not_found", "next": LOOK_AGAIN}
    return json_response({"error": told}, status)
