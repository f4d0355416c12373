// What happens, as it happens. One tab of a browser holds the stream and tells the others, for a browser opens only
// six connections to one server; when that tab goes, another takes over where it was.

import { learnMe, linked } from "./api.js";
import { parseExactly } from "./exact.js";

const LONGEST_PAUSE = 5_000;
const listeners = { event: new Set(), changed: new Set(), gap: new Set(), state: new Set() };
const channel = "BroadcastChannel" in window ? new BroadcastChannel("forge-console") : null;

export const stream = { last: null, isConnected: true, isHolder: false };

/** Be told of `event` (an entry), `changed`, `gap` and `state` (whether there is a connection). Gives how to stop. */
export function listen(kind, listener) {
    listeners[kind].add(listener);
    return () => listeners[kind].delete(listener);
}

/** Begin after that number. */
export function openStream(after) {
    stream.last = after;
    if (channel) channel.onmessage = ({ data }) => tell(data.kind, data.text);
    if (!navigator.locks || !channel) return hold();
    return navigator.locks.request("forge-console-stream", () => {
        hold();
        return new Promise(() => {}); // until this tab is closed
    });
}

function hold() {
    stream.isHolder = true;
    let pause = 250;
    const connect = () => {
        const source = new EventSource(linked("/api/stream", { after: stream.last }));
        for (const kind of ["event", "changed", "gap"]) {
            source.addEventListener(kind, ({ data }) => spread(kind, data));
        }
        source.onopen = () => {
            pause = 250;
            spread("state", "true");
        };
        source.onerror = () => {
            source.close(); // a browser gives up by itself when the server answers with an error
            spread("state", "false");
            setTimeout(() => learnMe().catch(() => null).then(connect), pause); // its key may be another by now
            pause = Math.min(pause * 2, LONGEST_PAUSE);
        };
    };
    connect();
}

function spread(kind, text) {
    channel?.postMessage({ kind, text });
    tell(kind, text);
}

function tell(kind, text) {
    const told = parseExactly(text);
    if (kind === "event") stream.last = Math.max(stream.last ?? 0, told.n);
    if (kind === "gap") stream.last = Math.max(stream.last ?? 0, told.now);
    if (kind === "state") stream.isConnected = told;
    for (const listener of [...listeners[kind]]) listener(told);
}
