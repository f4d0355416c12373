"""Commands that only read, with every option under which that stays true; an option that is not listed is not one.

Left out on purpose: options that write (`sort -o`, `file -C`, `file -p`), start programs (`rg --pre`, `rg -z`), take
lists of files from a file (`wc --files0-from`), follow links out of the workspace (`grep -R`, `find -L`) or ask
the network (`hostname -f`). `xargs` makes arguments of data and is no command that only reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple


class Operands(Enum):
    """The meaning of the words that are not options."""

    PATHS = "paths"
    PATTERN = "a pattern, then paths"
    ONE_PATH = "at most one path: a second one would be written"
    TEXT = "no paths"
    NONE = "there may be none"


class ReadOnlyFlags(NamedTuple):
    """The options of a command: `short` and `long` take no value, `valued` and `long_valued` do."""

    short: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    operands: Operands = Operands.PATHS
    numbers: bool = False  # -5
    searches: bool = False  # the current directory, where no path is named


def _flags(
    short: str = "", valued: str = "", long: str = "", operands: Operands = Operands.PATHS, numbers: bool = False
) -> ReadOnlyFlags:
    names = long.split()
    plain = frozenset(name for name in names if not name.endswith("="))
    return ReadOnlyFlags(
        short, valued, plain, frozenset(name[:-1] for name in names if name.endswith("=")), operands, numbers
    )


_PATTERN, _ONE_PATH, _TEXT, _NONE = Operands.PATTERN, Operands.ONE_PATH, Operands.TEXT, Operands.NONE
_GREP = _flags(
    "EFGPivwxcLlqsbHhnTUzZoaIyr",
    "eABCm",
    "extended-regexp fixed-strings basic-regexp perl-regexp ignore-case no-ignore-case invert-match word-regexp"
    " line-regexp count files-without-match files-with-matches quiet silent no-messages byte-offset with-filename"
    " no-filename line-number initial-tab null null-data only-matching text recursive color colour line-buffered"
    " regexp= after-context= before-context= context= max-count= include= exclude= exclude-dir= color= colour="
    " binary-files= label=",
    _PATTERN,
    numbers=True,
)
_SUM = _flags("btz", long="binary text tag zero")

COMMANDS: dict[str, ReadOnlyFlags] = {
    "arch": _flags(operands=_NONE),
    "base64": _flags("di", "w", "decode ignore-garbage wrap="),
    "basename": _flags("az", "s", "multiple suffix= zero", _TEXT),
    "cat": _flags(
        "AbeEnstTuv", long="show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting"
    ),
    "cksum": _flags(),
    "cmp": _flags("bls", "in", "print-bytes verbose silent quiet bytes= ignore-initial="),
    "column": _flags("tnx", "sNo", "table separator= output-separator= table-columns="),
    "comm": _flags("123z", long="check-order nocheck-order total zero-terminated output-delimiter="),
    "cut": _flags(
        "nsz",
        "bcdf",
        "bytes= characters= delimiter= fields= complement only-delimited output-delimiter= zero-terminated",
    ),
    "date": _flags("uR", "d", "utc universal rfc-email iso-8601 iso-8601= rfc-3339= date=", _TEXT),
    "df": _flags("ahHiklPT", "tx", "all human-readable inodes local portability print-type type= exclude-type= total"),
    "diff": _flags(
        "uqsibwBEtTyace",
        "CUWI",
        "unified unified= context context= brief report-identical-files ignore-case ignore-all-space"
        " ignore-space-change ignore-blank-lines ignore-trailing-space side-by-side width= color color= minimal text"
        " label= suppress-common-lines strip-trailing-cr no-dereference",
    ),
    "dirname": _flags("z", long="zero", operands=_TEXT),
    "du": _flags(
        "0abchkmSsx",
        "dBt",
        "all apparent-size bytes total human-readable max-depth= summarize one-file-system exclude=",
    )._replace(searches=True),
    "expand": _flags("i", "t", "initial tabs="),
    "file": _flags("bihNk", "F", "brief mime mime-type mime-encoding no-pad separator= keep-going"),
    "fold": _flags("bs", "w", "bytes spaces width="),
    "free": _flags("bkmght", long="human mega giga total wide", operands=_NONE),
    "head": _flags("qvz", "nc", "lines= bytes= quiet silent verbose zero-terminated", numbers=True),
    "hexdump": _flags("bcCdovx", "ns", "canonical no-squeezing length= skip="),
    "hostname": _flags("s", operands=_NONE),
    "id": _flags("agGnruz", long="group groups name real user zero", operands=_TEXT),
    "join": _flags("iz", "aevojt12", "ignore-case header check-order nocheck-order"),
    "ls": _flags(
        "1aAbBcCdfFgGhiklmnNopqQrRsStuUvxXZ",
        "ITw",
        "all almost-all author escape ignore-backups color color= directory classify classify= file-type format="
        " full-time group-directories-first no-group human-readable si hide= indicator-style= inode ignore= kibibytes"
        " literal numeric-uid-gid quote-name quoting-style= reverse recursive size sort= time= time-style= width= zero",
    )._replace(searches=True),
    "md5sum": _SUM,
    "nl": _flags("p", "bdfhilnsvw", "body-numbering= number-format= number-separator= number-width="),
    "nproc": _flags(long="all ignore=", operands=_NONE),
    "od": _flags("abcdfilosvx", "AjNSt", "address-radix= skip-bytes= read-bytes= format= output-duplicates"),
    "paste": _flags("sz", "d", "serial delimiters= zero-terminated"),
    "pwd": _flags("LP", operands=_NONE),
    "readlink": _flags(
        "efmnqsvz", long="canonicalize canonicalize-existing canonicalize-missing no-newline quiet zero"
    ),
    "realpath": _flags("eLmPqsz", long="canonicalize-existing canonicalize-missing quiet strip zero"),
    "rev": _flags(),
    "rg": _flags(
        "inwxvcloqsSFUPNHIu.0abp",
        "eABCmgtTjrEMd",
        "ignore-case smart-case case-sensitive line-number no-line-number word-regexp line-regexp invert-match count"
        " count-matches files-with-matches files-without-match only-matching quiet fixed-strings multiline"
        " multiline-dotall pcre2 hidden no-ignore no-ignore-vcs unrestricted text json heading no-heading with-filename"
        " no-filename column trim stats files type-list sort= sortr= glob= iglob= type= type-not= max-count="
        " max-depth= max-filesize= context= after-context= before-context= regexp= replace= color= encoding="
        " max-columns= threads= passthru null vimgrep pretty no-messages no-config",
        _PATTERN,
    )._replace(searches=True),
    "seq": _flags("w", "fs", "equal-width format= separator=", _TEXT),
    "sha1sum": _SUM,
    "sha256sum": _SUM,
    "sha512sum": _SUM,
    "sleep": _flags(operands=_TEXT),
    "sort": _flags(
        "bdfgiMhnRrVcCmsuz",
        "kt",
        "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort month-sort human-numeric-sort"
        " numeric-sort random-sort reverse version-sort unique stable zero-terminated check key= field-separator=",
    ),
    "stat": _flags("fLt", "c", "file-system format= printf= terse"),
    "strings": _flags("afo", "net", "all print-file-name bytes= radix= encoding="),
    "tac": _flags("br", "s", "before regex separator="),
    "tail": _flags(
        "fFqvz",
        "ncs",
        "lines= bytes= quiet silent verbose follow follow= retry zero-terminated sleep-interval=",
        numbers=True,
    ),
    "tr": _flags("cCdst", long="complement delete squeeze-repeats truncate-set1", operands=_TEXT),
    "tree": _flags(
        "aCdDfFghinNpqQrstuvx", "ILP", "dirsfirst noreport filelimit= gitignore prune matchdirs du si"
    )._replace(searches=True),
    "type": _flags("afptP", operands=_TEXT),
    "uname": _flags("amnoprsv", long="all kernel-name kernel-release machine operating-system", operands=_NONE),
    "unexpand": _flags("a", "t", "all first-only tabs="),
    "uniq": _flags(
        "cdDiuz",
        "fsw",
        "count repeated unique ignore-case skip-fields= skip-chars= check-chars= zero-terminated",
        _ONE_PATH,
    ),
    "uptime": _flags("ps", long="pretty since", operands=_NONE),
    "wc": _flags("clmwL", long="bytes chars lines words max-line-length"),
    "which": _flags("as", operands=_TEXT),
    "whoami": _flags(operands=_NONE),
    **dict.fromkeys(("grep", "egrep", "fgrep"), _GREP),
}
# They read no settings that a workspace could hold, and start no program.
PLAIN = frozenset(
    "arch basename cat cksum cmp comm cut date dirname du echo expand false file fold grep head hostname id ls md5sum"
    " nl nproc od paste pwd readlink realpath rev sha1sum sha256sum sha512sum stat tac tail test true uname unexpand"
    " uniq uptime wc whoami".split()
)
VERSIONED = frozenset("bash cmake curl gcc git jq make node python python3 rg".split())  # `node --version` only reads

_DIFF = (
    "stat stat= shortstat numstat name-only name-status summary patch no-patch raw unified= color color= no-color"
    " word-diff word-diff= color-words ignore-all-space ignore-space-change ignore-blank-lines ignore-space-at-eol"
    " find-renames find-renames= find-copies no-renames diff-filter= minimal patience histogram diff-algorithm="
    " function-context full-index binary abbrev abbrev= no-ext-diff no-textconv exit-code quiet relative dirstat"
    " compact-summary check pickaxe-all pickaxe-regex inter-hunk-context= src-prefix= dst-prefix= no-prefix cc"
)
_LOG = (
    " oneline graph decorate decorate= no-decorate all branches branches= tags tags= remotes format format= pretty"
    " pretty= abbrev-commit no-abbrev-commit max-count= skip= since= after= until= before= author= committer= grep="
    " all-match invert-grep regexp-ignore-case extended-regexp fixed-strings perl-regexp merges no-merges first-parent"
    " reverse date-order topo-order author-date-order follow full-history date= relative-date left-right cherry-pick"
    " cherry-mark boundary simplify-by-decoration source reflog walk-reflogs show-notes no-notes min-parents"
    " min-parents= max-parents max-parents= count ancestry-path no-walk children parents objects left-only right-only"
    " cherry"
)
HISTORY_OPTIONS = frozenset(
    name.rstrip("=")
    for name in (
        f"{_LOG} stat shortstat numstat name-only name-status summary no-patch abbrev color no-color dirstat".split()
    )
)  # of `git log`: they show commits and names of files, no content
_LOG_FLAGS = _flags("pusawbiEFPzgRMtrcm", "nSGLUl", _DIFF + _LOG, numbers=True)
_DIFF_FLAGS = _flags("pusawbzRMqr", "SGUl", f"{_DIFF} cached staged merge-base name-status", numbers=True)

GIT: dict[str, ReadOnlyFlags] = {
    "blame": _flags("wbltfnsepcMC", "L", "line-porcelain porcelain show-name show-number show-email date= root"),
    "cat-file": _flags("ptse"),
    "check-ignore": _flags("vnq", long="verbose quiet non-matching no-index"),
    "count-objects": _flags("vH", long="verbose human-readable", operands=_NONE),
    "describe": _flags(
        long="all tags contains abbrev abbrev= always long dirty exact-match match= exclude= first-parent"
    ),
    "diff": _DIFF_FLAGS,
    "diff-tree": _DIFF_FLAGS,
    "for-each-ref": _flags(long="format= sort= count= points-at= merged= no-merged= contains= no-contains="),
    "grep": _flags(
        "iwvnlLcoEFPGahHqpWz",
        "eABCm",
        "ignore-case word-regexp invert-match line-number files-with-matches name-only files-without-match count"
        " only-matching extended-regexp fixed-strings perl-regexp text quiet cached heading break show-function"
        " function-context after-context= before-context= context= max-count= max-depth= color color= and or not",
        _PATTERN,
        numbers=True,
    ),
    "log": _LOG_FLAGS,
    "ls-files": _flags(
        "cdmoiksutvz",
        "x",
        "cached deleted modified others ignored stage unmerged exclude= exclude-standard full-name"
        " error-unmatch directory no-empty-directory abbrev abbrev= format= deduplicate eol",
    ),
    "ls-tree": _flags(
        "drtlz", long="long name-only name-status full-name full-tree abbrev abbrev= format= object-only"
    ),
    "merge-base": _flags("a", long="all octopus independent is-ancestor fork-point"),
    "name-rev": _flags(long="tags refs= all name-only always"),
    "rev-list": _LOG_FLAGS,
    "rev-parse": _flags(
        "q",
        long="verify quiet short short= abbrev-ref abbrev-ref= symbolic symbolic-full-name show-toplevel git-dir"
        " is-inside-work-tree is-bare-repository show-prefix show-cdup all branches tags remotes git-common-dir",
    ),
    "shortlog": _flags("nsec", long=f"numbered summary email committer group= {_LOG}"),
    "show": _LOG_FLAGS,
    "show-ref": _flags("dqs", long="head heads tags dereference verify quiet hash abbrev"),
    "status": _flags(
        "sbvuz",
        long="short branch show-stash porcelain porcelain= long verbose untracked-files untracked-files= ignored"
        " ignored= column no-column ahead-behind no-ahead-behind renames no-renames find-renames ignore-submodules",
    ),
    "version": _flags(operands=_NONE),
    "whatchanged": _LOG_FLAGS,
}
# These change something unless they are asked for a list.
GIT_LISTS: dict[str, ReadOnlyFlags] = {
    "branch": _flags(
        "arvlq",
        long="list all remotes verbose show-current contains= no-contains= merged= no-merged= sort= format= points-at="
        " color color= no-color column no-column abbrev abbrev= ignore-case",  # `--abbrev NAME` makes a branch
        operands=_NONE,
    ),
    "tag": _flags(
        "ln", long="list contains= no-contains= merged= no-merged= points-at= sort= format= column", operands=_NONE
    ),
    "remote": _flags("v", long="verbose", operands=_NONE),
    "stash list": _LOG_FLAGS,
    "stash show": _DIFF_FLAGS,
    "reflog": _LOG_FLAGS._replace(operands=_NONE),
    "reflog show": _LOG_FLAGS,
    "worktree list": _flags("v", long="verbose porcelain", operands=_NONE),
    "remote get-url": _flags(long="all push", operands=_TEXT),
}

FIND_TESTS = frozenset(
    "-empty -true -false -print -print0 -prune -depth -mount -xdev -daystart -readable -writable -executable -nouser"
    " -nogroup -not -a -o -and -or ! ( ) , -ls -quit -noleaf -P".split()
)
FIND_VALUED = frozenset(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype -size -mtime -mmin -atime"
    " -amin -ctime -cmin -user -group -uid -gid -perm -links -inum -maxdepth -mindepth -printf -lname -ilname"
    " -newermt -used -fstype".split()
)
FIND_PATHS = frozenset({"-newer", "-anewer", "-cnewer", "-samefile"})


# Reads the words of a command that only reads: its options, each of which must be known, and its paths.


def paths_of(words: Sequence[str], flags: ReadOnlyFlags) -> list[str] | None:
    options = options_of(words, flags)
    if options is None:
        return None
    given, operands = options
    match flags.operands:
        case Operands.TEXT:
            return []
        case Operands.NONE:
            return None if operands else []
        case Operands.ONE_PATH if len(operands) > 1:
            return None
        case Operands.PATTERN if not given & {"e", "regexp", "files", "type-list"}:
            operands = operands[1:]
    paths = [path for path in operands if path not in ("-", "/dev/null")]
    return paths or (["."] if flags.searches and not operands else [])


def options_of(words: Sequence[str], flags: ReadOnlyFlags) -> tuple[set[str], list[str]] | None:
    """Returns the names of the options and the words that are none; None if an option is not on the list."""
    given: set[str] = set()
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return given, [*operands, *rest]
        if word.startswith("--"):
            name, has_value, _ = word[2:].partition("=")
            if name in flags.long_valued and not has_value and name not in flags.long:
                next(rest, None)
            elif name not in (flags.long_valued if has_value else flags.long):
                return None
            given.add(name)
        elif word.startswith("-") and word != "-":
            if not _cluster(word[1:], flags, given, rest):
                return None
        else:
            operands.append(word)
    return given, operands


def _cluster(letters: str, flags: ReadOnlyFlags, given: set[str], rest: Iterator[str]) -> bool:
    """Reads a cluster: `-rn`, `-n5`, `-n 5`, `-5`."""
    if flags.numbers and letters.isdecimal():
        return True
    for index, letter in enumerate(letters):
        if letter in flags.valued:
            given.add(letter)
            if index == len(letters) - 1:
                next(rest, None)
            return True
        if letter not in flags.short:
            return False
        given.add(letter)
    return True
