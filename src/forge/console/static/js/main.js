// The frame of every page: navigation, connection and the number of open questions.

import { get, learnMe, me, onExpired, takeToken } from "./api.js";
import { fill, h } from "./dom.js";
import { keepTimes } from "./format.js";
import { listenToKeys, showKeys } from "./keys.js";
import { PAGES } from "./pages.js";
import { listenToPalette, openPalette, PALETTE_KEY } from "./palette.js";
import { openCompare } from "./pages/compare.js";
import { openSessions } from "./pages/runs.js";
import { icon } from "./parts/marks.js";
import { noticePlace, say } from "./parts/notices.js";
import { address, go, nameTab, route } from "./router.js";
import { listen, openStream, stream } from "./stream.js";
import { nextTheme, themeWords } from "./theme.js";

const main = h("main", { id: "main", tabindex: "-1" });
const links = new Map();
const waitingBadge = h("span", { class: "count", hidden: true });
const connection = h("p", { class: "connection", role: "status", hidden: true });
let waiting = 0;

async function start() {
    takeToken();
    build();
    onExpired(showExpired);
    try {
        const [, overview] = await Promise.all([learnMe(), get("/api/overview")]);
        showWaiting(overview.waiting);
        listen("changed", (told) => showWaiting(told.waiting));
        listen("state", showConnection);
        openStream(overview.last);
    } catch (error) {
        return error.status === 401 || error.why === "security_error"
            ? null
            : fill(main, h("h1", {}, "Forge"), h("p", { class: "bad" }, error.message), h("p", {}, error.next ?? ""));
    }
    const pages = Object.fromEntries(PAGES.map(([path, , , open]) => [path, open]));
    route({ ...pages, sessions: openSessions, compare: openCompare }, main, opened);
    keepTimes();
    const keys = PAGES.map(([path, words, , , key]) => [key, words, () => go(path ? [path] : [])]);
    listenToKeys(keys);
    listenToPalette();
    return null;
}

function build() {
    const theme = h(
        "button",
        { type: "button", class: "icon-link", onclick: () => named(nextTheme()) },
        icon("theme"),
        h("span", {}),
    );
    const named = (words) => {
        theme.lastElementChild.textContent = words;
        theme.setAttribute("aria-label", words);
        theme.title = words;
    };
    named(themeWords());
    const keys = h(
        "button",
        { type: "button", class: "icon-link keys-link", onclick: showKeys },
        h("kbd", {}, "?"),
        h("span", {}, "Shortcuts"),
    );
    const palette = h(
        "button",
        { type: "button", class: "icon-link", onclick: openPalette, "aria-keyshortcuts": "Control+K Meta+K", "aria-label": "Go to…", title: "Go to…" },
        icon("search"),
        h("span", {}, "Go to…"),
        h("kbd", {}, PALETTE_KEY),
    );
    const skip = h("button", { type: "button", class: "skip", onclick: () => main.focus() }, "Skip to content");
    const items = PAGES.map(([path, words, drawing]) => {
        const link = h(
            "a",
            { href: address(path ? [path] : []), title: words },
            icon(drawing),
            h("span", { class: "nav-words" }, words),
            path === "approvals" ? waitingBadge : null,
        );
        links.set(path, link);
        return h("li", {}, link);
    });
    const aside = h(
        "header",
        { class: "side" },
        h(
            "a",
            { class: "brand", href: "#/" },
            h("img", { src: "/static/icon.svg", alt: "", width: "20", height: "20" }),
            h("span", {}, "Forge"),
        ),
        h("nav", { "aria-label": "Pages" }, h("ul", {}, items)),
        noticePlace(),
        h("div", { class: "side-foot" }, palette, keys, theme),
    );
    document.body.append(skip, aside, h("div", { class: "content" }, connection, main));
    const { style } = document.documentElement; // what sticks below the head of a narrow screen must know its height
    new ResizeObserver(() => style.setProperty("--head", `${aside.offsetHeight}px`)).observe(aside);
}

const UNDER = { sessions: "runs", compare: "runs" }; // pages that are not in the menu, and where they belong
const NAMED = new Set(["tools", "schedules"]); // pages of something whose name is in the address

function opened([path = "", name = ""], wasElsewhere) {
    const [, words] = PAGES.find(([one]) => one === (UNDER[path] ?? path)) ?? PAGES[0];
    nameTab({ page: NAMED.has(path) && name ? `${name} · ${words}` : words });
    for (const [one, link] of links) {
        if (one === (UNDER[path] ?? path)) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    }
    showInStrip(links.get(UNDER[path] ?? path));
    if (!wasElsewhere) return;
    document.querySelector("dialog[open]")?.close();
    scrollTo(0, 0);
    (main.querySelector("h1") ?? main).focus({ preventScroll: true });
}

/** On a narrow screen the names of the pages are a strip: the current one is in sight. */
function showInStrip(link) {
    const strip = link?.closest("nav");
    strip?.scrollTo({ left: link.offsetLeft - strip.offsetLeft - (strip.clientWidth - link.offsetWidth) / 2 });
}

/** In the page, in the tab's title and in its icon. */
function showWaiting(now) {
    if (now > waiting) say(`${now} ${now === 1 ? "question is" : "questions are"} open`);
    waiting = now;
    waitingBadge.hidden = !now;
    waitingBadge.textContent = now ? String(now) : "";
    waitingBadge.setAttribute("aria-label", `${now} open`);
    nameTab({ waiting: now, project: me.project ?? "" });
    document.querySelector("link[rel=icon]").href = now ? "/static/icon-waiting.svg" : "/static/icon.svg";
}

let doubt = 0;
function showConnection(isThere) {
    clearTimeout(doubt);
    if (isThere) {
        connection.hidden = true;
        return;
    }
    doubt = setTimeout(() => {
        if (stream.isConnected) return;
        connection.hidden = false;
        connection.textContent = "The console does not respond. The page may be out of date. Reconnecting…";
    }, 1_000);
}

function showExpired(refusal) {
    connection.hidden = false;
    fill(connection, refusal.message, ". ", refusal.next);
}

start();
