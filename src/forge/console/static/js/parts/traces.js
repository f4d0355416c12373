// Where values of a call come from: the result, and the words in it.

import { h } from "../dom.js";

const MOST = 20;

/** `traces` are those of a question, `{ argument, value, kind, origin, quote }`; the value is between « and » in the quote. */
export function traceList(traces) {
    if (!traces?.length) return null;
    return h("ul", { class: "traces" }, traces.slice(0, MOST).map(traceLine));
}

function traceLine({ argument, kind, origin, quote }) {
    return h(
        "li",
        {},
        h("code", {}, argument),
        ` comes from ${kind} text of `,
        h("b", {}, origin),
        kind === "private" ? ", which must not leave" : ", which others may have written",
        quote ? h("blockquote", {}, markedText(quote)) : null,
    );
}

/** The words, with those between the first « and the last » highlighted. */
export function markedText(text) {
    const start = text.indexOf("«");
    const end = text.lastIndexOf("»");
    if (start < 0 || end < start) return [text];
    return [text.slice(0, start), h("mark", {}, text.slice(start + 1, end)), text.slice(end + 1)];
}
