"""What users call keeps its signature: a change is seen, and recorded on purpose with `make signatures`."""

from __future__ import annotations

from scripts.signatures import breaking_changes, recorded, signatures


def test_no_public_signature_changed_unnoticed():
    gone = breaking_changes(recorded(), signatures())
    assert not gone, "\n".join(["gone or changed; keep the old spelling, or run `make signatures`:", *gone])


def test_every_public_signature_is_recorded():
    new = breaking_changes(signatures(), recorded())
    assert not new, "\n".join(["not recorded; run `make signatures`:", *new])


def test_a_changed_parameter_is_a_breaking_change_and_a_new_name_is_not():
    old = ["forge.a(x: int)", "forge.b()"]
    assert breaking_changes(old, ["forge.a(y: int)", "forge.b()"]) == ["forge.a(x: int)"]
    assert not breaking_changes(old, [*old, "forge.c()"])
