"""Git commands that only read, in repositories whose settings name no program.

A repository's own settings (`.git/config`) can name programs that `git status` or `git diff` start: a monitor, filters,
text converters, an external diff. Many of these keys hold a name of their own, so that no list of overrides has them
all. Here every key must be known to be harmless; otherwise the command does not count as reading only.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from functools import lru_cache

from forge.permissions.shell.literal_line import split_literal
from forge.permissions.shell.read_only.flags import GIT, GIT_LISTS, HISTORY_OPTIONS, Operands, paths_of

LARGEST_SETTINGS = 256 * 1024  # bytes
LARGEST_INDEX = 64 * 1024 * 1024

_BEFORE = ("--no-pager", "--no-optional-locks", "-P", "--literal-pathspecs")
_LOOKS_AT_SUBMODULES = frozenset({"status", "diff", "describe", "stash"})
_STARTS_GPG = re.compile(r"%G|%\(signature")
_HEADER = re.compile(r'\[(?P<section>[A-Za-z0-9-]+)(?:[ \t]+(?P<name>"(?:[^"\\]|\\.)*"))?\][ \t]*')
_KEY = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=.*)?")
_GITLINK = b"\x00\x00\xe0\x00"  # the mode of a submodule in an index


def _keys(section: str, names: str, *, is_named: bool = False) -> set[tuple[str, bool, str]]:
    return {(section, is_named, name) for name in names.split()}


_HARMLESS = frozenset(
    _keys(
        "core",
        "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol"
        " safecrlf quotepath abbrev compression bigfilethreshold sharedrepository preloadindex untrackedcache longpaths"
        " protecthfs protectntfs whitespace commentchar fscache hidedotfiles",
    )
    | _keys("remote", "url fetch pushurl tagopt prune gh-resolved", is_named=True)
    | _keys("branch", "remote merge rebase description pushremote vscode-merge-base gh-merge-base", is_named=True)
    | _keys("branch", "sort autosetuprebase autosetupmerge")
    | _keys("submodule", "url active", is_named=True)
    | _keys("submodule", "active recurse")
    | _keys("user", "name email signingkey")
    | _keys("author", "name email")
    | _keys("committer", "name email")
    | _keys("init", "defaultbranch")
    | _keys("pull", "rebase ff")
    | _keys("push", "default autosetupremote followtags")
    | _keys("fetch", "prune prunetags")
    | _keys("rebase", "autostash autosquash")
    | _keys("merge", "conflictstyle ff")
    | _keys("rerere", "enabled autoupdate")
    | _keys("gc", "auto autodetach")
    | _keys("maintenance", "auto strategy")
    | _keys("color", "ui diff status branch log grep")
    | _keys("status", "short branch showuntrackedfiles")
    | _keys("diff", "renames algorithm colormoved mnemonicprefix noprefix context")
    | _keys("log", "date decorate abbrevcommit follow")
    | _keys("commit", "gpgsign")
    | _keys("tag", "gpgsign sort")
    | _keys("index", "version")
    | _keys("extensions", "objectformat worktreeconfig")
    | _keys("lfs", "repositoryformatversion")
)


def git_reads(words: Sequence[str], directory: str, root: str) -> list[str] | None:
    """Returns the paths that a Git command reads in a directory of the workspace `root`; None if it may do more."""
    while words and words[0] in _BEFORE:
        words = words[1:]
    if not words or any(_STARTS_GPG.search(word) for word in words):
        return None
    name, more = words[0], words[1:]
    flags = GIT.get(name)
    if more and (two := GIT_LISTS.get(f"{name} {more[0]}")):
        flags, more = two, more[1:]
    elif flags is None and name in GIT_LISTS:
        flags = GIT_LISTS[name]
        if name in ("branch", "tag") and ("--list" in more or "-l" in more):
            flags = flags._replace(operands=Operands.TEXT)
    paths = paths_of(more, flags) if flags else None
    if paths is None or not _is_safe(directory, root, looks_at_submodules=_may_enter(name, more)):
        return None
    return [*paths, "."]


def is_harmless_repository(directory: str, root: str, name: str, words: Sequence[str]) -> bool:
    """Returns whether a Git command in a directory of the workspace `root` starts no program that it names."""
    return _is_safe(directory, root, looks_at_submodules=_may_enter(name, words))


def _may_enter(name: str, words: Sequence[str]) -> bool:
    """Returns whether the command runs Git in submodules too, by their settings."""
    return name in _LOOKS_AT_SUBMODULES and not {"--ignore-submodules", "--ignore-submodules=all"} & set(words)


def _is_safe(directory: str, root: str, *, looks_at_submodules: bool) -> bool:
    """Returns whether the repository is real, not filled by a tool, and its settings name no program."""
    found = find_repository(directory, root)
    own = _directory(os.path.join(found, ".git")) if found else None
    if own is None:
        return found == ""
    shared = _follow_pointer(own, os.path.join(own, "commondir"), "") or own
    settings = {os.path.join(shared, "config"), *(os.path.join(one, "config.worktree") for one in (own, shared))}
    if os.path.lexists(os.path.join(shared, "hooks", "post-index-change")):
        return False
    return all(map(_is_harmless, settings)) and not (looks_at_submodules and _has_submodules(own))


def find_repository(directory: str, root: str) -> str | None:
    """Returns the directory with the `.git` that Git uses; "" if there is none up to the root.

    None: a directory passes for a repository without one. A tool may have filled it, and its settings start programs.
    """
    directory = os.path.normpath(directory)
    while not os.path.lexists(os.path.join(directory, ".git")):
        if os.path.lexists(os.path.join(directory, "HEAD")):
            return None
        if directory in (root, os.path.dirname(directory)):
            return ""
        directory = os.path.dirname(directory)
    return directory


def _directory(path: str) -> str | None:
    """Returns the directory of a repository, also where `.git` is a file that names it."""
    return path if os.path.isdir(path) else _follow_pointer(os.path.dirname(path), path, "gitdir: ")


def _follow_pointer(start: str, path: str, prefix: str) -> str | None:
    content = _content(path, 4_096)
    text = os.fsdecode(content).rstrip("\r\n") if content else ""  # as Git reads it: a blank is part of the name
    return os.path.join(start, text.removeprefix(prefix)) if text.startswith(prefix) and text else None


def _is_harmless(path: str) -> bool:
    """Returns whether a settings file has only keys that name no program; a missing file has none."""
    if not os.path.lexists(path):
        return True
    content = _content(path, LARGEST_SETTINGS)
    return content is not None and _has_known_keys(content)


@lru_cache(maxsize=64)
def _has_known_keys(content: bytes) -> bool:
    section, is_named = "", False
    for line in content.decode("utf-8", "replace").split("\n"):
        text = line.strip(" \t\r")
        if header := _HEADER.match(text):
            section, is_named = header["section"].lower(), header["name"] is not None
            text = text[header.end() :]
        if not text or text[0] in "#;":
            continue
        found = _KEY.fullmatch(text)
        if found is None or text.endswith("\\") or (section, is_named, found["key"].lower()) not in _HARMLESS:
            return False
    return True


def _has_submodules(own: str) -> bool:
    """Returns whether the index may name a submodule; an index that cannot be read may."""
    path = os.path.join(own, "index")
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    if any(name.startswith("sharedindex.") for name in os.listdir(own)):
        return True
    return _names_submodule(path, found.st_ino, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=64)
def _names_submodule(path: str, number: int, changed: int, size: int) -> bool:
    content = _content(path, LARGEST_INDEX)
    return content is None or _GITLINK in content


def _content(path: str, most: int) -> bytes | None:
    """Returns a regular file's content; None if it is not one, cannot be read or is larger."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(found.st_mode) and found.st_size <= most else None


# Commands that show earlier versions of files. A sandbox hides a file of the work tree, not its versions in the
# repository. Where a rule denies reading, a Git command that may show content counts as reading only if it names the
# files that it shows, and each was judged by itself.

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
    """Returns whether a line that only reads may show content which is hidden in the work tree."""
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
    """Returns whether a word of `git log` adds no content to the output."""
    if word.startswith("--") and len(word) > len("--"):
        return word[2:].partition("=")[0] in HISTORY_OPTIONS
    return (
        not word.startswith("-") or word == "--" or word[1:].isdecimal() or re.fullmatch(r"-n[0-9]*", word) is not None
    )


def _names_files(words: Sequence[str], run_in: str) -> bool:
    """Returns whether a command shows nothing but files that it names, of the commits that lead here."""
    if "--follow" in words or any(word.startswith("-L") and ":" in word for word in words):
        return False
    split = list(words).index("--") if "--" in words else len(words)
    before = [word for word in words[:split] if not word.startswith("-")]
    named = [word for word in before if not _COMMIT.fullmatch(word)]
    files = [*named, *words[split + 1 :]]
    return bool(files) and all(
        not _PATTERN.search(file) and os.path.isfile(os.path.join(run_in, file)) for file in files
    )
