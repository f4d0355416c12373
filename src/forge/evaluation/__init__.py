"""Runs cases against agents, and says how many passed, what they cost, and how two configurations compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge.evaluation.cases import EvalCase as EvalCase
    from forge.evaluation.cases import EvalExpect as EvalExpect
    from forge.evaluation.cases import EvalRun as EvalRun
    from forge.evaluation.cases import read_cases as read_cases
    from forge.evaluation.cases import read_marked as read_marked
    from forge.evaluation.report import EvalReport as EvalReport
    from forge.evaluation.run import evaluate as evaluate
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
