"""The benchmark of damaged calls: its corpus, its judge and its table, on two functions and Forge alone."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peer_behaviour import Observed
from benchmarks.peer_systems import load
from benchmarks.repair.corpus import OF_THE_TEXT, ROWS, make_corpus
from benchmarks.repair.judge import judge, judge_calls
from benchmarks.repair.table import BEGIN, END, write_page, write_table
from scores.bfcl import Case
from scores.damage import DAMAGES

FUNCTION: dict[str, Any] = {
    "name": "shop.find_orders",
    "description": 'Find the orders of a "customer".',
    "parameters": {
        "type": "dict",
        "properties": {
            "customer_id": {"type": "integer", "description": "The customer: a number."},
            "order_states": {"type": "array", "items": {"type": "string"}, "description": "open or sent"},
            "filter_by": {"type": "dict", "description": "Further conditions."},
            "is_paid": {"type": "boolean", "description": "Paid ones only."},
            "sort_order": {"type": "string", "enum": ["up", "down"], "default": "up", "description": "By date."},
        },
        "required": ["customer_id", "order_states"],
    },
}
RIGHT = {"customer_id": 7, "order_states": ["open"], "filter_by": {"city": "Bonn"}, "is_paid": True}
UNNAMED = {"name": "no name", "description": "", "parameters": {"type": "dict", "properties": {"a b": {"type": "any"}}}}


def make(folder: Path) -> Path:
    cases = [Case("1", "", [FUNCTION], [("shop_find_orders", RIGHT)]), Case("2", "", [UNNAMED], [("no_name", {})])]
    return make_corpus(cases, folder, 3)


def test_every_damage_of_the_table_is_sent_and_repaired_by_forge(tmp_path):
    folder = make(tmp_path)
    sent = [json.loads(line) for line in (folder / "calls.jsonl").read_text(encoding="utf-8").splitlines()]
    assert Counter(call["damage"] for call in sent) == Counter(list(ROWS))
    assert ROWS.keys() <= DAMAGES.keys()
    assert ROWS.keys() >= OF_THE_TEXT
    found = asyncio.run(judge_calls(load("forge"), folder, OF_THE_TEXT))
    assert found == {"counts": {damage: {"repaired": 1} for damage in ROWS}, "wrong": {}}
    table = write_table({"forge": {**found, "version": "1.2"}, "other": {"reason": "cannot be installed: no network"}})
    assert "| damage | calls | forge 1.2 |" in table
    assert "| `camelCase` key | 1 | 1 / 0 / 0 / 0 |" in table
    assert "| **all** | 16 | 16 / 0 / 0 / 0 |" in table
    assert "other: cannot be installed: no network." in table


CALL = {"expected": {"customer_id": 7}, "names": ["customer_id"]}


@pytest.mark.parametrize(
    ("observed", "is_text", "verdict"),
    [
        (Observed([{"customer_id": 7}], ["done"], ""), False, "repaired"),
        (Observed([{"customer_id": None}], ["done"], ""), False, "wrong"),
        (Observed([], ["customer_id: Field required"], ""), False, "explained"),
        (Observed([], ["An error occurred"], ""), False, "refused"),
        (Observed([], [], ""), False, "refused"),
        (Observed([], ["customer_id"], "ModelBehaviorError"), False, "refused"),
        (Observed([], ["Invalid JSON: expected value at line 1 column 2"], ""), True, "explained"),
        (Observed([], ["Invalid JSON"], ""), True, "refused"),
        (Observed([], ["Argument arguments is not in the schema"], ""), False, "explained"),
        (Observed([], ["The arguments are wrong"], ""), False, "refused"),
    ],
)
def test_a_verdict_follows_from_what_ran_and_what_the_model_read(observed, is_text, verdict):
    assert judge(observed, CALL, is_text) == verdict


def test_the_table_replaces_the_one_in_the_page_and_nothing_else():
    page = write_page(f"# Title\n\n{BEGIN}old{END}\nThe rest.\n", {"forge": {"counts": {}}})
    assert page.startswith(f"# Title\n\n{BEGIN}")
    assert page.endswith(f"{END}\nThe rest.\n")
    assert "old" not in page
    assert write_page(page, {"forge": {"counts": {}}}) == page
