"""The page of `examples/front_end`, with a model that follows a script: `python -m tests.browser.front_end …`."""

from __future__ import annotations

import sys
from pathlib import Path

import uvicorn

from examples.front_end.app import make_app
from forge import load_project
from tests.browser.served import Scenes

if __name__ == "__main__":
    scenes, workspace, port, token = sys.argv[1:]
    app = make_app(load_project(workspace).agent(Scenes(Path(scenes))), token)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
