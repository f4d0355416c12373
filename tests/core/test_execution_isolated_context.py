"""What surrounds a call, packed here and set there."""

from __future__ import annotations

from contextvars import ContextVar, copy_context

from forge.core.execution import isolated_context


def test_what_is_set_travels_and_what_is_not_does_not(monkeypatch):
    monkeypatch.setattr(isolated_context, "_variables", {})
    one: ContextVar[int] = ContextVar("one", default=1)
    isolated_context.register_variable(__name__, one)
    assert isolated_context.capture_context() == {}

    def inside() -> dict[str, int]:
        one.set(2)
        return isolated_context.capture_context()

    values = copy_context().run(inside)
    assert values == {__name__: 2}

    def there() -> int:
        isolated_context.restore_context(values)
        return one.get()

    assert copy_context().run(there) == 2
    assert one.get() == 1
