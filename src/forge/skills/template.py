"""The files of a new skill. They pass every check unchanged."""

from __future__ import annotations

_SKILL = """\
---
name: {name}
description: Say in a sentence or two what it does, and when to use it.
tags: [example]
metadata:
  forge:
    requires:
      bins: []
      env: {{required: [], one_of: [], optional: []}}
    egress_domains: []
    denied_tools: []
    guardrails:
      deny_commands: []
      deny_output: []
---
# {title}

Write here what an agent needs to know to do this well: the steps, in order; what to check first; what to avoid; how it
can tell that it is done. It reads this text only when it needs the skill, so be as clear as to a colleague.

## Tool: {tool}
Repeats a text. Say what the tool does, and when to use it.

**Input:**
- text (str): What to repeat.
- times (int) = 1: How often.

**Output:** JSON: `result` is the repeated text.
"""

_SCRIPT = '''\
"""Repeats a text."""

import json
import sys


def execute(text: str, times: int) -> dict[str, str]:
    return {"result": " ".join([text] * times)}


if __name__ == "__main__":
    # Arguments arrive as JSON on stdin. The output is the result. stderr is shown while the tool runs.
    print(json.dumps(execute(**json.load(sys.stdin))))
'''


def files_of(name: str) -> dict[str, str]:
    """Returns the texts of the files by their path inside the skill's folder."""
    tool = tool_of(name)
    title = name.replace("-", " ").capitalize()
    return {
        "SKILL.md": _SKILL.format(name=name, title=title, tool=tool),
        f"scripts/{tool}.py": _SCRIPT,
    }


def tool_of(name: str) -> str:
    """Returns the name of the example tool, which begins with a letter."""
    word = "_".join(filter(None, name.split("-"))) + "_repeat"
    return (word if word[0].isalpha() else f"skill_{word}")[:64]
