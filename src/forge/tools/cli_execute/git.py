"""Finds Git options and subcommands that start other programs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from forge.workspace.paths import PathValidator

_VALUED = frozenset({"-C", "--work-tree", "--namespace", "--super-prefix", "--attr-source"})
_BEFORE = ("-c", "--config-env", "--exec-path=", "--git-dir", "--bare")
_REFUSED = frozenset(
    "citool credential credential-cache credential-store cvsserver daemon difftool fast-import filter-branch"
    " filter-repo for-each-repo gui hook http-backend instaweb maintenance mergetool p4 receive-pack remote-ext"
    " remote-fd send-email shell sh-setup sh-i18n svn upload-archive upload-pack web--browse".split()
)
_WITH = {"bisect": "run", "submodule": "foreach"}
_LONG = "exec ext-diff extcmd open-files-in-pager receive-pack unsafe-paths upload-pack".split()
_LONG_OF = {"clone": ("config", "template"), "init": ("template",)}
_SHORT = {"clone": "cu", "grep": "O", "rebase": "x"}
_TRANSPORT = re.compile(r"(?:^|[=\s])(?:ext|fd)::")
_READS_CONFIG = frozenset("--get --get-all --get-regexp --get-urlmatch --list -l get list".split())
_OWN_SETTINGS = frozenset({"user.name", "user.email"})


def find_git_flag(args: Sequence[str], paths: PathValidator) -> tuple[int, str] | None:
    """Returns the first argument that makes Git start a program of the caller's choice, with its index."""
    directory = str(paths.workspace)
    index = 0
    while index < len(args) and args[index].startswith("-"):
        if args[index].startswith(_BEFORE):
            return index, f'"{args[index]}"'
        if args[index] == "-C" and index + 1 < len(args):
            directory = os.path.join(directory, args[index + 1])
        index += 2 if args[index] in _VALUED else 1
    if _passes_for_repository(directory, str(paths.workspace)):
        return -1, "a directory that looks like a repository and has no .git"
    found = _find_in_subcommand(args[index:])
    return None if found is None else (index + found, f'"{args[index + found]}"')


def _find_in_subcommand(words: Sequence[str]) -> int | None:
    name, more = (words[0], words[1:]) if words else ("", ())
    if name in _REFUSED or name.startswith("remote-") or _WITH.get(name, "\0") in more:
        return 0
    if name == "config":
        return None if _only_reads(more) else 0
    listed = (at for at, word in enumerate(words) if at and (_TRANSPORT.search(word) or _is_listed(word, name)))
    return next(listed, None)


def _passes_for_repository(directory: str, workspace: str) -> bool:
    """Returns True if Git would use a repository here that a tool may have filled: settings start programs."""
    directory = os.path.normpath(directory)
    while not os.path.lexists(os.path.join(directory, ".git")):
        if os.path.lexists(os.path.join(directory, "HEAD")):
            return True
        if directory in (workspace, os.path.dirname(directory)):
            return False
        directory = os.path.dirname(directory)
    return False


def _only_reads(words: Sequence[str]) -> bool:
    if _READS_CONFIG & set(words) and not {"--edit", "-e"} & set(words):
        return True
    named = [word for word in words if not word.startswith("-")]
    return (len(named) == 1 and len(words) == 1) or (bool(named) and named[0] in _OWN_SETTINGS)


def _is_listed(word: str, name: str) -> bool:
    if word.startswith("--"):
        long = word[2:].partition("=")[0]
        return bool(long) and any(one.startswith(long) for one in (*_LONG, *_LONG_OF.get(name, ())))
    letters = word[1:] if word.startswith("-") else ""
    return any(letter in _SHORT.get(name, "") for letter in letters)
