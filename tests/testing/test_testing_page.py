"""Every block of the page about testing is a test file that passes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def test_every_block_of_the_page_passes(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 7
    for number, block in enumerate(blocks):
        assert "def test_" in block
        (tmp_path / f"test_block_{number}.py").write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "forge.testing.plugin", "-p", "no:cacheprovider", "-Werror", "-q"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_fixture_and_name_is_on_the_page():
    from forge.testing import plugin

    page = PAGE.read_text(encoding="utf-8")
    fixtures = [name for name in vars(plugin) if name.startswith("forge_")]
    assert len(fixtures) == 8
    assert [name for name in fixtures if f"`{name}" not in page] == []


def test_the_message_on_the_page_is_what_is_said():
    from forge.testing import Called, Calls, assert_called

    found = Calls([Called("summary", {"path": "monday.md"}), Called("summary", {"path": "friday.md", "lines": 1})])
    with pytest.raises(AssertionError) as caught:
        assert_called(found, "summary", path="tuesday.md", lines=1)
    assert f"AssertionError: {caught.value}\n" in PAGE.read_text(encoding="utf-8")
