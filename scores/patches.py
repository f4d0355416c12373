"""Real changes as calls of `file_edit` and `file_patch`, damaged as models do, beside the algorithms of others.

The changes are the solutions of the polyglot exercises and commits of public repositories, from clones in a folder
that the user names: they are not redistributed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from forge.core.context import Scope
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.tools.file_edit import FileEdit
from forge.tools.file_patch import FilePatch
from scores.patch_calls import DAMAGES, FORMS, NONE, Change, make_change, render
from scores.patch_peers import Peer, find_peers
from scores.report import Missing, NotGiven, Row, Score

VARIABLE = "FORGE_SCORES_REPOS"
EXERCISES = ("polyglot-benchmark", "7e0611e77b54e2dea774cdc0aa00cf9f7ed6144f")
PROJECTS = (  # the folder, the newest commit that is looked at, the files
    ("flask", "2ac89889f4cc330eabd50f295dcef02828522c69", "*.py"),
    ("express", "a3714473feb3d2908add734d340e7755fd85e0a3", "*.js"),
    ("gin", "dcaa4296d111981ffb31ac3eba90bb63e1eb5ab9", "*.go"),
)
COMMITS = 70  # of each project
PEERS_EVERY = 20  # others take seconds for a file: they get the calls of so many files less
SAMPLE = "Forge, the same files"
LARGEST = 60_000  # characters of a file
SOURCE = (
    "github.com/Aider-AI/polyglot-benchmark and the newest 70 commits of each of pallets/flask, expressjs/express and"
    " gin-gonic/gin at fixed commits"
)
MEASURES = "Real changes as calls of `file_edit` and `file_patch`, right and damaged as models do: the file afterwards."
HOW = (
    f"clone {EXERCISES[0]}, {', '.join(name for name, _, _ in PROJECTS)} (and opencode, to measure it) into one folder,"
    f" then `{VARIABLE}=FOLDER make scores SUITE=patches`"
)
TITLES = {"edit": "file_edit", "diff": "file_patch, unified diff", "envelope": "file_patch, *** Begin Patch"}
NOTE = (
    "A call has all changes of one file: texts to replace, a unified diff, or an envelope, each with the three lines"
    " around a change, and more where they occur twice. The damages are ours. **Right**: the file has the expected"
    " bytes, blanks at line ends among them. **Refused**: the tool says so (others may have made a part of the changes"
    " by then). **Wrong**: it says that it succeeded, and the file is another. If a line of the file changed since, or"
    " was left out of the call, the expected file keeps that line. Damages that turn a call into another right one are"
    f" left out. The others, and Forge beside them, get the calls of one file in {PEERS_EVERY}: codex's own program,"
    " aider's functions for search and replace and for unified diffs, the replacers of opencode's edit tool."
)


class Case(NamedTuple):
    """One file before and after a change."""

    name: str
    suffix: str
    before: str
    after: str


@dataclass
class Tally:
    """How the calls of one kind ended, for one program."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # by damage and outcome
    wrong: list[str] = field(default_factory=list)
    refused_right: list[str] = field(default_factory=list)

    def add(self, case: str, damage: str, outcome: str, said: str) -> None:
        self.counts[damage, outcome] += 1
        if outcome == "wrong":
            self.wrong.append(f"{case}: {damage}")
        elif outcome == "refused" and damage == NONE:
            self.refused_right.append(f"{case}: {said}")

    def count(self, outcome: str, *, damaged: bool) -> int:
        return sum(
            number for (damage, one), number in self.counts.items() if one == outcome and damaged is (damage != NONE)
        )

    def total(self, *, damaged: bool) -> int:
        return sum(self.count(outcome, damaged=damaged) for outcome in ("right", "refused", "wrong"))


def run() -> Score:
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        raise NotGiven(f"no folder with the repositories was given: {HOW}")
    cases = [*read_exercises(Path(folder)), *read_commits(Path(folder))]
    with tempfile.TemporaryDirectory() as place:
        peers, absent = find_peers(Path(folder), Path(place))
        tallies = measure(cases, peers, Path(place) / "workspace")
    notes = [NOTE, f"{count_cases(cases)}."]
    notes += [f"Not measured: {'; '.join(absent)}."] if absent else []
    notes += [make_table(form, tallies[form]) for form in FORMS]
    return Score(
        "patches", SOURCE, MEASURES, [row for form in FORMS for row in make_rows(form, tallies[form])], notes=notes
    )


def count_cases(cases: Sequence[Case]) -> str:
    counts = Counter(case.name.partition(" ")[0] for case in cases)
    return f"{len(cases):,} files: {', '.join(f'{name} {number}' for name, number in counts.items())}"


def measure(cases: Sequence[Case], peers: Sequence[Peer], workspace: Path) -> dict[str, dict[str, Tally]]:
    """Plays every call of every case, by form and program; Forge's name is the empty one."""
    workspace.mkdir()
    tallies = {form: {name: Tally() for name in ("", *_columns(peers, form))} for form in FORMS}
    executor = ToolExecutor(ToolRegistry([FileEdit(), FilePatch()]), [])
    with asyncio.Runner() as runner:
        for index, case in enumerate(cases):
            change = make_change(case.before, case.after, case.suffix)
            if change is None:
                continue
            for form in FORMS:
                for damage, damaged in damage_change(change, form):
                    path = workspace / f"file{case.suffix}"
                    before, expected = damaged.file_before(), damaged.file_after()
                    call = render(damaged, form, path.name)
                    path.write_bytes(before)
                    result = runner.run(
                        executor.execute(ToolCall(*_arguments(form, call, path.name)), Scope(workspace=workspace))
                    )
                    said = "" if result.success else result.for_llm
                    outcome = judge(said, path.read_bytes(), expected)
                    tallies[form][""].add(case.name, damage, outcome, said)
                    if index % PEERS_EVERY == 0 and SAMPLE in tallies[form]:
                        tallies[form][SAMPLE].add(case.name, damage, outcome, said)
                    for peer in peers:
                        if index % PEERS_EVERY == 0 and peer.form == form:
                            path.write_bytes(before)
                            said = peer.apply(path, call)
                            tallies[form][peer.name].add(
                                case.name, damage, judge(said, path.read_bytes(), expected), said
                            )
    return tallies


def _columns(peers: Sequence[Peer], form: str) -> list[str]:
    """Who is measured on the sample: Forge and the others, if there are any."""
    names = [peer.name for peer in peers if peer.form == form]
    return [SAMPLE, *names] if names else []


def damage_change(change: Change, form: str) -> Iterator[tuple[str, Change]]:
    """The change as it is, and with each damage that fits it."""
    yield NONE, change
    for name, damage in DAMAGES.items():
        damaged = damage.make(change) if form in damage.forms else None
        if damaged is not None:
            yield name, damaged


def judge(refusal: str, found: bytes, expected: bytes) -> str:
    return "refused" if refusal else "right" if found == expected else "wrong"


def _arguments(form: str, call: str | list[tuple[str, str]], path: str) -> tuple[str, dict[str, object]]:
    if isinstance(call, str):
        return "file_patch", {"patch": call}
    return "file_edit", {"path": path, "edits": [{"old_text": old, "new_text": new} for old, new in call]}


def make_rows(form: str, tallies: Mapping[str, Tally]) -> list[Row]:
    """The rows of one form: right calls, then damaged ones in their three outcomes."""
    ours, title = tallies[""], TITLES[form]

    def others(*outcomes: tuple[str, bool]) -> str:
        """The shares of those that were measured on the sample."""
        shares = []
        for name, tally in tallies.items():
            total = sum(tally.total(damaged=damaged) for damaged in {damaged for _, damaged in outcomes})
            found = sum(tally.count(outcome, damaged=damaged) for outcome, damaged in outcomes)
            shares += [f"{name}: {found:,} of {total:,}"] if name else []
        return ", ".join(shares)

    damaged = ours.total(damaged=True)
    return [
        Row(
            f"{title}: right calls applied",
            ours.count("right", damaged=False),
            ours.total(damaged=False),
            others(("right", False)),
            ours.refused_right,
        ),
        Row(
            f"{title}: damaged calls applied right",
            ours.count("right", damaged=True),
            damaged,
            others(("right", True)),
        ),
        Row(
            f"{title}: damaged calls refused",
            ours.count("refused", damaged=True),
            damaged,
            others(("refused", True)),
            fewer_is_better=True,
        ),
        Row(
            f"{title}: calls applied wrong",
            len(ours.wrong),
            damaged + ours.total(damaged=False),
            others(("wrong", False), ("wrong", True)),
            ours.wrong,
            fewer_is_better=True,
        ),
    ]


def make_table(form: str, tallies: Mapping[str, Tally]) -> str:
    """How many calls of each damage were applied right, refused and wrong."""
    names = [name or "Forge" for name in tallies]
    lines = [
        f"{TITLES[form]}: right / refused / wrong",
        "",
        f"| damage | {' | '.join(names)} |",
        f"|---|{'---:|' * len(names)}",
    ]
    for damage in (NONE, *DAMAGES):
        cells = [
            " / ".join(f"{tally.counts[damage, outcome]:,}" for outcome in ("right", "refused", "wrong"))
            for tally in tallies.values()
        ]
        if any(cell != "0 / 0 / 0" for cell in cells):
            lines.append(f"| {damage} | {' | '.join(cells)} |")
    return "\n".join(lines)


def read_exercises(folder: Path) -> list[Case]:
    """The stub and the solution of every file of every exercise."""
    name, commit = EXERCISES
    repository = Repository(folder, name, commit)
    cases = []
    for path in repository.list_files(commit):
        if not path.endswith("/.meta/config.json"):
            continue
        root = path.removesuffix(".meta/config.json")
        files = json.loads(repository.read(f"{commit}:{path}"))["files"]
        for stub in files.get("solution", ()):
            suffix = Path(stub).suffix
            example = next((one for one in files.get("example", ()) if Path(one).suffix == suffix), None)
            if example is not None and suffix != ".toml":
                before, after = (repository.read(f"{commit}:{root}{one}") for one in (stub, example))
                cases.append(Case(f"exercises {root}{stub}", suffix, before, after))
    return [case for case in cases if is_usable(case)]


def read_commits(folder: Path) -> list[Case]:
    """The first file that fits of each of the newest commits of every project."""
    cases: list[Case] = []
    for name, commit, pattern in PROJECTS:
        repository = Repository(folder, name, commit)
        found: dict[str, Case] = {}
        for short, path, old, new in repository.list_changes(commit, pattern):
            if short in found:
                continue
            case = Case(f"{name} {short} {path}", Path(path).suffix, repository.read(old), repository.read(new))
            if is_usable(case):
                found[short] = case
            if len(found) == COMMITS:
                break
        cases += found.values()
    return cases


def is_usable(case: Case) -> bool:
    """Whether the file is text of usual size whose lines end with a newline, and the change can be said in a call."""
    texts = (case.before, case.after)
    plain = all(
        text.endswith("\n") and "\r" not in text and "\0" not in text and len(text) <= LARGEST for text in texts
    )
    return plain and make_change(case.before, case.after, case.suffix) is not None


class Repository:
    """A clone, with or without a work tree."""

    def __init__(self, folder: Path, name: str, commit: str) -> None:
        self.path = folder / name
        if not self.path.exists():
            raise Missing(f"{VARIABLE}={folder} has no {name}: {HOW}")
        self._git("cat-file", "-e", f"{commit}^{{commit}}")

    def list_files(self, commit: str) -> list[str]:
        return self._git("ls-tree", "-r", "--name-only", commit).decode().splitlines()

    def list_changes(self, commit: str, pattern: str) -> Iterator[tuple[str, str, str, str]]:
        """Yields commit, path, and the two contents' ids of every changed file, newest first."""
        listed = self._git(
            "log",
            "--no-merges",
            "--diff-filter=M",
            "--raw",
            "--no-abbrev",
            "--no-renames",
            "--format=%H",
            commit,
            "--",
            pattern,
        )
        short = ""
        for line in listed.decode("utf-8", "replace").splitlines():
            if line.startswith(":"):
                columns, _, path = line.partition("\t")
                _, _, old, new, _ = columns.split(" ")
                yield short, path, old, new
            elif line:
                short = line[:10]

    def read(self, name: str) -> str:
        """The text of a file; "" if it is not UTF-8."""
        try:
            return self._git("cat-file", "blob", name).decode()
        except UnicodeDecodeError:
            return ""

    def _git(self, *arguments: str) -> bytes:
        argv = ["git", "-c", "safe.directory=*", "-C", str(self.path), *arguments]
        ended = subprocess.run(argv, capture_output=True, check=False)
        if ended.returncode:
            raise Missing(
                f"git {arguments[0]} in {self.path}: {ended.stderr.decode(errors='replace').strip()[:200]}; {HOW}"
            )
        return ended.stdout
