"""What surrounds a call, packed here and set there."""

from __future__ import annotations

from contextvars import ContextVar, copy_context

from forge.core import travelling


def test_what_is_set_travels_and_what_is_not_does_not(monkeypatch):
    monkeypatch.setattr(travelling, "_variables", {})
    one: ContextVar[int] = ContextVar("one", default=1)
    travelling.travels(__name__, one)
    assert travelling.surroundings() == {}

    def inside() -> dict[str, int]:
        one.set(2)
        return travelling.surroundings()

    values = copy_context().run(inside)
    assert values == {__name__: 2}

    def there() -> int:
        travelling.surround(values)
        return one.get()

    assert copy_context().run(there) == 2
    assert one.get() == 1
