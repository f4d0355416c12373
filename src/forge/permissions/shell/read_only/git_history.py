"""Finds Git commands that show earlier versions of files, among them files that a rule denies to read.

A sandbox hides a file of the work tree, not its versions in the repository. Where a rule denies reading, a Git command
that may show content counts as reading only if it names the files that it shows, and each was judged by itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from forge.permissions.shell.literal_line import split_literal
from forge.permissions.shell.read_only.flags import HISTORY_OPTIONS

_TELLS_NAMES = frozenset(
    "branch check-ignore count-objects describe for-each-ref ls-files ls-tree merge-base name-rev remote rev-parse"
    " shortlog show-ref status tag version worktree".split()
)
_TELLS_COMMITS = frozenset({"log", "rev-list", "reflog", "whatchanged", "stash list"})
_SHOWS_NAMED_FILES = frozenset({"diff", "log", "blame"})
_COMMIT = re.compile(r"(?:HEAD|@)[~^0-9]*")
_GIT = re.compile(r"\bgit\b")
_PATTERN = re.compile(r"[*?\[\\:]")  # to Git a file's name may be a pattern
_SHOWS_OBJECTS = re.compile(r"raw|contents", re.IGNORECASE)  # %(raw) of a reference that names a file's content


def may_show_withheld(line: str, workspace: str, directory: str) -> bool:
    """Says whether a line that only reads may show content which is hidden in the work tree."""
    run_in = os.path.join(workspace, directory)
    found = split_literal(line)
    if not found:
        return bool(_GIT.search(line))  # what its words stand for is not known
    return any(_may_show(part.words, run_in) for part in found)


def _may_show(words: Sequence[str], run_in: str) -> bool:
    if "git" not in words:
        return False
    rest = list(words[list(words).index("git") + 1 :])
    while rest and rest[0].startswith("-"):
        del rest[0]
    if not rest:
        return False
    name, more = rest[0], rest[1:]
    if name in _TELLS_NAMES:
        return any(map(_SHOWS_OBJECTS.search, more)) or (
            name == "status" and bool({"-v", "--verbose"} & _letters(more))
        )
    if (name in _TELLS_COMMITS or f"{name} {' '.join(more[:1])}" in _TELLS_COMMITS) and all(map(_tells_commits, more)):
        return False
    return name not in _SHOWS_NAMED_FILES or not _names_files(more, run_in)


def _letters(words: Sequence[str]) -> set[str]:
    """Returns the options, with each letter of a cluster as one of its own."""
    clusters = (word for word in words if word.startswith("-") and not word.startswith("--"))
    return {*words, *(f"-{letter}" for word in clusters for letter in word[1:])}


def _tells_commits(word: str) -> bool:
    """Says whether a word of `git log` adds no content to the output."""
    if word.startswith("--") and len(word) > len("--"):
        return word[2:].partition("=")[0] in HISTORY_OPTIONS
    return (
        not word.startswith("-") or word == "--" or word[1:].isdecimal() or re.fullmatch(r"-n[0-9]*", word) is not None
    )


def _names_files(words: Sequence[str], run_in: str) -> bool:
    """Says whether a command shows nothing but files that it names, of the commits that lead here."""
    if "--follow" in words or any(word.startswith("-L") and ":" in word for word in words):
        return False
    split = list(words).index("--") if "--" in words else len(words)
    before = [word for word in words[:split] if not word.startswith("-")]
    named = [word for word in before if not _COMMIT.fullmatch(word)]
    files = [*named, *words[split + 1 :]]
    return bool(files) and all(
        not _PATTERN.search(file) and os.path.isfile(os.path.join(run_in, file)) for file in files
    )
