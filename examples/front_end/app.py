"""A page that talks to a project's agent over AG-UI: `python examples/front_end/app.py [DIRECTORY]`."""

from __future__ import annotations

import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse

from forge import Agent, load_project
from forge.doors import agui_app


def make_app(agent: Agent, token: str) -> FastAPI:
    """Serves the page at /, and the agent at /agui/ for those who have the token."""
    front = agui_app(agent, token=token)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with front:
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/agui", front)

    @app.get("/")
    def page() -> FileResponse:
        policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
        headers = {"content-security-policy": f"{policy}; frame-ancestors 'none'; base-uri 'none'"}
        return FileResponse(Path(__file__).with_name("page.html"), headers=headers)

    return app


if __name__ == "__main__":
    made = secrets.token_urlsafe(32)
    print(f"http://127.0.0.1:8000/#{made}")  # what stands behind # is not sent to any server
    project = load_project(sys.argv[1] if len(sys.argv) > 1 else ".")
    uvicorn.run(make_app(project.agent(), made), host="127.0.0.1", port=8000, log_level="warning")
