"""Turns a page into markdown, text or clean HTML: run as a program of its own, since pages are written by strangers.

Parsers can be made slow, hungry or worse; a process can be limited and killed. It imports nothing of Forge. On its
standard input stand the form that is wanted, the URL and the page; on its output the title, then the page.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from itertools import accumulate

TYPE_CHECKING = False  # typing and json are slow to load, and a page waits for it
if TYPE_CHECKING:
    from typing import Any

LONGEST_WAIT = 600  # seconds for a page to come; longer than any request, and a bound where no end of input is seen
PIPE = 1024 * 1024  # bytes
DEEPEST_ELEMENTS = 200  # levels of elements; what lies deeper is kept as text alone
NESTED = 500  # levels that the parser is given: for each element it looks at all that are open
PART = 2_048  # characters, which have fewer than `NESTED` tags on most pages
LONGEST_LINK = 2_000  # characters; a longer one is dropped, its text stays
WIDE = 100  # characters of a cell with its markup
WIDEST = 1_000  # columns or rows that a cell may claim to span

_GONE = (
    "head script style noscript template iframe frame frameset noframes object embed applet param noembed "
    "canvas svg audio video source track map area input datalist link meta base title"
).split()
_RAW = ("xmp", "plaintext", "listing")
_SOUGHT = re.compile(f"<({'|'.join((*_GONE, *_RAW))})")  # may find longer names, too
_MAYBE_UNSEEN = "[hidden], [aria-hidden], [style]"
# Of the attributes of strangers, markdown is made of these alone; most links need no look: the converter completes them
_WITH_LINKS = ", ".join(
    [f'[{name}]:not([{name}^="http://"]):not([{name}^="https://"]):not([{name}^="/"])' for name in ("href", "src")]
    + ["[colspan]", "[rowspan]"]
)
_UNSEEN = re.compile(
    r"display:none|visibility:(?:hidden|collapse)|(?:opacity|font-size|(?:max-)?(?:height|width)):0*(?:\.0*)?"
    r"(?:px|em|rem|pt|%)?(?:;|!|$)|(?:text-indent|left|top|right|bottom):-\d{3}|clip:rect\(0|clip-path:inset\((?:50|100)%"
)
_NOISE_IN_STYLE = re.compile(r"/\*.*?(?:\*/|$)|[\s\\]", re.DOTALL)
_KEPT = {  # attributes, by element; of the others none
    "a": ("href", "title"),
    "img": ("src", "alt", "title"),
    "td": ("colspan", "rowspan"),
    "th": ("colspan", "rowspan"),
    "ol": ("start",),
    "code": ("class",),
    "pre": ("class",),
    "abbr": ("title",),
}
_LANGUAGE = re.compile(r"\b(?:language|lang|highlight-source)-[\w+#.-]{1,30}")
_LINKS = ("href", "src")
_PLAIN = re.compile(rf"(?:https?:/|/(?![/\\.]))[!-~]{{0,{LONGEST_LINK - 10}}}")
_ORIGIN = re.compile(r"https?://[^/?#]+")
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_ALLOWED = frozenset({"http", "https", "mailto"})
_IGNORED_BY_BROWSERS = re.compile(r"[\t\r\n]|^[\x00-\x20\x7f-\xa0\ufeff\ufffd\u200b\u2028\u2029]+")
_CODE = re.compile(r"(<(pre|code|textarea)>.*?</\2>|<(?:pre|code) class=.*?</(?:pre|code)>)", re.DOTALL)
_DESTINATION = re.compile(r"\](\(|:)(?!https?://|mailto:)(?=\s{0,20}([^\s)>]{0,200}))")
_AUTOLINK = re.compile(r"<(?=(?!https?:|mailto:)[a-zA-Z][a-zA-Z0-9+.-]{1,31}:)")
_COMMENT = re.compile(r"<!--.*?-->|<[!?][^>]*>", re.DOTALL)
_TAG = re.compile(r"<(/?[a-z][a-z0-9]*)")
_TOKEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|textarea|title|xmp|iframe|noembed|noframes)\b.*?(?:</\1\b|\Z)"
    r"|<(?P<end>/?)(?P<name>[a-z][a-z0-9]*)",
    re.DOTALL | re.IGNORECASE,
)
_FLAT = frozenset(  # they hold nothing, or end where the next one begins
    (
        "area base br col embed hr img input link meta param source track wbr p li dd dt option optgroup tr td "
        "th thead tbody tfoot colgroup caption rp rt html head body"
    ).split()
)
_MAY_HIDE = re.compile(r"hidden|style", re.IGNORECASE)
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")


def convert_page(html: str, url: str, form: str) -> tuple[str, str]:
    """Returns a page's title, and the page as `markdown`, `text` or `html`, without its invisible parts."""
    from selectolax.lexbor import LexborHTMLParser

    if _bound_nesting(html) > NESTED and _measure_nesting(_TAG.findall(html.lower())) > NESTED:
        html = _drop_deep_tags(html)
    tree: Any = LexborHTMLParser(html)
    head_title = tree.css_first("head title")
    title = " ".join(head_title.text().split())[:500] if head_title is not None else ""
    base = tree.css_first("base[href]")
    if base is not None:
        url = safe_link(base.attributes.get("href") or "", url) or url
    _sanitise(tree, url, form, {"head", *_SOUGHT.findall(html.lower())})
    clean: str = tree.body.html if tree.body is not None else ""
    clean = _COMMENT.sub("", clean)  # nothing else in it is written like one: text and attributes are escaped
    if form == "html":
        return title, _BLANK_LINES.sub("\n\n", clean.removeprefix("<body>").removesuffix("</body>")).strip()
    return title, _render(clean, url, form)


def _bound_nesting(html: str) -> int:
    """Returns a depth that the page's elements do not exceed, as if all end tags of a part came before its start tags.

    Most pages are far below the limit; to measure them takes ten times as long.
    """
    depth = deepest = 0
    for start in range(0, len(html), PART):
        ends = html.count("</", start, start + PART)
        starts = html.count("<", start, start + PART) - ends
        deepest = max(deepest, depth + starts)
        depth = max(0, depth - ends) + starts
    return deepest


def _measure_nesting(tags: list[str]) -> int:
    """Estimates the depth of the page's elements; never too low if every end tag has a start tag."""
    steps = {tag: 0 if tag.lstrip("/") in _FLAT else -1 if tag[0] == "/" else 1 for tag in set(tags)}
    depths = list(accumulate([steps[tag] for tag in tags]))
    if min(depths, default=0) < 0:
        depths = list(accumulate([steps[tag] for tag in tags], lambda depth, step: max(depth + step, 0)))
    return max(depths, default=0)


def _drop_deep_tags(html: str) -> str:
    """Removes tags that are nested too deeply, but keeps their content. Tags that may hide content stay."""
    parts: list[str] = []
    here = depth = 0
    open_tags: list[tuple[str, bool]] = []  # and whether it is kept
    counts: Counter[str] = Counter()  # of them, by name
    for token in _TOKEN.finditer(html):
        name = (token["name"] or "").lower()
        if not name or name in _FLAT or token.start() < here:
            continue
        stop = html.find(">", token.end()) + 1 or len(html)
        if token["end"]:
            is_kept = True
            while counts[name]:
                closed, is_kept = open_tags.pop()
                counts[closed] -= 1
                depth -= is_kept
                if closed == name:
                    break
        elif html.endswith("/", token.end(), stop - 1):
            continue
        else:
            is_kept = depth < NESTED or _MAY_HIDE.search(html, token.end(), stop) is not None
            open_tags.append((name, is_kept))
            counts[name] += 1
            depth += is_kept
        if not is_kept:
            parts += [html[here : token.start()], " "]
            here = stop
    return "".join([*parts, html[here:]])


def _render(clean: str, url: str, form: str) -> str:
    import html_to_markdown

    if form == "markdown" and "&lt;" in clean:  # what is text on the page must not become markup here
        parts = _CODE.split(clean)
        for index in range(0, len(parts), 3):
            parts[index] = parts[index].replace("&lt;", "&amp;lt;")
        clean = "".join(part for index, part in enumerate(parts) if index % 3 != 2)
    # the first tier knows markdown alone and pads its tables, at twice the speed
    is_simple = form == "markdown" and not _has_wide_cells(clean)
    options = html_to_markdown.ConversionOptions(
        output_format="plain" if form == "text" else "markdown",
        extract_metadata=False,
        compact_tables=True,
        tier_strategy="tier1" if is_simple else "tier2",
        include_blockquote_citations=False,
        bullets="-",
        base_url=url,
    )
    text: str = html_to_markdown.convert(clean, options).content or ""
    text = _BLANK_LINES.sub("\n\n", text).strip()
    return defuse_links(text) if form == "markdown" else text


def _has_wide_cells(clean: str) -> bool:
    """Returns True for wide cells: padded to the widest cell, a table could grow without bounds."""
    for tag in ("td", "th"):
        cells = clean.split(f"</{tag}>")[:-1]
        if any(len(cell) - cell.rfind(f"<{tag}") > WIDE for cell in cells):
            return True
    return False


def _sanitise(tree: Any, url: str, form: str, present: set[str]) -> None:
    """Removes hidden elements. `present` holds tags of the page: elements that it lacks are not searched for."""
    for tag in _GONE:
        if tag in present:
            _remove(tree.tags(tag))
    _remove([node for node in tree.css(_MAYBE_UNSEEN) if _is_unseen(node.attributes)])
    for tag in _RAW:
        if tag in present:  # shown as it is written, so it must stay text
            for node in reversed(tree.tags(tag)):
                node.replace_with(node.text())
    for node in tree.css("*" if form == "html" else _WITH_LINKS):
        if attributes := node.attributes:
            _clean(node, attributes, url, form)
    _flatten(tree)


def _remove(nodes: list[Any]) -> None:
    """Removes inner elements first: a removed element must not be touched again."""
    for node in reversed(nodes):
        if node.tag not in ("html", "body"):
            node.decompose()


def _flatten(tree: Any) -> None:
    """Samples some elements, and checks all only if one is deep; the converter cuts what this misses."""
    nodes = tree.css("*")
    if not any(_measure_depth(node) >= DEEPEST_ELEMENTS for node in nodes[::64]):
        return
    depths = {0: 0}
    deep = []
    for node in nodes:
        above = node.parent
        depth = depths[node.mem_id] = depths.get(above.mem_id if above is not None else 0, 0) + 1
        if depth == DEEPEST_ELEMENTS:
            deep.append(node)
    for node in reversed(deep):
        node.replace_with(node.text(separator=" "))


def _measure_depth(node: Any) -> int:
    depth = 0
    while node is not None and depth < DEEPEST_ELEMENTS:
        node, depth = node.parent, depth + 1
    return depth


def _clean(node: Any, attributes: dict[str, str | None], url: str, form: str) -> None:
    tag = node.tag
    is_kept = _KEPT.get(tag, ())
    if tag == "img" and not safe_link(attributes.get("src") or "", url):
        node.replace_with((attributes.get("alt") or "")[:LONGEST_LINK])  # such as one that is part of the page itself
        return
    for name, value in attributes.items():
        if name not in is_kept or value is None:
            if form == "html" or name in _LINKS:
                del node.attrs[name]
        elif name in _LINKS:
            link = safe_link(value, url)
            if not link:
                del node.attrs[name]
            elif link != value:
                node.attrs[name] = link
        elif name == "class":
            language = _LANGUAGE.search(value)
            if language is None:
                del node.attrs[name]
            else:
                node.attrs[name] = language[0]
        elif name in ("colspan", "rowspan", "start"):
            digits = value.strip()[:6]
            if not digits.isascii() or not digits.isdecimal() or (name != "start" and int(digits) > WIDEST):
                del node.attrs[name]


def safe_link(link: str, base: str) -> str:
    """Returns a link's full target; empty for other schemes than http, https and mailto, or without a target."""
    if _PLAIN.fullmatch(link):  # as most links of a page are
        if link[0] != "/":
            return link
        if origin := _ORIGIN.match(base):
            return origin[0] + link
    link = _IGNORED_BY_BROWSERS.sub("", link).strip()
    if not link or link.startswith("#") or len(link) > LONGEST_LINK:
        return ""
    scheme = _SCHEME.match(link)
    if scheme is not None:
        return link if scheme[1].lower() in _ALLOWED else ""
    from urllib.parse import urljoin  # slow to load

    try:
        link = urljoin(base, link)
    except ValueError:
        return ""
    return link if link.startswith(("http://", "https://")) else ""


def defuse_links(markdown: str) -> str:
    """Escapes text that would be read as a link to another target with a backslash."""
    return _AUTOLINK.sub(r"\\<", _DESTINATION.sub(_escape_match, markdown))


def _escape_match(found: re.Match[str]) -> str:
    from html import unescape  # slow to load

    destination = _IGNORED_BY_BROWSERS.sub("", unescape(found[2]).replace("\\", "").lstrip(" <\t\r\n"))
    scheme = _SCHEME.match(destination)
    return found[0] if scheme is None or scheme[1].lower() in _ALLOWED else f"]\\{found[1]}"


def _is_unseen(attributes: dict[str, str | None]) -> bool:
    if "hidden" in attributes or (attributes.get("aria-hidden") or "").strip().lower() == "true":
        return True
    return bool(_UNSEEN.search(_NOISE_IN_STYLE.sub("", (attributes.get("style") or "").lower())))


def _limit(seconds: int, memory: int) -> None:
    import resource

    for which, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        try:
            resource.setrlimit(which, (most, most))
        except (ValueError, OSError):  # less is set already, or the system has no such limit
            continue


def _widen(pipe: int) -> None:
    """Enlarges the pipe's buffer, if the system can: the reader pauses between small pieces."""
    import fcntl

    try:
        fcntl.fcntl(pipe, getattr(fcntl, "F_SETPIPE_SZ", -1), PIPE)
    except (OSError, OverflowError):
        return


def main() -> None:
    import threading
    from signal import alarm

    import selectolax.lexbor  # noqa: F401 - while the page is still on its way

    threading.Thread(target=__import__, args=("html_to_markdown",)).start()  # beside the parser, which needs no Python
    seconds, memory = sys.argv[1:3]
    _limit(int(seconds), int(memory))
    alarm(LONGEST_WAIT)
    given = sys.stdin.buffer.read()
    alarm(0)
    if not given:  # there is no page, and nobody waits
        os._exit(0)
    form, url, page = given.decode("utf-8", "replace").split("\n", 2)
    title, text = convert_page(page, url, form)
    answer = f"{title}\n{text}".encode("utf-8", "replace")
    _widen(sys.stdout.fileno())
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    os._exit(0)  # tearing everything down takes time, too
