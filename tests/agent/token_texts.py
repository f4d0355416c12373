"""Texts of many kinds, whose tokens are known for several vocabularies: `token_counts.json`."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256

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

GERMAN = """Der Ausschuss traf sich am Dienstag, um zu besprechen, ob die alte Brücke repariert oder ersetzt werden \
sollte. Die meisten Ingenieure waren für einen Neubau, weil sich das Fundament seit der letzten Prüfung um fast \
dreißig Zentimeter verschoben hatte und niemand sagen konnte, wie lange es noch hält. Die Bürgermeisterin widersprach.
"""

SPANISH = """El comité se reunió el martes para discutir si el puente viejo debía repararse o sustituirse. La mayoría \
de los ingenieros prefería uno nuevo, porque los cimientos se habían desplazado casi treinta centímetros desde la \
última inspección y nadie podía decir cuánto tiempo aguantarían. La alcaldesa no estaba de acuerdo.
"""

JAPANESE = """委員会は火曜日に集まり、古い橋を修理するか建て替えるかを話し合いました。\
ほとんどの技術者は建て替えに賛成しました。\
前回の調査から基礎が三十センチ近くずれていて、いつまで持つか誰にも分からなかったからです。町長は反対しました。
"""

ARABIC = """اجتمعت اللجنة يوم الثلاثاء لمناقشة ما إذا كان ينبغي إصلاح الجسر القديم أو استبداله. فضل معظم المهندسين \
بناء جسر جديد لأن الأساسات تحركت منذ المسح الأخير، ولم يستطع أحد أن يقول كم من الوقت ستصمد.
"""

EMOJI = """Shipped it 🚀🎉 thanks everyone 🙏😊 tests are green ✅✅ but the docs need love ❤️ and one flaky test 🐛😅
Great work 👏🔥 see you Monday 👋😀 coffee first ☕️ then the release 📦✨ who brings cake? 🎂🥳 not me 🤷‍♀️😂
"""

MARKDOWN = """# Release notes

- **Faster start**: `import app` takes 80 ms, not 300 ms (#412).
- Fixed a crash when the file `config.yaml` is empty.
- Deprecated `App.run(debug=True)`; use `App.debug()` instead.

| version | date | downloads |
|---|---|---:|
| 2.1.0 | 2026-03-01 | 18,204 |
| 2.0.3 | 2026-01-17 | 9,118 |

See [the guide](https://example.org/guide/upgrade.html#2-1) before you upgrade.
"""

_NOISE = b"".join(sha256(bytes([number])).digest() for number in range(30))
BASE64, HEX = b64encode(_NOISE).decode(), _NOISE.hex()

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
    "german": GERMAN,
    "spanish": SPANISH,
    "japanese": JAPANESE,
    "arabic": ARABIC,
    "emoji": EMOJI,
    "markdown": MARKDOWN,
    "base64": BASE64,
    "hex": HEX,
}
