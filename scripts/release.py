"""Checks a release and what was built for it.

python -m scripts.release tag v0.2.0      the tag, the version and the changelog agree; prints the notes of the release
python -m scripts.release dist FOLDER     the wheel and the sdist hold what they should, and nothing else
python -m scripts.release check VERSION   every step of a release as a dry run (`make release-check`); changes nothing
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path

import yaml

from scripts.changelog import (
    ROOT,
    ReleaseError,
    check_version,
    make_section,
    read_notes,
    read_section,
    stated_version,
)

PACKAGE = "forge_tools"


def check_tag(tag: str, root: Path = ROOT) -> str:
    """Returns the notes of the release. Raises `ReleaseError` where tag, version and changelog differ."""
    version = stated_version(root)
    if tag != f"v{version}":
        raise ReleaseError(
            f"the tag is {tag} and pyproject.toml says {version}. Tag v{version}, or run: make changelog "
            f"VERSION={tag.removeprefix('v')}"
        )
    if left := read_notes(root):
        raise ReleaseError(
            f"changelog.d still holds {len(left)} notes, such as {left[0].path.name}. Run: make changelog "
            f"VERSION={version}"
        )
    return read_section(root, version)


def check_dist(folder: Path, root: Path = ROOT) -> list[str]:
    """Returns the names of what was built. Raises `ReleaseError` for a file that is missing or of another version."""
    version = stated_version(root)
    wheel, sdist = folder / f"{PACKAGE}-{version}-py3-none-any.whl", folder / f"{PACKAGE}-{version}.tar.gz"
    built = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if built != sorted((wheel.name, sdist.name)):
        raise ReleaseError(f"{folder} has {', '.join(built) or 'nothing'}; expected {wheel.name} and {sdist.name}.")
    with zipfile.ZipFile(wheel) as archive:
        _check_wheel(archive, version)
    with tarfile.open(sdist) as archive_of_sources:
        _check_sdist(archive_of_sources.getnames(), f"{PACKAGE}-{version}")
    return built


def _check_wheel(archive: zipfile.ZipFile, version: str) -> None:
    names = archive.namelist()
    own = ("forge/", f"{PACKAGE}-{version}.dist-info/")
    if strays := [name for name in names if not name.startswith(own)]:
        raise ReleaseError(f"the wheel holds files of others: {', '.join(strays[:5])}.")
    needed = ("forge/__init__.py", "forge/py.typed", "forge/console/static/index.html")
    if missing := [name for name in needed if name not in names]:
        raise ReleaseError(f"the wheel lacks {', '.join(missing)}.")
    metadata = HeaderParser().parsestr(archive.read(f"{own[1]}METADATA").decode())
    if metadata["Version"] != version:
        raise ReleaseError(f"the wheel is of version {metadata['Version']}, and pyproject.toml says {version}.")


def _check_sdist(names: list[str], folder: str) -> None:
    needed = [
        f"{folder}/{name}" for name in ("PKG-INFO", "pyproject.toml", "README.md", "LICENSE", "src/forge/__init__.py")
    ]
    if missing := [name for name in needed if name not in names]:
        raise ReleaseError(f"the sdist lacks {', '.join(missing)}.")


# The checklist of a release, as a dry run.

_MAIL = re.compile(r"(?<![\w@/:.+-])[\w.+-]+@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,})\b")
_KNOWN_HOSTS = ("example", "example.com", "example.org", "example.net", "users.noreply.github.com", "github.com")
_PAGES = ("README.md", "PYPI.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "AGENTS.md", "pyproject.toml")


def check_version_and_notes(version: str, root: Path = ROOT) -> str:
    """The version is one, is higher than that of pyproject.toml or equal, and the notes make a section."""
    check_version(version)
    stated = stated_version(root)
    if _numbers(version) < _numbers(stated):
        raise ReleaseError(f"{version} is lower than {stated}, which pyproject.toml says. Choose a higher one.")
    notes = read_notes(root)
    if not notes:
        read_section(root, version)
        return f"CHANGELOG.md has the section {version}"
    lines = make_section(root, version, "today", notes).count("\n")
    return f"with {len(notes)} notes, the section has {lines} lines: make changelog VERSION={version} DRY_RUN=1"


def check_signatures(root: Path = ROOT) -> str:
    """The public signatures are the recorded ones: they are the contract."""
    _run([sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:randomly", "tests/test_public_names.py"], root)
    return "the public names and signatures are those of tests/public_signatures.txt"


def check_actions(root: Path = ROOT) -> str:
    """Every action of a workflow is pinned by the full hash of a commit."""
    used = [
        (path.name, one)
        for path in sorted((root / ".github/workflows").glob("*.yml"))
        for one in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
        if not one.startswith("./")
    ]
    if loose := [f"{name}: {one}" for name, one in used if not re.search(r"@[0-9a-f]{40}$", one)]:
        raise ReleaseError(f"not pinned by the hash of a commit: {', '.join(loose)}.")
    return f"{len(used)} uses of actions are pinned"


def check_addresses(root: Path = ROOT) -> str:
    """No page names a mail address of a host that is not one for examples; other people's data (scores) may."""
    pages = [
        *(root / name for name in _PAGES),
        *sorted(set((root / "docs").glob("*.md")) - {root / "docs/scores.md"}),
        *(root / ".github").rglob("*"),
    ]
    found = []
    for path in (one for one in pages if one.is_file()):
        for mail in _MAIL.finditer(path.read_text(encoding="utf-8")):
            host = mail[1].lower()
            if host not in _KNOWN_HOSTS and not host.endswith((".example", ".example.com")):
                found.append(f"{path.relative_to(root)}: {mail[0]}")
    if found:
        raise ReleaseError(f"addresses that nobody may have: {', '.join(found[:10])}. Use example.com.")
    return "no mail address but those for examples"


def check_recipe(root: Path = ROOT) -> str:
    """The conda recipe requires what pyproject.toml does."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = yaml.safe_load((root / "deploy/conda/recipe.yaml").read_text(encoding="utf-8"))
    run = {_requirement(one) for one in recipe["requirements"]["run"] if not one.startswith("python ")}
    wanted = {_requirement(one) for one in project["dependencies"]}
    if run != wanted:
        raise ReleaseError(f"deploy/conda/recipe.yaml and pyproject.toml differ: {sorted(run ^ wanted)}.")
    if f"python {project['requires-python']}" not in recipe["requirements"]["run"]:
        raise ReleaseError(f"deploy/conda/recipe.yaml does not say python {project['requires-python']}.")
    return f"{len(run)} requirements, as in pyproject.toml (not rendered: conda is no package of PyPI)"


def check_build(root: Path = ROOT) -> str:
    """The wheel and the sdist are built twice, the same each time, and hold what they should."""
    _run(["make", "--no-print-directory", "dist"], root)
    return ", ".join(sorted(path.name for path in (root / "dist").iterdir()))


def check_install(root: Path = ROOT) -> str:
    """The wheel, and the sdist, run in environments that had nothing before; then lists their packages."""
    version = stated_version(root)
    said = []
    with tempfile.TemporaryDirectory() as folder:
        for file in (f"{PACKAGE}-{version}-py3-none-any.whl", f"{PACKAGE}-{version}.tar.gz"):
            fresh = Path(folder, file)
            _run([sys.executable, "-m", "venv", str(fresh)], root)
            pip = [str(fresh / "bin/pip"), "install", "-q", "--disable-pip-version-check"]
            _run([*pip, "-c", str(root / "constraints.txt"), str(root / "dist" / file)], root)
            forge = str(fresh / "bin/forge")
            if (stated := _run([forge, "--version"], Path(folder)).strip()) != f"forge {version}":
                raise ReleaseError(f"{file}: forge --version says {stated}, not forge {version}.")
            _run([forge, "demo"], Path(folder))
            said.append(f"{file}: forge --version and forge demo")
        said.append(_list_packages(root, Path(folder, f"{PACKAGE}-{version}-py3-none-any.whl"), version))
    return "; ".join(said)


def _list_packages(root: Path, fresh: Path, version: str) -> str:
    """Writes the list of an installation's packages (SBOM, CycloneDX), which its own program checks."""
    target = root / "build" / f"{PACKAGE}-{version}.cdx.json"
    target.parent.mkdir(exist_ok=True)
    program = root / ".venv-dist/bin/cyclonedx-py"
    _run([str(program), "environment", str(fresh / "bin/python"), "--output-reproducible", "-o", str(target)], root)
    listed = json.loads(target.read_text(encoding="utf-8"))["components"]
    if not any(one["name"] == "pydantic" for one in listed):
        raise ReleaseError(f"{target} lacks a package that Forge requires.")
    return f"{target.relative_to(root)} lists {len(listed)} packages"


def check_docs(root: Path = ROOT) -> str:
    """The pages are built, with search, and put beside those of other versions."""
    _run(["make", "--no-print-directory", "docs"], root)
    if not list((root / "site").rglob("search*.js*")):
        raise ReleaseError("site/ has no search.")
    with tempfile.TemporaryDirectory() as folder:
        _run([sys.executable, "-m", "scripts.site", stated_version(root), "site", folder], root)
    return f"{len(list((root / 'site').rglob('*.html')))} pages"


STEPS: dict[str, Callable[[], str]] = {
    "signatures": check_signatures,
    "actions": check_actions,
    "addresses": check_addresses,
    "conda recipe": check_recipe,
    "wheel and sdist": check_build,
    "clean installations, SBOM": check_install,
    "documentation": check_docs,
}


def check_all(version: str) -> int:
    """Runs every step and prints a line for each. Returns the exit code: 1 if one fails."""
    failed = 0
    for name, step in {"version, changelog": lambda: check_version_and_notes(version), **STEPS}.items():
        print(f"== {name} …", flush=True)
        try:
            print(f"   ok: {step()}", flush=True)
        except ReleaseError as error:
            failed += 1
            print(f"   FAILED: {error}", flush=True)
    print("== signatures of the files: made by the workflow, which has the key of this repository; not tried here")
    steps = [f"make changelog VERSION={version}, commit"] if read_notes(ROOT) else []
    ready = ", ".join([*steps, f"git tag v{version}, push the tag"])
    print(f"== {failed} steps failed" if failed else f"== ready: {ready}")
    return 1 if failed else 0


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ""}
    )
    if done.returncode:
        raise ReleaseError(
            f"{' '.join(command)[:200]} ended with {done.returncode}: {(done.stdout + done.stderr)[-800:]}"
        )
    return done.stdout


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", version.partition("rc")[0])[:3])


def _requirement(text: str) -> str:
    return re.sub(r"[-_ ]", "", text.lower())


def main(arguments: list[str], root: Path = ROOT) -> int:
    try:
        match arguments:
            case ["check", version]:
                return check_all(version)
            case ["tag", tag]:
                print(check_tag(tag, root), end="")
            case ["dist", folder]:
                print("\n".join(check_dist(Path(folder), root)))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
