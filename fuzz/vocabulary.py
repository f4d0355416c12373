"""The words that mutations are made of: what confuses programs, and places of the ground alone."""

from __future__ import annotations

from typing import Any

from fuzz.website import FAR

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3.5, -0.0, 0.1, 99, 101, 255, 65_536, 10_001),
    *(2**31, -(2**31) - 1, 2**53 + 1, 2**63, 2**64, 10**30, 1e308, -1e308, 5e-324),
)
TEXTS = (
    *("", " ", "\n", "\t", "\0", "a\0b", ".", "..", "/", "\\", "*", "**", "?", "[", "]", "{", "}", "(", "%", "$"),
    *("null", "true", "NaN", "Infinity", "-1", "1e999", "0x10", "[]", "{}", "[1", '{"a": 1}', '"', "'", "`"),
    *(
        "\ud800",
        "\ufeff",
        "\u202egnp.exe",
        "\u2028",
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",
        "e\u0301" * 40,
        "\x1b[31m",
    ),
    *(
        "%s%n{0}{__class__}",
        "{{7*7}}",
        "${FUZZ_KEY}",
        "$FUZZ_KEY",
        "$(echo hi)",
        "`echo hi`",
        "<script>alert(1)</script>",
    ),
    *("(a+)+$", "(?=x)", "\\", "[[:alpha:]]", "(?P<a>.)(?P=a)", "a{1000}{1000}", "^", "$", "x*" * 30, "(" * 200),
    *("a" * 300, "9" * 400, "[" * 3_000, "[1]" * 3_000, "\n" * 5_000, "@daily", "* * * * *", "99 99 * * *"),
)
OFTEN, WORDS = ("echo", "cat", "ls", "printf"), ("hi", "-l", "-n", "a b", "'", '"', "\\", "$HOME", "*", "~", "-", "--")
JOINS = (
    " ",
    " | ",
    " && ",
    " ; ",
    " || ",
    " & ",
    " > ",
    " >> ",
    " < ",
    " 2>&1 ",
    "\n",
    " $(",
    ") ",
    " `",
    " {",
    "} ",
    " <<< ",
)


def paths(beside: str) -> tuple[str, ...]:
    """Of the ground, and no others: a call that gets through must find nothing it could harm."""
    inside = (
        "notes.txt src/main.py src/endings.txt src/old.txt src/wide.txt data/people.csv data/picture.png empty".split()
    )
    inside += (
        "data/binary.bin data/big.txt data/line.txt deep/a/b/c/d/e.txt not/there.txt new.txt left-out.log src".split()
    )
    odd = [
        "with space/and 'quote'.txt",
        "\u00fcml\u00e4ut.txt",
        "u\u0308ml.txt",
        "./src/../notes.txt",
        "notes.txt/",
        "//notes.txt",
    ]
    odd += [
        "NOTES.TXT",
        "notes.txt ",
        "-n",
        "a" * 260,
        "d/" * 300 + "x",
        "notes.txt\0.png",
        "a\nb.txt",
        "CON",
        "file.txt:stream",
    ]
    links = (
        "link-inside link-outside link-absolute link-to-directory/secret.txt link-to-directory link-to-itself".split()
    )
    links += "link-to-nothing src/link-up/secret.txt src/link-up pipes/pipe".split()
    kept = ".git/config .git/hooks/x .forge .forge/state.db .forge/audit.ndjson forge.yaml tools/repeat.py".split()
    outside = [
        "../beside/secret.txt",
        "../beside/deep",
        "src/../../beside/new.txt",
        "..",
        f"{beside}/secret.txt",
        beside,
    ]
    outside += [
        "~",
        "~/secret.txt",
        f"file://{beside}/secret.txt",
        "../home/secret.txt",
        "/proc/self/environ",
        f"{beside}/new/x",
    ]
    return (*inside, *odd, *links, *kept, *outside)


def urls(site: str) -> list[str]:
    port = site.rpartition(":")[2]
    hosts = ["localhost", "127.1", "0x7f000001", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "127.0.0.2"]
    return [
        *(f"http://{host}:{port}/json" for host in hosts),
        *(
            FAR,
            "http://127.0.0.1:9/",
            "http://127.0.0.1:1/",
            "https://127.0.0.1:1/",
            site,
            f"{site}/json#x",
            f"{site}/%00",
        ),
        *(
            "ftp://127.0.0.1/",
            "file:///proc/self/environ",
            "javascript:alert(1)",
            "data:text/plain,hi",
            "http://",
            "//x",
        ),
        *(f"http://user:word@127.0.0.1:{port}/json", f"http://127.0.0.1:{port}\\@192.0.2.1/", f"{site}/{'a' * 9_000}"),
        *(
            "http://127.0.0.1:99999/",
            "http://[::1",
            "http://a..b/",
            f"{site}/json?a=\r\nX-B: c",
            "say",
            "pets",
            "notify",
        ),
    ]
