"""Reads an arithmetic expression and computes it on the way, by operator precedence, without `eval`."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from forge.core.arguments.checks import near
from forge.core.errors import ErrorKind, ToolError
from forge.tools.math_calculate.arithmetic import Arithmetic, ArithmeticRefused, Number

MAX_LENGTH = 10_000  # characters of an expression
MAX_DEPTH = 100  # parentheses, signs and powers inside each other

_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau, "π": math.pi, "τ": math.tau}
_TYPED_SIGNS = str.maketrans("×·⋅÷−", "***/-")  # one character for one, so that positions stay true
_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<based>0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+)
    |(?P<number>(?:[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*|[πτ])
    |(?P<sign>\*\*|//|[-+*/%^(),])""",
    re.VERBOSE,
)
_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2, "**": 4, "^": 4}
_UNARY = 3  # -2**2 is -4, 2**-1 is 0.5


class _Token(NamedTuple):
    kind: str  # based, number, name, sign, end
    text: str
    position: int


def evaluate(expression: str) -> Number:
    """Returns the value of an expression. Raises `ToolError` with the position of the mistake."""
    if len(expression) > MAX_LENGTH:
        raise ToolError(
            f"the expression has {len(expression):,} characters, the limit is {MAX_LENGTH:,}",
            ErrorKind.VALIDATION,
            "Split it into several calls.",
        )
    return _ExpressionReader(expression).read_all()


class _ExpressionReader:
    """One expression being read from left to right."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.tokens = self._split()
        self.next = 0
        self.depth = 0
        self.arithmetic = Arithmetic()

    def read_all(self) -> Number:
        if self._here.kind == "end":
            raise ToolError("the expression is empty", ErrorKind.VALIDATION, 'Write one, such as "2 * (3 + 4)".')
        value = self._read_value(0)
        if self._here.kind != "end":
            raise self._unexpected_error(self._here)
        return value

    def _read_value(self, weakest: int) -> Number:
        """Reads an operand and every following operator that binds at least as strongly as `weakest`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._error_at(f"nested more than {MAX_DEPTH} levels deep", self._here)
        left = self._read_operand()
        while self._here.kind == "sign" and (strength := _STRENGTH.get(self._here.text, -1)) >= weakest:
            operator = self._take()
            right = self._read_value(strength if operator.text in ("**", "^") else strength + 1)
            left = self._compute(operator, left, right)
        self.depth -= 1
        return left

    def _read_operand(self) -> Number:
        token = self._take()
        if token.kind in ("based", "number"):
            return self._read_number(token)
        if token.kind == "name":
            return self._read_name(token)
        if token.text == "(":
            value = self._read_value(0)
            self._close(token)
            return value
        if token.text in ("+", "-"):
            value = self._read_value(_UNARY)
            return -value if token.text == "-" else value
        raise self._unexpected_error(token)

    def _read_name(self, token: _Token) -> Number:
        name = token.text.lower()
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        function = self.arithmetic.functions.get(name)
        if function is None:
            raise self._unknown_error(token)
        if self._here.text != "(":
            raise self._error_at(f"{name} is a function and needs parentheses", token, f"Write {name}(…).")
        arguments = self._read_arguments()
        if len(arguments) < function.least or (function.most is not None and len(arguments) > function.most):
            raise self._error_at(
                f"{name} takes {_count_text(function.least, function.most)}, not {len(arguments)}", token
            )
        return self._compute(token, *arguments)

    def _read_arguments(self) -> list[Number]:
        opening = self._take()
        arguments: list[Number] = []
        while self._here.text != ")":
            arguments.append(self._read_value(0))
            if self._here.text != ",":
                break
            self._take()
        self._close(opening)
        return arguments

    def _read_number(self, token: _Token) -> Number:
        try:
            if token.kind == "based":
                return int(token.text, 0)
            if token.text.replace("_", "").isdigit():
                return int(token.text)
        except ValueError:  # Python's own limit on the digits of an integer
            raise self._error_at("the number has too many digits", token) from None
        value = float(token.text)
        if value == math.inf:
            raise self._error_at("the number is too large", token)
        return value

    def _compute(self, token: _Token, *operands: Number) -> Number:
        operation = (
            self.arithmetic.operators[token.text]
            if token.kind == "sign"
            else self.arithmetic.functions[token.text.lower()].call
        )
        try:
            value = operation(*operands)
        except ArithmeticRefused as refusal:
            raise self._error_at(str(refusal), token, kind=ErrorKind.USER) from None
        except OverflowError:
            raise self._error_at("the number is too large", token, kind=ErrorKind.USER) from None
        except (ValueError, ZeroDivisionError):
            raise self._error_at(
                f"{token.text} has no value for {_render_operands(operands)}", token, kind=ErrorKind.USER
            ) from None
        if isinstance(value, float) and not math.isfinite(value):
            raise self._error_at("the result is not a finite number", token, kind=ErrorKind.USER)
        return value

    def _close(self, opening: _Token) -> None:
        if self._here.kind == "end":
            raise self._error_at('this "(" is never closed', opening)
        if self._here.text != ")":
            raise self._unexpected_error(self._here)
        self._take()

    @property
    def _here(self) -> _Token:
        return self.tokens[self.next]

    def _take(self) -> _Token:
        token = self.tokens[self.next]
        if token.kind != "end":
            self.next += 1
        return token

    def _split(self) -> list[_Token]:
        text = self.expression.translate(_TYPED_SIGNS)
        tokens, position = [], 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error_at("unexpected character", _Token("unknown", text[position], position), _GRAMMAR)
            if match.lastgroup != "space":
                tokens.append(_Token(match.lastgroup or "", match.group(), position))
            position = match.end()
        return [*tokens, _Token("end", "", len(text))]

    def _unexpected_error(self, token: _Token) -> ToolError:
        if token.kind == "end":
            return self._error_at("the expression ends too early", token, "Add what is missing at the end.")
        if self.next and token is self._here and (token.kind != "sign" or token.text == "("):
            return self._error_at("an operator is missing before this", token, "Write multiplication with *.")
        return self._error_at(f'unexpected "{token.text}"', token, _GRAMMAR)

    def _unknown_error(self, token: _Token) -> ToolError:
        names = sorted([*self.arithmetic.functions, "pi", "e", "tau"])
        similar = near(token.text, names)
        hint = f"Did you mean {' or '.join(similar)}?" if similar else f"Known names: {', '.join(names)}."
        return self._error_at("unknown name", token, hint)

    def _error_at(
        self, problem: str, token: _Token, suggestion: str = "", kind: ErrorKind = ErrorKind.VALIDATION
    ) -> ToolError:
        rest = self.expression[token.position : token.position + 20]
        more = "…" if token.position + 20 < len(self.expression) else ""
        where = f"near {rest + more!r}" if rest else "at the end"
        return ToolError(f"{problem}, at position {token.position + 1} ({where})", kind, suggestion or _CORRECT)


_CORRECT = "Correct the expression at that position."
_GRAMMAR = (
    "Numbers, + - * / // % ** ^, parentheses, functions such as sqrt(2) and the constants pi, e, tau can be used."
)


def _count_text(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more arguments"
    return f"{least} argument{'s' * (least != 1)}" if least == most else f"{least} to {most} arguments"


def _render_operands(operands: tuple[Number, ...]) -> str:
    return ", ".join(f"{number:.6g}" if abs(number) < 1e300 else "a very large number" for number in operands[:4])
