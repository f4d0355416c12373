"""The list of effects: what people read, what rules and results get, and what an approval covers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from forge.workspace.effects import Contents, Effect, Effects, PathState

TEXT = PathState("file", 0o644, 4, mark="1")
LONGER = PathState("file", 0o644, 8, mark="2")


def effect(name: str, before: PathState | None, after: PathState | None, contents: Contents = (None, None)) -> Effect:
    kind = "create" if before is None else "delete" if after is None else "change"
    if before is not None and after is not None and before.mark == after.mark:
        kind = "mode"
    return Effect(Path("/w", name), name, kind, before, after, lambda: contents)  # type: ignore[arg-type] # a literal


EFFECTS = Effects(
    (
        effect("a.txt", TEXT, LONGER, (b"old\n", b"old\nnew\n")),
        effect("b.png", None, TEXT, (None, b"\0\1\2\3")),
        effect("link", None, PathState("link", 0o777, target="a.txt")),
        effect("run.sh", TEXT, replace(TEXT, mode=0o755)),
        effect("gone", PathState("folder", 0o755), None),
        effect("gone/c", TEXT, None, (b"bye\n", None)),
    ),
    hosts=("example.com", "example.org"),
)


def test_a_summary_counts_by_kind() -> None:
    assert EFFECTS.summary() == (
        "creates 1 file and 1 link, changes 1 file, deletes 1 file and 1 folder, changes the mode of 1 path,"
        " wanted 2 hosts"
    )
    assert Effects().summary() == "no effects"
    assert Effects().is_empty
    assert not Effects(unsure=("it renames a folder",)).is_empty


def test_text_is_a_diff_and_binary_is_a_size_and_a_type() -> None:
    shown = EFFECTS.diff()
    assert "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n old\n+new\n" in shown
    assert 'create "b.png": image/png, 4 bytes\n' in shown
    assert 'create "link": a link to "a.txt"\n' in shown
    assert '"run.sh" changes its mode from 0644 to 0755\n' in shown
    assert 'delete "gone": a folder\n' in shown
    assert "-bye\n" in shown
    assert EFFECTS.files[1].is_binary
    assert not EFFECTS.files[0].is_binary


def test_a_long_diff_says_that_it_was_cut() -> None:
    assert "more\n" in EFFECTS.diff(limit=60)
    assert len(EFFECTS.diff(limit=60)) < 100


def test_the_digest_covers_the_contents() -> None:
    other = replace(EFFECTS, files=(replace(EFFECTS.files[0], after=replace(LONGER, mark="3")), *EFFECTS.files[1:]))
    assert EFFECTS.digest() == replace(EFFECTS).digest()
    assert EFFECTS.digest() != other.digest()
    assert EFFECTS.as_json()["files"][3]["after"] == {"type": "file", "mode": "0755", "size": 4}
