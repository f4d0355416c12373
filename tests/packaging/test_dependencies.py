"""The dependencies: few in a base install, and an extra for each optional feature."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest
from packaging.requirements import Requirement

from forge.core.extras import EXTRAS, is_installed
from tests.packaging.base_install import PROJECT, ROOT, base_distributions, other_modules

NOT_CHOSEN = {"all", "dev"}


def test_a_base_install_has_at_most_28_distributions():
    assert len(base_distributions()) <= 28, sorted(base_distributions())
    assert {"forge-tools", "pydantic", "pydantic-core", "click"} <= base_distributions()
    assert not {"mcp", "cryptography", "starlette", "selectolax", "html-to-markdown", "dbos"} & base_distributions()


def test_every_extra_is_known_with_its_purpose():
    assert set(PROJECT["optional-dependencies"]) - NOT_CHOSEN == set(EXTRAS)
    assert all(extra.purpose and extra.modules for extra in EXTRAS.values())


def test_all_has_every_extra_and_dev_has_all():
    (everything,) = map(Requirement, PROJECT["optional-dependencies"]["all"])
    assert everything.extras == set(EXTRAS)
    assert "forge-tools[all]" in PROJECT["optional-dependencies"]["dev"]


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_with_all_of_them_every_extra_is_installed(extra):
    assert is_installed(extra)
    assert all(find_spec(module) is not None for module in EXTRAS[extra].modules)


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_a_base_install_lacks_every_extra(extra):
    assert set(EXTRAS[extra].modules) & other_modules()


def test_the_classifiers_name_the_tested_pythons():
    tested = re.search(r"python: \[(.*)\]", (ROOT / ".github/workflows/ci.yml").read_text())
    assert tested is not None
    stated = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if ":: Python :: 3." in line]
    assert set(stated) <= {*re.findall(r"[\d.]+", tested[1])}
    assert len(stated) >= 3
