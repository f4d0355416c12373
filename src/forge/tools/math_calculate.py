"""Calculates, exactly for integers: reads an expression by operator precedence, without evaluating code."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, NamedTuple

from forge.core.arguments.names import near
from forge.core.arguments.parameters import ParameterLimits
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.tool import tool


@tool(category=Category.BUILTIN, idempotent=True, timeout=10.0)
def math_calculate(
    expression: Annotated[str, ParameterLimits(example="sqrt(2) * sin(pi / 4)")],
) -> ToolResult:
    """Calculate an arithmetic expression instead of guessing. Integers are exact; ^ and ** are powers."""

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


# Reads an arithmetic expression and computes it on the way, by operator precedence, without `eval`.

MAX_LENGTH = 10_000  # characters of an expression
MAX_DEPTH = 100  # parentheses, signs and powers inside each other

_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau, "π": math.pi, "τ": math.tau}
_TYPED_SIGNS = str.maketrans("×·⋅÷−", "***/-")  # one character for one, so that positions stay true
_PIECE = r"""(?x)(?P<space>\s+)
    |(?P<based>0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+)
    |(?P<number>(?:[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*|[πτ])
    |(?P<sign>\*\*|//|[-+*/%^(),])"""  # compiled at its first use: listing tools needs none
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
        tokens, position, token = [], 0, re.compile(_PIECE)
        while position < len(text):
            match = token.match(text, position)
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


# Arithmetic on exact integers and floats that refuses before it becomes slow or meaningless.

Number = int | float

MAX_BITS = 1 << 17  # of any intermediate integer, about 39,000 digits
MAX_WORK = 8_000_000  # machine-word operations of one expression, about 20 ms


class ArithmeticRefused(Exception):
    """The operation has no answer, or one that is too expensive; the message says which."""


class Function(NamedTuple):
    """A function of the calculator; `most` of None takes any number of arguments."""

    least: int
    most: int | None
    call: Callable[..., Number]


class Arithmetic:
    """The operations of one expression; all of them draw on one budget of work, spent before the work is done."""

    def __init__(self) -> None:
        self._left = float(MAX_WORK)
        self.operators: dict[str, Callable[[Number, Number], Number]] = {
            "+": self.add,
            "-": self.subtract,
            "*": self.multiply,
            "/": self.divide,
            "//": self.floor_divide,
            "%": self.modulo,
            "**": self.power,
            "^": self.power,
        }
        self.functions = _FLOAT_FUNCTIONS | {
            "sqrt": Function(1, 1, self.square_root),
            "cbrt": Function(1, 1, self.cube_root),
            "abs": Function(1, 1, abs),
            "pow": Function(2, 3, self.power),
            "mod": Function(2, 2, self.modulo),
            "min": Function(2, None, min),
            "max": Function(2, None, max),
            "sum": Function(1, None, self.total),
            "mean": Function(1, None, lambda *numbers: self.divide(self.total(*numbers), len(numbers))),
            "round": Function(1, 2, self.round),
            "floor": Function(1, 1, math.floor),
            "ceil": Function(1, 1, math.ceil),
            "trunc": Function(1, 1, math.trunc),
            "sign": Function(1, 1, lambda number: (number > 0) - (number < 0)),
            "log": Function(1, 2, self.logarithm),
            "ln": Function(1, 1, self.logarithm),
            "log2": Function(1, 1, lambda number: self.logarithm(number, 2)),
            "log10": Function(1, 1, lambda number: self.logarithm(number, 10)),
            "factorial": Function(1, 1, self.factorial),
            "comb": Function(2, 2, self.combinations),
            "perm": Function(2, 2, self.permutations),
            "gcd": Function(1, None, self.greatest_common_divisor),
            "lcm": Function(1, None, self.least_common_multiple),
        }

    def spend(self, work: float) -> None:
        self._left -= work
        if self._left < 0:
            raise ArithmeticRefused("the expression needs too much computing")

    def add(self, a: Number, b: Number) -> Number:
        self.spend(_count_words(a) + _count_words(b))
        return a + b

    def subtract(self, a: Number, b: Number) -> Number:
        return self.add(a, -b)

    def multiply(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            _check_size(a.bit_length() + b.bit_length() - 1)
            self.spend(_product_work(a, b))
        return a * b

    def divide(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            quotient, rest = self._divmod(a, b)
            return a / b if rest else quotient  # exact where a float would not be
        _refuse_zero(b)
        return a / b

    def floor_divide(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return self._divmod(a, b)[0]
        _refuse_zero(b)
        return a // b

    def modulo(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return self._divmod(a, b)[1]
        _refuse_zero(b)
        return a % b

    def power(self, a: Number, b: Number, modulus: Number | None = None) -> Number:
        if modulus is not None:
            return self._modular_power(*_require_whole(a, b, modulus))
        if b < 0:
            _refuse_zero(a)
        if isinstance(a, int) and isinstance(b, int) and b >= 0:
            return self._whole_power(a, b)
        if a < 0 and b != math.floor(b):
            raise ArithmeticRefused("a negative number has no real fractional power")
        return float(float(a) ** float(b))

    def square_root(self, a: Number) -> Number:
        if a < 0:
            raise ArithmeticRefused("a negative number has no real square root")
        if isinstance(a, int):
            self.spend(_count_words(a) ** 2 / 4)
            root = math.isqrt(a)
            if root * root == a:
                return root
        return math.sqrt(a)

    def cube_root(self, a: Number) -> Number:
        return self._round_to_exact(math.cbrt(a), lambda root: self.power(root, 3) == a)

    def logarithm(self, a: Number, base: Number | None = None) -> Number:
        if a <= 0 or (base is not None and base <= 0):
            raise ArithmeticRefused("only numbers above zero have a logarithm")
        if base == 1:
            raise ArithmeticRefused("1 cannot be the base of a logarithm")
        if base == 2:
            return math.log2(a)
        if base == 10:
            return math.log10(a)
        if base is None:
            return math.log(a)
        return self._round_to_exact(math.log(a) / math.log(base), lambda exponent: self.power(base, exponent) == a)

    def round(self, a: Number, digits: Number = 0) -> Number:
        (decimals,) = _require_whole(digits)
        if not -400 <= decimals <= 400:
            raise ArithmeticRefused("digits to round to must be between -400 and 400")
        if isinstance(a, int) and decimals < 0:
            self.spend(_count_words(a) ** 2)
        return round(a, decimals) if decimals else round(a)

    def total(self, *numbers: Number) -> Number:
        result: Number = 0
        for number in numbers:
            result = self.add(result, number)
        return result

    def factorial(self, n: Number) -> int:
        (whole,) = _require_natural(n)
        _check_size(math.lgamma(whole + 1) / math.log(2) if whole < MAX_BITS else math.inf)
        self.spend(whole * 100)
        return math.factorial(whole)

    def combinations(self, n: Number, k: Number) -> int:
        total, taken = _require_natural(n, k)
        if taken > total:
            return 0
        return self.permutations(total, min(taken, total - taken), math.comb)

    def permutations(self, n: Number, k: Number, count: Callable[[int, int], int] = math.perm) -> int:
        total, taken = _require_natural(n, k)
        if taken > total:
            return 0
        _check_size(taken * total.bit_length())
        self.spend(taken * (taken * total.bit_length() / 30 + 10))
        return count(total, taken)

    def greatest_common_divisor(self, *numbers: Number) -> int:
        whole = _require_whole(*numbers)
        self.spend(sum(_count_words(number) ** 2 for number in whole))
        return math.gcd(*whole)

    def least_common_multiple(self, *numbers: Number) -> int:
        result = 1
        for number in _require_whole(*numbers):
            shared = self.greatest_common_divisor(result, number) or 1
            result = abs(int(self.multiply(result, self._divmod(number, shared)[0])))
        return result

    def _round_to_exact(self, value: float, is_answer: Callable[[int], bool]) -> Number:
        """Returns the whole number next to `value` if that is the exact answer and only rounding hid it."""
        nearest = round(value)
        close = abs(value - nearest) <= 1e-9 * max(1.0, abs(value))
        return nearest if close and is_answer(nearest) else value

    def _divmod(self, a: int, b: int) -> tuple[int, int]:
        _refuse_zero(b)
        self.spend(max(_count_words(a) - _count_words(b), 1) * _count_words(b))
        return divmod(a, b)

    def _whole_power(self, a: int, b: int) -> int:
        bits = math.log2(abs(a)) * min(b, MAX_BITS + 1) if abs(a) > 1 else 1
        _check_size(bits)
        self.spend(3 * (bits / 30 + 1) ** 1.58)
        return int(a**b)

    def _modular_power(self, a: int, b: int, modulus: int) -> int:
        _refuse_zero(modulus)
        self.spend(
            2 * (b.bit_length() + 1) * (_count_words(modulus) ** 2 + 1) + _count_words(a) * _count_words(modulus)
        )
        return pow(a, b, modulus)


def _count_words(number: Number) -> int:
    return number.bit_length() // 30 + 1 if isinstance(number, int) else 1


def _product_work(a: int, b: int) -> float:
    short, long = sorted((_count_words(a), _count_words(b)))
    return float(long * short**0.58 if short > 70 else long * short)


def _check_size(bits: float) -> None:
    if bits > MAX_BITS:
        raise ArithmeticRefused("the number is too large")


def _refuse_zero(number: Number) -> None:
    if number == 0:
        raise ArithmeticRefused("division by zero")


def _require_whole(*numbers: Number) -> tuple[int, ...]:
    if not all(isinstance(number, int) or number.is_integer() for number in numbers):
        raise ArithmeticRefused("only whole numbers are possible here")
    return tuple(int(number) for number in numbers)


def _require_natural(*numbers: Number) -> tuple[int, ...]:
    whole = _require_whole(*numbers)
    if min(whole) < 0:
        raise ArithmeticRefused("only whole numbers of 0 or more are possible here")
    return whole


_FLOAT_FUNCTIONS = {
    **{
        name: Function(1, 1, getattr(math, name))
        for name in [
            "exp",
            "expm1",
            "log1p",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
            "degrees",
            "radians",
            "gamma",
            "erf",
        ]
    },
    "atan2": Function(2, 2, math.atan2),
    "hypot": Function(1, None, math.hypot),
}
