"""Real programs on a layer: the result equals a direct run, or the layer says why not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forge.process.sandbox import Confinement
from tests.process.trials import in_sandbox, tree, try_line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="overlayfs")

COMMITTER = "export GIT_COMMITTER_DATE=2026-01-01T00:00:00 GIT_AUTHOR_DATE=2026-01-01T00:00:00; "
GIT = f"{COMMITTER}git -c user.name=a -c user.email=a@b "
# needed program -> lines; those of the first group are quick
LINES: dict[str, list[str]] = {
    "git": [
        f"{GIT}add -A && {GIT}commit -qm one",
        f"{GIT}checkout -q -b topic && echo x >>src/main.c && {GIT}commit -qam two && {GIT}checkout -q main",
        f"{GIT}mv src/main.c src/app.c",
        f"{GIT}mv src source",
        f"{GIT}gc -q",
        f"{GIT}stash -u -q; {GIT}stash pop -q",
        f"{GIT}rm -rq docs",
        f"{GIT}reset -q --hard; {GIT}clean -fdq",
        f"{GIT}tag v1; {GIT}branch other; {GIT}worktree list",
        f"{GIT}clone -q . copy",
        f"{GIT}status --short; {GIT}diff; {GIT}log --oneline",
    ],
    "make": ["make -s out.txt", "make -s clean; make -s out.txt; make -s"],
    "gcc": ["gcc -c src/main.c -o main.o", "gcc src/main.c -o app && ./app >run.txt", "ar rc lib.a src/main.c"],
    "sqlite3": [
        "sqlite3 new.db 'create table t(a); insert into t values (1)'",
        "sqlite3 new.db 'pragma journal_mode=wal; create table t(a); insert into t values (1)'",
    ],
    "python3": [
        'python3 -c \'import sqlite3; c = sqlite3.connect("x.db"); c.execute("create table t(a)"); c.commit()\'',
        "python3 -m compileall -q --invalidation-mode unchecked-hash lib",
        "python3 -m venv --without-pip venv && rm venv/pyvenv.cfg venv/bin/activate* venv/bin/Activate*",
        'python3 -c \'import shutil; shutil.move("docs", "documents"); shutil.copytree("lib", "lib2")\'',
        'python3 -c \'import os; os.replace("docs/a.md", "docs/b.md")\'',
        "python3 -c 'import pathlib; [p.unlink() for p in pathlib.Path(\"docs\").iterdir()]'",
        "python3 -m zipfile -c docs.zip docs >/dev/null; rm docs.zip",
        "python3 -m unittest -q lib.test_it 2>/dev/null",
    ],
    "tar": ["tar cf - docs | tar xf - -C lib", "tar czf /tmp/x.tgz . && mkdir out && tar xzf /tmp/x.tgz -C out"],
    "sed": [
        "sed -i s/hello/bye/ docs/*.md",
        "find . -name '*.md' -delete",
        "find docs -type f -exec chmod 600 {} +",
        "cp -r docs docs2 && rm -r docs && mv docs2 docs",
        "sort -o docs/a.md docs/a.md; awk 1 docs/b.md >docs/c.md",
        "mkdir -p a/b/c && touch a/b/c/d && mv a z",
        "rm -rf docs lib src && mkdir docs && echo new >docs/new",
        "split -l 1 docs/a.md part-",
        "ln -sf docs/b.md latest && readlink latest",
        "dd if=/dev/zero of=blob bs=4k count=3 status=none && truncate -s 5 blob",
        "install -m 755 script.sh bin-script; umask 077; echo x >private",
        "flock docs/a.md -c 'echo locked >>docs/a.md'",
        "cat docs/a.md | tee docs/d.md >/dev/null; printf x | cat >>docs/a.md",
        "patch -s docs/a.md </dev/null; diff -r docs lib >d.txt; true",
    ],
    "perl": ["perl -pi -e s/hello/perl/ docs/a.md", 'perl -e \'rename "docs", "renamed" or die "$!"\''],
    "node": [
        'node -e \'const f=require("fs"); f.writeFileSync("n.json", "{}"); f.mkdirSync("p/q",{recursive:true})\'',
        'node -e \'require("fs").renameSync("docs", "renamed")\'',
    ],
    "npm": [
        "npm pack --silent --offline 2>/dev/null | cat; npm pkg set name=other",
        "npm version 1.2.3 --no-git-tag-version",
    ],
    "pytest": ["pytest -q -p no:cacheprovider lib >/dev/null; rm -rf lib/__pycache__ __pycache__"],
    "pip": ["python3 -m pip install -q --no-index --no-deps --no-build-isolation --target vendor ./nothing; true"],
}
QUICK = {"git": 2, "sed": 2, "python3": 1}
IGNORED = (
    ".git/index",
    ".git/logs",
    ".git/gc.pid",
    ".git/objects/pack",
    "copy/.git/",
)  # they hold times, numbers and paths


def cases() -> list[object]:
    found: list[object] = []
    for program, lines in LINES.items():
        for number, line in enumerate(lines):
            marks = [] if number < QUICK.get(program, 0) else [pytest.mark.slow]
            found.append(pytest.param(program, line, marks=marks, id=f"{program}-{number}"))
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, content in {
        "src/main.c": '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n',
        "docs/a.md": "hello a\nsecond\n",
        "docs/b.md": "hello b\n",
        "lib/__init__.py": "",
        "lib/test_it.py": "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): pass\n",
        "Makefile": "out.txt: docs/a.md\n\tcp docs/a.md out.txt\nclean:\n\trm -f out.txt\n",
        "script.sh": "#!/bin/sh\necho hi\n",
        "package.json": '{\n  "name": "x",\n  "version": "1.0.0"\n}\n',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


@pytest.mark.parametrize(("program", "line"), cases())
async def test_a_program_does_the_same_on_a_layer(project: Path, tmp_path: Path, program: str, line: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"NOT TESTED: {program} is not installed")
    if program == "git":
        begin = f"git init -q -b main . && {GIT}add -A && {GIT}commit -qm first && echo more >docs/new.md"
        subprocess.run(["bash", "-c", begin], cwd=project, check=True)
    direct = tmp_path / "direct" / "project"
    direct.parent.mkdir()
    subprocess.run(["cp", "-a", str(project), str(direct)], check=True)
    before = tree(project, times=True)
    layer, effects, done = await try_line(project, line)
    assert tree(project, times=True) == before
    real = await in_sandbox(line, Confinement(workspace=direct))
    if effects.unsure:
        layer.discard()
        assert tree(project, times=True) == before
        return
    assert (done.exit_code, done.output.replace(str(tmp_path), "")) == (
        real.exit_code,
        real.output.replace(str(direct.parent), ""),
    )
    layer.apply()
    layer.discard()
    assert without(project) == without(direct)


def without(root: Path) -> dict[str, tuple[object, ...]]:
    return {name: value for name, value in tree(root).items() if not name.startswith(IGNORED)}
