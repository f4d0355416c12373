"""Skills: instructions in files, the tools and limits they bring, and guardrails."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge.skills.active import ActiveSkills as ActiveSkills
    from forge.skills.catalog import Catalog as Catalog
    from forge.skills.guardrails import Guardrails as Guardrails
    from forge.skills.tools import ReadSkill as ReadSkill
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
