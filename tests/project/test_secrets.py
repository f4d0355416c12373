"""Which values are masked."""

from __future__ import annotations

import pytest

from forge.core.errors import ToolError
from forge.project.assemble.secrets import project_secrets
from forge.project.config import Configuration


def test_values_of_named_variables_and_known_keys_are_masked():
    secrets = project_secrets(
        Configuration(secrets=("MINE", "UNSET")), {"MINE": "correct horse", "OPENAI_API_KEY": "battery staple"}
    )
    assert secrets.mask("correct horse battery staple") == "[secret] [secret]"


def test_a_secret_too_short_to_be_masked_is_refused_without_being_shown():
    with pytest.raises(ToolError, match=r"secrets\[0\]: the value of MINE has 3 characters") as caught:
        project_secrets(Configuration(secrets=("MINE",)), {"MINE": "xyz"})
    assert "xyz" not in caught.value.message
    assert project_secrets(Configuration(), {"OPENAI_API_KEY": "xyz"}).mask("xyz") == "xyz"
