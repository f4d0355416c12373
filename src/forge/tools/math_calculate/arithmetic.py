"""Arithmetic on exact integers and floats that refuses before it becomes slow or meaningless."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

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
        for name in (
            "exp expm1 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh degrees radians gamma erf"
        ).split()
    },
    "atan2": Function(2, 2, math.atan2),
    "hypot": Function(1, None, math.hypot),
}
