"""Sends the damaged calls to one system, in its own environment, and counts how it takes them.

`python -m benchmarks.repair.judge NAME FOLDER` prints the counts as JSON. Nothing of Forge is imported for its peers.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import io
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.peer_behaviour import Observed, observe
from benchmarks.peer_systems import System, load

REPAIRED, EXPLAINED, REFUSED, WRONG = "repaired", "explained", "refused", "wrong"
UNDEFINED = "undefined"  # the system cannot make a tool of the function
_PLACES = ("line ", "column", "char ", "position", "expected", "expecting", "eof", "unterminated")
_WRAPPER = re.compile(r"""['"`]arguments['"`]|\barguments is not\b""")  # the key that should not be there, by its name


async def judge_calls(system: System, folder: Path, texts: frozenset[str]) -> dict[str, Any]:
    """Counts the verdicts by damage, with the first wrong call of each. `texts`: damages after which it is no JSON."""
    functions = load_functions(folder)
    counts: dict[str, Counter[str]] = {}
    examples: dict[str, str] = {}
    for line in (folder / "calls.jsonl").read_text(encoding="utf-8").splitlines():
        call = json.loads(line)
        damage = call["damage"]
        if damage in texts and not system.takes_text:
            continue
        try:
            observed = await observe(system, getattr(functions, call["function"]), [(call["function"], call["text"])])
        except Exception:  # each system has its own reasons
            verdict = UNDEFINED
        else:
            verdict = judge(observed, call, damage in texts)
            if verdict == WRONG:
                examples.setdefault(damage, f"{call['text'][:120]} → {observed.got[0]!r:.120}")
        counts.setdefault(damage, Counter())[verdict] += 1
    return {"counts": {damage: dict(found) for damage, found in counts.items()}, "wrong": examples}


def judge(observed: Observed, call: dict[str, Any], is_text: bool) -> str:
    """Says how a system took a damaged call, by what its function received and what the model was shown."""
    if observed.got:
        return REPAIRED if observed.got[0] == call["expected"] else WRONG
    if observed.ended or not observed.seen:
        return REFUSED
    said = observed.text
    named = any(_names_argument(said, name) for name in call["names"])
    if is_text:
        lower = said.lower()
        placed = "json" in lower and any(one in lower for one in _PLACES)
        named = placed or "should be an object" in lower or (named and "missing" in lower)
    elif _WRAPPER.search(said):
        named = True
    return EXPLAINED if named else REFUSED


def _names_argument(said: str, name: str) -> bool:
    """Says whether the text has the name. A name of one or two letters must stand in quotes, or begin a line."""
    around = (
        (r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])") if len(name) > 2 else (r"(?:^|['\"`\n.;] ?)", r"(?=['\"`\n:]|$)")
    )
    return re.search(around[0] + re.escape(name) + around[1], said) is not None


def load_functions(folder: Path) -> Any:
    """Imports the functions. Some systems read a function's source, so it must be a file."""
    spec = importlib.util.spec_from_file_location("damaged_functions", folder / "functions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["damaged_functions"] = module  # some systems look a function's module up
    spec.loader.exec_module(module)
    return module


def main() -> None:
    name, folder, *texts = sys.argv[1:]
    with contextlib.redirect_stdout(io.StringIO()):
        found = asyncio.run(judge_calls(load(name), Path(folder), frozenset(texts)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
