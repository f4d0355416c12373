// The entries of a run: those there are, then those that come; each once, in their order.

import { get } from "./api.js";
import { listen } from "./stream.js";

const PAGE = 5_000;
const PIECES = new Set(["text_delta", "reasoning_delta", "tool_arguments_delta", "tool_output_chunk"]);

/**
 * `base`: the address of the run or session. `isOurs(run)`: whether an entry of that run belongs here. `loaded()` after
 * each page; `arrived(entries)` for what came (`null`: all that is there must be looked at again).
 */
export function runFeed({ base, isOurs, arrived, scope, isLive = true }) {
    const feed = { entries: [], leftOut: 0 };
    const seen = new Set();
    let upto = 0; // what is known of the store: pieces of text up to here came joined
    let waiting = [];
    let isLoading = true;

    function add(found, isPage) {
        const fresh = [];
        let isInOrder = true;
        for (const entry of found) {
            if (seen.has(entry.n) || (!isPage && entry.n <= upto && PIECES.has(entry.event.event))) continue;
            seen.add(entry.n);
            if (fresh.length ? entry.n < fresh.at(-1).n : entry.n < (feed.entries.at(-1)?.n ?? 0)) isInOrder = false;
            fresh.push(entry);
        }
        if (!fresh.length) return;
        for (const entry of fresh) feed.entries.push(entry);
        if (!isInOrder) feed.entries.sort((one, other) => one.n - other.n);
        arrived(isInOrder ? fresh : null);
    }

    function ask(after) {
        const answer = get(`${base}/events`, { after: after || "", limit: PAGE }, scope.signal);
        answer.catch(() => {}); // whoever waits for it is told
        return answer;
    }

    async function load() {
        isLoading = true;
        let coming = feed.asked ?? ask(upto);
        feed.asked = null;
        while (coming && scope.isOpen()) {
            const told = await coming;
            coming = told.next === null || told.next === undefined ? null : ask(told.next); // while this page is looked at
            feed.leftOut = told.left_out ?? 0;
            add(told.events, true);
            upto = Math.max(upto, told.events.at(-1)?.n ?? 0);
        }
        isLoading = false;
        add(waiting.splice(0), false);
    }

    if (isLive) {
        let drawing = 0;
        const flush = () => {
            drawing = 0;
            if (!isLoading) add(waiting.splice(0), false);
        };
        const later = (work) => (document.hidden ? setTimeout(work, 100) : requestAnimationFrame(work));
        scope.add(
            listen("event", (entry) => {
                if (!isOurs(entry.run)) return;
                waiting.push(entry);
                drawing ||= later(flush);
            }),
        );
        scope.add(listen("gap", () => reload().catch(() => {})));
    }

    /** From the beginning: pieces of text that came one by one come joined now. */
    function reload() {
        feed.entries.length = 0;
        seen.clear();
        upto = 0;
        arrived(null);
        return load();
    }

    feed.asked = ask(0); // at once: what else must be known comes meanwhile
    feed.load = load;
    feed.reload = reload;
    return feed;
}
