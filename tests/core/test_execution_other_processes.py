"""What surrounds a call, packed here and set there."""

from __future__ import annotations

from contextvars import ContextVar, copy_context

from forge.core.execution import session_programs as context_transfer


def test_what_is_set_travels_and_what_is_not_does_not(monkeypatch):
    monkeypatch.setattr(context_transfer, "_variables", {})
    one: ContextVar[int] = ContextVar("one", default=1)
    context_transfer.register_variable(__name__, one)
    assert context_transfer.capture_context() == {}

    def inside() -> dict[str, int]:
        one.set(2)
        return context_transfer.capture_context()

    values = copy_context().run(inside)
    assert values == {__name__: 2}

    def there() -> int:
        context_transfer.restore_context(values)
        return one.get()

    assert copy_context().run(there) == 2
    assert one.get() == 1
