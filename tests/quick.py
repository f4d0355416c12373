"""What `make test` leaves to `make test-all`: combinations whose values are all tried in other combinations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import product
from typing import TypeVar
from zlib import crc32

import pytest

is_quick = False
"""Set by conftest.py: the slow tests are not run."""

One = TypeVar("One")
Other = TypeVar("Other")


def pairs(ones: Iterable[One], others: Iterable[Other]) -> list[tuple[One, Other]]:
    """All pairs; in `make test` as many as it takes to have every value of both in one."""
    first, second = list(ones), list(others)
    if not is_quick or not first or not second:
        return list(product(first, second))
    return [
        (first[number % len(first)], second[number % len(second)]) for number in range(max(len(first), len(second)))
    ]


def leave_combinations_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test marked `matrix`, keeps combinations that have every value of every parameter."""
    seen: dict[str, set[tuple[str, int]]] = defaultdict(set)
    left_out = []
    matrices = [item for item in items if isinstance(item, pytest.Function) and item.get_closest_marker("matrix")]
    # in an order that mixes the values and is the same each time
    for item in sorted(matrices, key=lambda item: crc32(item.nodeid.encode())):
        values = {(name, id(value)) for name, value in item.callspec.params.items()}
        known = seen[item.nodeid.partition("[")[0]]
        if values <= known:
            left_out.append(item)
        known |= values
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]
