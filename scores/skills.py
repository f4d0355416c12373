"""Valid and broken skills for the Agent Skills standard: the verdict of its own validator, and that of Forge."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from forge.core.context import Scope
from forge.skills.catalog import Catalog
from forge.skills.standard import check_standard

_BODY = "---\nDo it.\n"
_GOOD = "name: deploy\ndescription: Deploys it.\n"
NAMES = (
    *("deploy", "a", "1", "1.5", "true", "~", "Deploy", "a--b", "-a", "a-", "a_b", "a.b", "a b", "a²", "ß", "İx"),
    *(
        "café",
        "日本語",
        "\uff41\uff42",
        "x\u0301",
        "naïve-été",
        "a" * 64,
        "a" * 65,
        "x-" * 31 + "x",
        "DEPLOY",
        "d\u200beploy",
    ),
)
FRONTS = (
    *("", "deploy", "- name: deploy", "name: deploy", "description: x", "# nothing", "Name: deploy\ndescription: x"),
    *(
        "name:\ndescription: x",
        "name: deploy\ndescription:",
        "name: other\ndescription: x",
        "name: deploy\n description: x",
    ),
    *(
        "name: 'deploy '\ndescription: x",
        "name: deploy\nname: deploy\ndescription: x",
        "name: [deploy]\ndescription: x",
    ),
    *(f"name: deploy\ndescription: {'x' * count}" for count in (1, 1_023, 1_024, 1_025, 5_000)),
    *(f"name: deploy\ndescription: |\n  {'x' * count}" for count in (1_022, 1_023, 1_024)),
    "<<: x\nname: deploy\ndescription: x",
    "name: deploy\ndescription: null",
    "? [a]\n: b\nname: deploy\ndescription: x",
)
DESCRIPTIONS = (
    *("Deploys it.", "7", "'  '", "'it''s'", "it's", '"x: y"', "a: b", "a:b", "a # b", "[x]", "{x: y}", "- a"),
    *("&a x", "*a", "!!str x", "!x y", "@x", "`x`", "%x", "a---b", "a [b] {c}", "a\tb", "a\u0007b", '"x', "é😀"),
    *("|\n  a\n  b", ">-\n  a\n  b", "\n  a\n  b", "a\n  b", "\n  - a", "\n  a: b"),
)
MORE = (
    *("license: MIT", "license:", "version: 1", "tags: a", "tags: [a]", "compatibility:", "model: opus"),
    *(f"compatibility: {'x' * count}" for count in (500, 501)),
    *("compatibility:\n  - a", "compatibility:\n  a: b", "allowed-tools: Bash(git:*) Read", "allowed-tools:\n  - Read"),
    *("metadata:", "metadata: x", "metadata: []", "metadata: {a: b}", "metadata:\n  a: b", "metadata:\n- a"),
    *("metadata:\n  a:\n    - b\n    - c: d\n      e: f", "metadata:\n  a:\n    b: c\n  d:\n      e: f"),
    *(
        "metadata:\n  a: b\n  a: c",
        "\tlicense: MIT",
        "1: 2",
        "# a comment",
        "description : y",
        "disable-model-invocation: true",
    ),
)
WHOLE = (
    *("", "Do it.", "---", "---\n---\n", "+++\nname='deploy'\n+++\n", f"---\n{_GOOD}", f"---\n{_GOOD}...\nDo it.\n"),
    *(f"{before}---\n{_GOOD}{_BODY}" for before in ("\ufeff", " ", "\n", "-", "# Title\n")),
    *(f"---\n{_GOOD}{after}" for after in ("---", "--- \nDo it.", "----\nDo it.", "---Do it.", "---\nA --- b\n---\n")),
    *(f"---{_GOOD}---", f"--- \n{_GOOD}---\n", f"---\n{_GOOD}---\n".replace("\n", "\r\n")),
)


def skills() -> Iterator[tuple[str, str]]:
    """Yields the name of the folder and the text of SKILL.md."""
    for name, quote in product(NAMES, ("", '"')):
        yield name, f"---\nname: {quote}{name}{quote}\ndescription: Deploys it.\n{_BODY}"
    for front in FRONTS:
        yield "deploy", f"---\n{front}\n{_BODY}"
    for description, more in product(DESCRIPTIONS, ("", *MORE)):
        yield "deploy", f"---\nname: deploy\ndescription: {description}\n{more}\n{_BODY}"
    for text in WHOLE:
        yield "deploy", text


def compare(folder: Path) -> Iterator[tuple[str, bool, bool, bool]]:
    """Yields each skill, and whether the validator takes it, `forge skill check` does, and Forge can use it."""
    for number, (name, text) in enumerate(skills()):
        skill = folder / str(number) / name
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(text, encoding="utf-8", newline="")
        plain = text.replace("\r\n", "\n")
        used = name in Catalog((".",), Scope(workspace=skill.parent), built_in=False).skills
        yield f"{name!r}: {text[:200]!r}", _is_valid(skill), not check_standard(plain, name), used


def _is_valid(skill: Path) -> bool:
    from skills_ref.validator import validate

    try:
        return not validate(skill)
    except AttributeError:  # it fails with a control character
        return False


def judge() -> tuple[int, int, list[str], list[str]]:
    """Returns the number of skills and of valid ones, verdicts unlike the validator's, and valid skills not used."""
    cases = valid = 0
    unlike, unused = [], []
    with tempfile.TemporaryDirectory() as folder:
        for label, theirs, ours, usable in compare(Path(folder)):
            cases, valid = cases + 1, valid + theirs
            if theirs is not ours:
                unlike.append(f"{label}: valid there: {theirs}, here: {ours}")
            if theirs and not usable:
                unused.append(label)
    return cases, valid, unlike, unused
