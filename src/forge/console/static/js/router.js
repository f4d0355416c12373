// Which page is shown: the part of the address after #. And what its tab is called.

import { brief, visible } from "./text.js";

const tab = { page: "", project: "", waiting: 0 };

/** What the address says: the parts of the path, and what was asked for behind a question mark. */
function whereabouts(hash = location.hash) {
    const [path, search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
    return { parts: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(search) };
}

/** An address of this page. */
export function address(parts, query = {}) {
    const wanted = Object.entries(query).filter(([, value]) => value);
    const search = new URLSearchParams(wanted).toString();
    return `#/${parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export function go(parts, query) {
    location.hash = address(parts, query);
}

/** Say where we are without going there: nothing is opened anew. */
export function note(parts, query) {
    history.replaceState(null, "", address(parts, query));
}

/** The same, as a step of its own: "back" leads to where we were. */
export function push(parts, query) {
    if (address(parts, query) !== location.hash) history.pushState(null, "", address(parts, query));
}

/** The title of the tab: how many questions wait, what is shown, and of which project. */
export function nameTab(changes) {
    Object.assign(tab, changes);
    const parts = [tab.page, tab.project, "Forge"].filter(Boolean).map((one) => visible(brief(one, 80)));
    document.title = `${tab.waiting ? `(${tab.waiting}) ` : ""}${parts.join(" · ")}`;
}

/** Open pages as the address says. `pages` maps the first part to what opens it, and tells when it shows what there is. */
export function route(pages, place, opened) {
    let scope = null;
    let shown = null;
    const show = () => {
        const { parts, query } = whereabouts();
        const page = pages[Object.hasOwn(pages, parts[0] ?? "") ? (parts[0] ?? "") : ""];
        scope?.close();
        scope = makeScope();
        place.textContent = "";
        place.setAttribute("aria-busy", "true");
        const mine = scope;
        const opening = page(place, { parts: parts.slice(1), query }, scope);
        Promise.resolve(opening).finally(() => mine.isOpen() && place.removeAttribute("aria-busy"));
        opened(parts, shown !== null);
        shown = parts[0] ?? "";
    };
    addEventListener("hashchange", show);
    show();
}

/** What a page leaves behind is undone when it is left. */
export function makeScope() {
    const leaving = [];
    const controller = new AbortController();
    return {
        signal: controller.signal,
        isOpen: () => !controller.signal.aborted,
        add: (undo) => leaving.push(undo),
        close() {
            controller.abort();
            for (const undo of leaving.splice(0)) undo();
        },
    };
}

function decoded(text) {
    try {
        return decodeURIComponent(text);
    } catch {
        return text;
    }
}
