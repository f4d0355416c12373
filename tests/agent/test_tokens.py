"""Token estimates: how near they come to real vocabularies, and what they cost."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge.agent import tokens
from forge.agent.tokens import Tally, estimate, estimate_message, estimate_messages
from forge.core.messages import Message, ToolCall, Usage
from forge.core.result import Attachment

ENGLISH = """The committee met on Tuesday to discuss whether the old bridge should be repaired or replaced. Most of \
the engineers favoured a replacement, because the foundations had shifted by almost a foot since the last survey, and \
nobody could say how long they would hold. The mayor disagreed: a new bridge would cost four times as much, and the \
town hadn't finished paying for the library yet. "We can't have everything," she said, "and we can't have it at once." \
In the end they agreed to wait for a second opinion, which is what committees usually agree on.
"""

CODE = '''
class RateLimiter:
    """Allows so many calls in so many seconds."""

    def __init__(self, calls: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._calls = deque(maxlen=calls)
        self._seconds = seconds
        self._clock = clock

    async def wait(self) -> None:
        while len(self._calls) == self._calls.maxlen:
            remaining = self._seconds - (self._clock() - self._calls[0])
            if remaining <= 0:
                self._calls.popleft()
                break
            await asyncio.sleep(remaining)
        self._calls.append(self._clock())

    def __repr__(self):
        return f"RateLimiter({len(self._calls)}/{self._calls.maxlen} in {self._seconds}s)"
'''

JAVASCRIPT = """export function debounce(fn, delay = 250) {
  let timer = null;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => fn.apply(this, args), delay);
  };
}
document.querySelectorAll('.search-input').forEach((input) => {
  input.addEventListener('keyup', debounce((event) => {
    fetch(`/api/v2/search?q=${encodeURIComponent(event.target.value)}`)
      .then((response) => response.json())
      .then(({ results }) => renderResults(results ?? []));
  }));
});
"""

RECORDS = [
    {"id": 1000 + n, "name": f"order-{n}", "customer": {"email": f"someone{n}@example.com", "vip": n % 3 == 0}}
    | {"total": 19.99 * n, "items": ["keyboard", "mouse"], "created_at": f"2025-03-{n:02d}T09:15:00Z", "note": None}
    for n in range(1, 9)
]

CHINESE = """董事会在星期二开会,讨论旧桥应该修理还是重建。大多数工程师赞成重建,因为自上次勘察以来,\
桥基已经移动了将近三十厘米,谁也说不准它还能支撑多久。市长不同意:建一座新桥的费用是修理的四倍,\
而镇上还没有付清图书馆的贷款。她说:“我们不可能什么都要,\
更不可能一下子都要。”最后大家同意再听取一次意见,委员会通常都会同意这样做。\
程序运行时如果遇到错误,请先检查配置文件是否存在,\
然后重新启动服务,并把日志发送给管理员。
"""

LOG = "\n".join(
    f"2025-03-{n:02d} 08:{n * 7 % 60:02d}:12,{n * 91 % 1000:03d} INFO [worker-{n % 4}] app.server: "
    f"GET /api/users/{n * 37} 200 in {n * 3} ms"
    for n in range(1, 13)
)

DIFF = """diff --git a/src/app/server.py b/src/app/server.py
index 3f2a91c..b81d0e4 100644
--- a/src/app/server.py
+++ b/src/app/server.py
@@ -41,7 +41,9 @@ class Server:
     def start(self, port: int = 8080) -> None:
-        self.socket.bind(("0.0.0.0", port))
+        if not 0 < port < 65536:
+            raise ValueError(f"port {port} is out of range")
+        self.socket.bind((self.settings.host, port))
         self.socket.listen(128)
         self.running = True
"""

RUSSIAN = """Комитет собрался во вторник, чтобы обсудить, следует ли отремонтировать старый мост или построить новый. \
Большинство инженеров высказались за новый мост, потому что с прошлого обследования опоры сместились \
почти на треть метра, и никто не мог сказать, сколько они ещё продержатся.
"""

TEXTS = {
    "english": ENGLISH,
    "python": CODE,
    "javascript": JAVASCRIPT,
    "json": json.dumps(RECORDS),
    "json, indented": json.dumps(RECORDS, indent=2),
    "chinese": CHINESE,
    "log": LOG,
    "diff": DIFF,
    "russian": RUSSIAN,
}

# counted with cl100k, o200k, Qwen, Tekken and an old Claude vocabulary
COUNTED = {
    "english": (115, 114, 115, 115, 116),
    "python": (182, 180, 182, 195, 185),
    "javascript": (110, 118, 112, 123, 145),
    "json": (593, 593, 700, 724, 604),
    "json, indented": (762, 762, 869, 893, 758),
    "chinese": (214, 154, 122, 181, 203),
    "log": (431, 431, 594, 594, 420),
    "diff": (145, 146, 160, 163, 169),
    "russian": (121, 69, 85, 72, 135),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_an_estimate_is_within_a_factor_of_two_of_every_vocabulary(kind):
    found = estimate(TEXTS[kind])
    assert all(count / 2 < found < count * 2 for count in COUNTED[kind])


@pytest.mark.parametrize("kind", ["english", "python", "json", "json, indented", "diff"])
def test_english_code_and_json_come_much_nearer(kind):
    middle = sorted(COUNTED[kind])[2]
    assert 0.8 * middle < estimate(TEXTS[kind]) < 1.25 * middle


@pytest.mark.parametrize("kind", TEXTS)
def test_samples_of_a_long_text_tell_as_much_as_the_whole(kind):
    text = TEXTS[kind] * (200_000 // len(TEXTS[kind]))
    assert estimate(text) == pytest.approx(estimate(TEXTS[kind]) * (200_000 // len(TEXTS[kind])), rel=0.1)


def test_a_long_text_of_two_halves_is_sampled_in_both():
    assert estimate(ENGLISH * 200 + CHINESE * 400) == pytest.approx(
        estimate(ENGLISH) * 200 + estimate(CHINESE) * 400, rel=0.1
    )


def test_nothing_costs_nothing_and_anything_something():
    assert estimate("") == 0
    assert estimate(" ") == 1
    assert estimate("a") == 1
    assert estimate("\n" * 100) > 50


@pytest.mark.parametrize("text", ["acgt" * 10_000, "QUJD" * 10_000, "7" * 40_000, "好" * 40_000, "🎉" * 40_000])
def test_what_is_no_language_is_not_taken_for_one_word(text):
    assert estimate(text) > len(text) / 8


@given(st.text())
@settings(deadline=None)
def test_any_text_has_an_estimate(text):
    assert 0 <= estimate(text) <= 1 + 4 * len(text)


@given(st.text(alphabet=st.characters(categories=["Cs", "L"])))
@settings(deadline=None)
def test_lone_surrogates_are_no_reason_to_fail(text):
    assert estimate(text) >= bool(text)


def test_more_text_is_not_less():
    sizes = [estimate(ENGLISH * times) for times in (1, 2, 10, 100, 1_000)]
    assert sizes == sorted(sizes)


def test_a_message_is_its_text_its_calls_its_pictures_and_its_extra():
    bare = estimate_message(Message("user", ENGLISH))
    assert bare == estimate(ENGLISH) + tokens.MESSAGE
    written = estimate_message(Message("assistant", ENGLISH, (ToolCall("file_write", {"content": CODE}),)))
    assert written > bare + 0.8 * estimate(CODE)
    as_text = Message("assistant", ENGLISH, (ToolCall("file_write", json.dumps({"content": CODE})),))
    assert estimate_message(as_text) == pytest.approx(written, rel=0.05)
    picture = Message("tool", ENGLISH, attachments=(Attachment("image/png", b"x" * 10),))
    assert estimate_message(picture) == bare + tokens.IMAGE
    assert estimate_message(Message("tool", ENGLISH, attachments=(Attachment("application/pdf", b"x"),))) < bare + 100
    assert estimate_message(Message("assistant", "", extra={"thinking": ENGLISH})) > estimate(ENGLISH)


def test_arguments_that_json_cannot_hold_have_an_estimate():
    cycle: dict = {}
    cycle["self"] = cycle
    for value in (cycle, {"a": object()}, {"a": {1, 2}}, {"a": b"bytes"}, {"a": float("nan")}):
        assert estimate_message(Message("assistant", "", (ToolCall("t", value),))) > tokens.MESSAGE


def test_an_estimate_is_made_once_for_a_message(monkeypatch):
    message = Message("user", ENGLISH * 3)
    found = estimate_message(message)
    monkeypatch.setattr(tokens, "estimate", None)
    assert estimate_message(message) == found
    with pytest.raises(TypeError):
        estimate_message(Message("user", ENGLISH * 3))  # equal, but another one


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(tokens, "REMEMBERED", 100_000)
    for number in range(1_000):
        estimate_message(Message("user", f"{number}" * 400))
    estimate_message(Message("user", "x" * 200_000))
    assert sum(len(message.text) for message, _ in tokens._known.values()) <= 100_000


def test_the_cost_of_a_text_is_bounded():
    text = ENGLISH * 100_000  # 50 MB
    started = time.process_time()
    estimate(text)
    assert time.process_time() - started < 1


class Counting(list):
    """A history that counts how often it is looked into."""

    looks = 0

    def __getitem__(self, index):
        self.looks += 1
        return super().__getitem__(index)

    def __iter__(self):
        self.looks += len(self)
        return super().__iter__()


def test_a_tally_is_the_sum_and_looks_only_at_what_is_new():
    history = Counting(Message("user", f"question {number}") for number in range(1_000))
    tally = Tally()
    assert tally.of(history) == estimate_messages(history)
    history.looks = 0
    history.append(Message("user", ENGLISH))
    total = tally.of(history)
    assert history.looks == 1
    assert total == estimate_messages(history)
    assert tally.of(history) == total


def test_a_tally_believes_the_provider():
    history = [Message("system", ENGLISH), Message("user", "go")]
    tally = Tally()
    tally.of(history)
    history.append(Message("assistant", "ok", usage=Usage(input=9_000, output=5)))
    assert 9_000 < tally.of(history) < 9_020
    history.append(Message("user", "on"))
    assert 9_000 < tally.of(history) < 9_040


def test_a_tally_keeps_what_no_message_holds_when_the_history_is_replaced():
    history = [Message("user", ENGLISH * 10)]
    tally = Tally()
    tally.of(history)
    history.append(Message("assistant", "ok", usage=Usage(input=20_000)))
    tally.of(history)
    shorter = [Message("user", "short"), *history[1:]]
    assert 20_000 - estimate(ENGLISH) * 11 < tally.of(shorter) < 20_000


def test_a_tally_does_not_believe_a_server_that_counts_only_what_was_not_cached():
    history = [Message("user", ENGLISH * 100)]
    tally = Tally()
    before = tally.of(history)
    history.append(Message("assistant", "ok", usage=Usage(input=12)))
    assert tally.of(history) >= before


def test_a_shorter_history_is_counted_again():
    history = [Message("user", ENGLISH), Message("user", ENGLISH + "!")]
    tally = Tally()
    tally.of(history)
    del history[1:]
    assert tally.of(history) == estimate_messages(history)
