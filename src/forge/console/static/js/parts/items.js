// What happened in a run, one thing after another.

import { fill, h } from "../dom.js";
import { amount, cost, count, timeOfDay } from "../format.js";
import { redraw } from "../redraw.js";
import { callCard } from "./call_card.js";
import { chunkedList } from "./chunks.js";
import { jsonBox } from "./diff.js";
import { markdown } from "./markdown.js";
import { textBox, textView } from "./text_view.js";

const LONGEST_PROSE = 20_000;
const REASONS = {
    answer: "finished",
    max_turns: "stopped at the turn limit",
    cancelled: "stopped",
    error: "failed",
};

/** {element, update(), clear(), show(item)} of one run or sub-agent. */
export function itemList(branch, source) {
    let shown = 0;
    const list = chunkedList({ build: (item) => itemView(item, source), estimate: 38, name: "items" });
    return {
        element: list.element,
        show: list.show,
        clear: list.clear,
        /** Append what is new, and see to what changed. */
        update() {
            if (branch.items.length > shown) list.append(branch.items.slice(shown));
            shown = branch.items.length;
        },
    };
}

function itemView(item, source) {
    if (item.kind === "call") return callCard(item, source);
    if (item.kind === "text") return textItem(item);
    if (item.kind === "prompt")
        return {
            element: h(
                "div",
                { class: "said person" },
                h("span", { class: "who" }, "Prompt"),
                textBox(item.text, { lines: 30, isOutput: true, label: "Prompt" }),
            ),
        };
    if (item.kind === "reasoning") return foldedItem(item, () => "Reasoning");
    if (item.kind === "draft")
        return foldedItem(item, () => `Writing ${item.name} · ${amount(item.text.length)} characters`, unescaped);
    if (item.kind === "retry") return { element: retryLine(item) };
    if (item.kind === "shortened") return { element: shortenedLine(item) };
    if (item.kind === "mark") return { element: markLine(item) };
    if (item.kind === "end") return { element: endLine(item) };
    const { event, ts, seq, session, agent, ...rest } = item.event;
    return { element: h("details", { class: "other" }, h("summary", {}, event), jsonBox(rest)) };
}

function textItem(item) {
    const place = h("div", { class: "prose" });
    const after = h("div", {});
    let size = -1;
    let rest = null;
    const update = () => {
        if (item.text.length === size) return;
        size = item.text.length;
        if (rest) return rest.update(item.text.slice(rest.from));
        const end = endOfProse(item.text);
        redraw(place, markdown(item.text.slice(0, end)));
        if (end === size) return;
        const options = { isOutput: true, lines: 200, fromEnd: !item.isClosed, label: "Rest of a long text" };
        rest = textView(item.text.slice(end), options);
        rest.from = end;
        fill(after, rest.element);
    };
    update();
    return { element: h("div", { class: "said agent" }, place, after), update };
}

/** A text that is still being written and is not the answer; a draft disappears when its call begins. */
function foldedItem(item, title, show = null) {
    const summary = h("summary", {});
    const view = textView("", { isOutput: true, lines: 12, fromEnd: true, label: item.name ?? "Reasoning" });
    const element = h("details", { class: "other", open: show !== null }, summary, view.element);
    const update = () => {
        element.hidden = !item.text;
        fill(summary, title());
        view.update(show ? show(item.text) : item.text);
    };
    update();
    return { element, update };
}

/** Arguments are JSON: its escapes stand for the characters of a file. */
const unescaped = (text) => text.replaceAll("\\n", "\n").replaceAll('\\"', '"').replaceAll("\\t", "    ");

function retryLine(item) {
    const when = item.seconds ? ` in ${item.seconds.toFixed(1)} s` : "";
    const reason = textBox(String(item.reason), { lines: 5, label: "Reason" });
    return h("div", { class: "end" }, `Trying again${when} · ${timeOfDay(item.at)}`, reason);
}

function shortenedLine(item) {
    const parts = [
        item.outputs && count(item.outputs, "old output"),
        item.repeats && count(item.repeats, "repeated result"),
        item.summaries && "older messages, which are a summary now",
        item.tokens && `about ${count(item.tokens, "token")}`,
    ];
    const words = parts.filter(Boolean).join(", ");
    return h("div", { class: "end" }, `Not sent again: ${words} · ${timeOfDay(item.at)}`);
}

/** What is longer goes on in a box, which does not grow for ever and pushes nothing away. */
function endOfProse(text) {
    if (text.length <= LONGEST_PROSE) return text.length;
    const line = text.lastIndexOf("\n", LONGEST_PROSE);
    return line > LONGEST_PROSE / 2 ? line + 1 : LONGEST_PROSE;
}

function markLine(item) {
    const words = item.verdict ? `Marked as ${item.verdict}` : "The mark was withdrawn";
    const note = item.text ? textBox(item.text, { lines: 5, label: "Note" }) : null;
    return h("div", { class: "end" }, `${words}${item.by ? ` by ${item.by}` : ""} · ${timeOfDay(item.at)}`, note);
}

function endLine(item) {
    const cached = item.usage?.cached ? ` (${amount(item.usage.cached)} cached)` : "";
    const tokens = item.usage ? `${amount(item.usage.input)} tokens in${cached}, ${amount(item.usage.output)} out` : "";
    const words = [
        REASONS[item.reason] ?? item.reason,
        count(item.turns ?? 0, "turn"),
        count(item.calls ?? 0, "call"),
        tokens,
        cost(item.cost),
        timeOfDay(item.at),
    ];
    return h(
        "div",
        {},
        item.text ? textItem({ text: item.text, isClosed: true }).element : null,
        h(
            "div",
            { class: `end ${item.error ? "bad" : ""}` },
            words.filter(Boolean).join(" · "),
            item.error ? textBox(String(item.error), { lines: 10, label: "Error" }) : null,
        ),
    );
}
