// What the page asks the server, and how its refusals look.

import { parseExactly } from "./exact.js";

export const me = { token: "", agents: [], notes: [], model: null };
const gone = new Set();

/** Something the server refused, in its own three parts. */
export class Refusal extends Error {
    constructor(status, told) {
        const error = told?.error ?? {};
        super(error.what || (status ? `the server answered ${status}` : "the console cannot be reached"));
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
    const wanted = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
    const search = new URLSearchParams(wanted).toString();
    return asked(search ? `${path}?${search}` : path, { signal });
}

export async function post(path, body = {}) {
    const sent = () => ({
        method: "POST",
        headers: { "Content-Type": "application/json", "X-Forge-Token": me.token },
        body: JSON.stringify(body),
    });
    try {
        return await asked(path, sent());
    } catch (error) {
        if (!(error instanceof Refusal) || error.status !== 403 || error.why !== "security_error") throw error;
        const before = me.token;
        await learnMe(); // the server may have started anew since
        if (me.token === before) throw error;
        return asked(path, sent());
    }
}

export const part = encodeURIComponent;

async function asked(path, options) {
    let answer;
    try {
        answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Refusal(0, { error: { what: "the console cannot be reached", next: "Is it still running?" } });
    }
    const told = await answer
        .text()
        .then(parseExactly)
        .catch(() => null);
    if (answer.ok && told !== null) return told;
    const refusal = new Refusal(answer.status, told);
    if (answer.status === 401) for (const listener of gone) listener(refusal);
    throw refusal;
}
