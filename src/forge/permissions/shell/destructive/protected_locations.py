"""Finds paths and devices that no command may destroy: the system, the home directory, the workspace and above."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator

from forge.core.context import Scope
from forge.permissions.shell.word_patterns import ANY, SOME, is_known
from forge.permissions.shell.words import GLOB
from forge.permissions.targets import paths

MOST = 8  # directories a command may run in

_SYSTEM = frozenset(
    f"/{name}"
    for name in (
        "bin boot dev etc home lib lib32 lib64 opt proc root run sbin srv sys usr var usr/bin usr/lib usr/sbin"
        " usr/local usr/share var/lib Applications Library System Users Volumes private"
    ).split()
)
_DISK = re.compile(
    r"/dev/(?:(?:sd|hd|vd|xvd)[a-z]|nvme\d|mmcblk\d|disk|rdisk|mapper/|dm-\d|md\d|loop\d|nbd\d|sr\d|mem$|kmem$|port$|root$)"
)
_FILES = re.compile(
    r"/etc/(?:passwd|shadow|group|gshadow|sudoers|fstab|hosts|crontab|ld\.so\.preload)$|/etc/sudoers\.d/|/boot/"
    r"|/proc/sysrq-trigger$|/proc/kcore$|/proc/sys/|/sys/firmware/"
)

# Where other processes have their root, directory and files: links that only look like names.
_OF_A_PROCESS = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(?:root|cwd|fd)(?:/|$)")


class Locations:
    """The paths that words of a line may name, seen from the directories it may be in."""

    def __init__(self, scope: Scope, directory: str, values: tuple[tuple[str, str], ...] = ()) -> None:
        self.values = values  # of variables
        self.doubts: list[str] = []  # programs whose targets are not known
        self.is_lost = False  # where the line is, is not known
        self.workspace = paths.roots(str(scope.workspace))
        self.home_directory = paths.normalise(paths.home_directory())
        self.directories: list[str] = [paths.normalise(os.path.join(self.workspace[0], directory))]
        self._before: list[str] = []  # where it is if a `cd` failed

    def change_directory(self, target: str) -> None:
        """Follows a `cd`."""
        ahead = [*self.possible_paths(target)]
        if ahead:
            self._before = [*self._before, *self.directories][:MOST]
            self.directories = ahead[:MOST]

    def begin_command(self, joint: str) -> None:
        """Begins the next command, which runs whether the `cd` worked or not unless it is joined by `&&`."""
        if joint != "&&" and self._before:
            self.directories = list(dict.fromkeys([*self._before, *self.directories]))[:MOST]
            self._before = []

    def possible_paths(self, word: str) -> Iterator[str]:
        """Returns the absolute paths a word may mean; none where it is known only when the line runs."""
        if word == "~" or word.startswith("~/"):
            word = self.home_directory + word[1:]
        elif word.startswith("~") and "/" not in word.rstrip("/"):
            word = f"/home/{word[1:]}"
        if word and ANY not in word and SOME not in word and len(word) <= paths.LONGEST:
            for path in self.directories:
                yield from self._resolve_links(os.path.join(path, word))

    def _resolve_links(self, path: str) -> Iterator[str]:
        """Returns the paths behind a path: a named link is only a link; behind a slash its target counts."""
        lexical = paths.normalise(path)
        yield lexical
        if ".." in path and GLOB not in path:  # behind a link it leads elsewhere than the text says
            folder, name = os.path.split(path.rstrip("/"))
            yield path
            yield paths.normalise(os.path.join(paths.resolve_links(folder), name))
        if GLOB not in path:
            parent = os.path.dirname(lexical)
            through = path.endswith(("/", "/.", "/.."))
            yield (
                paths.resolve_links(path)
                if through
                else os.path.join(paths.resolve_links(parent), os.path.basename(lexical))
            )

    def find_program(self, word: str) -> str:
        """Returns the name of the program behind a link: `rm` for `./zap` that leads to /bin/rm."""
        if "/" not in word:
            return ""
        places = (os.path.join(folder, word) for folder in self.directories if is_known(word))
        return next((os.path.basename(paths.resolve_links(place)) for place in places if os.path.islink(place)), "")

    def note_doubt(self, program: str, words: Iterable[str]) -> None:
        """Notes a program that destroys, where one of its targets is not known."""
        if any(not is_known(word) or (self.is_lost and not word.startswith("/")) for word in words):
            self.doubts.append(os.path.basename(program.replace(ANY, "").replace(SOME, "")) or "an unknown program")

    def find_vital(self, word: str, *, with_workspace: bool = True) -> str:
        """Returns the vital path that is destroyed with the word's target, by its whole content or itself."""
        for path in self.possible_paths(word):
            folder, name = os.path.split(path)
            if GLOB in name and not name.strip(f"{GLOB}.") and GLOB not in folder:
                if folder not in self.workspace and self._is_vital(folder):
                    return path.replace(GLOB, "*")
            elif GLOB in path:
                fixed = path[: path.index(GLOB)].rsplit("/", 1)[0] or "/"
                if fixed == "/":
                    return path.replace(GLOB, "*")
            elif self._is_vital(path) and (with_workspace or path not in self.workspace):
                return path
        return ""

    def _is_vital(self, path: str) -> bool:
        if (
            path in ("/", self.home_directory)
            or path in _SYSTEM
            or _OF_A_PROCESS.match(path)
            or re.fullmatch(r"/(?:home|Users)/[^/]+", path)
        ):
            return True
        return any(root == path or root.startswith(f"{path.rstrip('/')}/") for root in self.workspace)

    def find_device(self, word: str) -> str:
        """Returns the disk or memory that would be written."""
        return next((path for path in self.possible_paths(word) if _DISK.match(path) or _is_block_device(path)), "")

    def find_system_file(self, word: str) -> str:
        return next((path for path in self.possible_paths(word) if _FILES.match(path)), "")


def _is_block_device(path: str) -> bool:
    if not path.startswith("/dev/"):
        return False
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
