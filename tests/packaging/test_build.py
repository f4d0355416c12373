"""The wheel and the sdist: reproducible, complete, with their metadata."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from scripts.changelog import ReleaseError
from scripts.release import check_dist, main
from tests.packaging.base_install import PROJECT, ROOT

pytestmark = pytest.mark.timeout(300)  # other processes, on a busy machine

BUILD = "import sys, uv_build; uv_build.build_sdist(sys.argv[1]); uv_build.build_wheel(sys.argv[1])"
SOURCES = ("pyproject.toml", "PYPI.md", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md")


def build(folder: Path, when: int) -> Path:
    """Builds from a copy of the sources whose files are of this time."""
    sources, dist = folder / "sources", folder / "dist"
    shutil.copytree(ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in SOURCES:
        shutil.copy(ROOT / name, sources)
    for path in sources.rglob("*"):
        os.utime(path, (when, when))
    dist.mkdir()
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the backend is a program
    subprocess.run(
        [sys.executable, "-c", BUILD, str(dist)],
        cwd=sources,
        env={**os.environ, "PATH": programs, "SOURCE_DATE_EPOCH": "1700000000"},
        check=True,
        capture_output=True,
        timeout=280,
    )
    return dist


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    return build(tmp_path_factory.mktemp("first"), 1_000_000_000)


def test_the_same_sources_give_the_same_files(dist, tmp_path):
    again = build(tmp_path, 1_500_000_000)
    names = sorted(path.name for path in dist.iterdir())
    assert len(names) == 2
    assert [(again / name).read_bytes() == (dist / name).read_bytes() for name in names] == [True, True]


def test_what_is_built_passes_its_checks(dist, capsys):
    version = PROJECT["version"]
    assert check_dist(dist) == [f"forge_tools-{version}-py3-none-any.whl", f"forge_tools-{version}.tar.gz"]
    assert main(["dist", str(dist)]) == 0
    assert capsys.readouterr().out.split() == check_dist(dist)


@pytest.mark.parametrize("change", ["missing", "stray", "content", "inside", "lacking", "version"])
def test_what_is_wrong_with_it_is_named(dist, tmp_path, change, capsys):
    broken = Path(shutil.copytree(dist, tmp_path / "dist"))
    (wheel,) = broken.glob("*.whl")
    root = ROOT
    if change == "missing":
        wheel.unlink()
    elif change == "stray":
        (broken / "forge_tools-0.0.1.tar.gz").write_bytes(b"")
    elif change == "content":
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.writestr("tests/test_a.py", "")
    elif change == "inside":
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.writestr("forge/notes.txt", "")
    elif change == "lacking":
        with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(tmp_path / "less.whl", "w") as less:
            for name in whole.namelist():
                if name != "forge/project/config/forge.schema.json":
                    less.writestr(name, whole.read(name))
        shutil.move(tmp_path / "less.whl", wheel)
    else:
        root = tmp_path
        (tmp_path / "pyproject.toml").write_text('version = "9.9.9"\n')
    with pytest.raises(ReleaseError):
        check_dist(broken, root)
    assert main(["dist", str(broken)], root) == 1
    assert capsys.readouterr().err.startswith("release: ")


def test_the_metadata_is_complete(dist):
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    assert metadata["Name"] == "forge-tools"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["Requires-Python"] == ">=3.11"
    urls = dict(url.split(", ", 1) for url in metadata.get_all("Project-URL") or ())
    assert {"Homepage", "Documentation", "Changelog", "Issues", "Source"} <= urls.keys()
    assert all(url.startswith("https://") for url in urls.values())
    required = [Requirement(one) for one in metadata.get_all("Requires-Dist") or ()]
    assert {one.name for one in required if one.marker is None} == {
        Requirement(one).name.replace("_", "-") for one in PROJECT["dependencies"]
    }


def test_the_sdist_has_the_sources_and_the_changelog(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CHANGELOG.md", "LICENSE", "src/forge/py.typed", "src/forge/console/static/index.html"} <= names
    assert not any(name.startswith(("tests", ".venv", ".github")) for name in names)
