"""Approve effects instead of command lines: a program runs as a trial, and a function decides about what it did.

Run it: `python examples/trial_run.py`. It needs no model and no key.
"""

import asyncio
import tempfile
from pathlib import Path

from forge import Agent, Answer, PermissionRequest, Scope, rules
from forge.tools.bash import Bash


async def decide(request: PermissionRequest) -> Answer:
    """Apply everything but deletions."""
    if request.effects is None:  # no trial is possible here: the question is about the line itself
        return Answer.no("only trial runs are approved")
    print(f"asked: it {request.effects.summary}")
    return Answer.some([path for kind, path in request.effects.files if kind != "delete"])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        (workspace / "old.txt").write_text("old\n")
        agent: Agent = Agent(
            None,
            tools=[Bash()],
            policy=rules("allow read", "allow effects write build/**"),
            approve=decide,
            scope=Scope(workspace=workspace),
        )
        for line in ("python3 -c 'print(6 * 7)'", "mkdir -p build; echo 1 > build/out", "rm old.txt; echo 2 > new.txt"):
            result = asyncio.run(agent.call("bash", {"command": line}))
            print(f"$ {line}\n{result.for_llm}")
        print(sorted(path.name for path in workspace.glob("*.txt")))


if __name__ == "__main__":
    main()
