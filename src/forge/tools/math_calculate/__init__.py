"""Calculates, exactly for integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from forge.core.arguments.parameters import Limits
from forge.core.errors import ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.tool import tool

if TYPE_CHECKING:  # they load what only a calculation needs
    from forge.tools.math_calculate.arithmetic import Number


@tool(category=Category.BUILTIN, idempotent=True, timeout=10.0)
def math_calculate(
    expression: Annotated[str, Limits(example="sqrt(2) * sin(pi / 4)")],
) -> ToolResult:
    """Calculate an arithmetic expression instead of guessing. Integers are exact; ^ and ** are powers."""
    from forge.tools.math_calculate.expression import evaluate  # loads what only a calculation needs

    value = evaluate(expression)
    return ToolResult(for_llm=format_number(value), data={"result": value})


def format_number(value: Number) -> str:
    """Formats a number as a person writes it: whole numbers without `.0`."""
    if isinstance(value, float):
        return repr(value).removesuffix(".0").replace("-0", "0") if value == 0 else repr(value).removesuffix(".0")
    try:
        return str(value)
    except ValueError:  # Python's own limit on the digits of an integer
        raise ToolError(
            f"the result has about {int(value.bit_length() * 0.30103):,} digits, too many to show",
            suggestion="Take it modulo a number, or ask for its log10.",
        ) from None
