// What the page asks the server, and how its refusals look.

import { parseExactly } from "./exact.js";

export const me = { key: "", agents: [], notes: [], model: null };
const gone = new Set();

/** Something the server refused, in its own three parts. */
export class Refusal extends Error {
    constructor(status, told) {
        const error = told?.error ?? {};
        super(error.what || (status ? `the server answered ${status}` : "the console does not respond"));
        this.status = status;
        this.next = error.next ?? "";
        this.why = error.why ?? "";
        this.told = told ?? {};
    }
}

/** Be told when the server no longer knows this browser. */
export function onExpired(listener) {
    gone.add(listener);
}

export async function learnMe() {
    Object.assign(me, await get("/api/me"));
    return me;
}

export function get(path, query = {}, signal = undefined) {
    return asked(searching(path, query), { signal });
}

export function post(path, body = {}) {
    const headers = { "Content-Type": "application/json" };
    return asked(path, { method: "POST", headers, body: JSON.stringify(body) });
}

/** The address of what a browser asks for by itself, without our header: a download, a picture, the stream. */
export function linked(path, query = {}) {
    return searching(path, { ...query, key: me.key });
}

function searching(path, query) {
    const wanted = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
    const search = new URLSearchParams(wanted).toString();
    return search ? `${path}?${search}` : path;
}

export const part = encodeURIComponent;

async function asked(path, options) {
    const mine = token();
    let answer;
    try {
        const headers = { ...options.headers, "X-Forge-Token": mine };
        answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options, headers });
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Refusal(0, { error: { what: "the console does not respond", next: "Check that forge console is still running." } });
    }
    const told = await answer
        .text()
        .then(parseExactly)
        .catch(() => null);
    if (answer.ok && told !== null) return told;
    const refusal = new Refusal(answer.status, told);
    const isUnknown = answer.status === 403 && refusal.why === "security_error";
    if (isUnknown && token() !== mine) return asked(path, options); // another tab has just been let in anew
    if (isUnknown || answer.status === 401) for (const listener of gone) listener(refusal);
    throw refusal;
}

// The token that this browser was given by its link, kept where only pages of this port can read it: a browser shows
// the cookie to every server of this machine.

const KEPT = "forge-token";
let here = ""; // where nothing can be kept, it counts until the page is left

/** From the address, where the link led (`#/enter/TOKEN`, `#/enter/TOKEN/runs/ID`): it is taken out of it at once. */
export function takeToken() {
    const found = /^#\/enter\/([0-9a-f]{64})(\/.*)?$/.exec(location.hash);
    if (!found) return;
    here = found[1];
    try {
        localStorage.setItem(KEPT, here);
    } catch {
        // it may not keep anything
    }
    history.replaceState(null, "", `#${found[2] ?? "/"}`);
}

/** Another tab may have been opened with a newer link. */
function token() {
    try {
        return localStorage.getItem(KEPT) ?? here;
    } catch {
        return here;
    }
}
