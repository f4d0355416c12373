// Open questions of all runs.

import { get, part, post, Refusal } from "../api.js";
import { fill, h, setText } from "../dom.js";
import { count, since } from "../format.js";
import { bindKeys, legend } from "../keys.js";
import { soon } from "../pace.js";
import { button, composer, dialog } from "../parts/controls.js";
import { differenceBox, valuesList } from "../parts/diff.js";
import { badge, empty } from "../parts/marks.js";
import { notify, report, say } from "../parts/notices.js";
import { outcomeWords, questionCard } from "../parts/question.js";
import { textBox } from "../parts/text_view.js";
import { redraw } from "../redraw.js";
import { address, note } from "../router.js";
import { listen } from "../stream.js";
import { brief, briefArguments } from "../text.js";

const KEYS = [
    ["j", "next"],
    ["k", "previous"],
    ["x", "select"],
    ["y", "allow once"],
    ["a", "allow always"],
    ["n", "deny"],
    ["e", "edit"],
];

export function openApprovals(place, { parts }, scope) {
    const heading = h("h1", { tabindex: "-1" }, "Approvals");
    const rows = h("ul", { class: "rows", "aria-label": "Open questions" });
    const detail = h("div", { class: "detail" });
    const batch = batchBar({ answered: () => look(), changed: () => show() });
    const split = h("div", { class: "split" }, h("div", { class: "list-side" }, batch.element, rows), detail);
    const keys = legend(KEYS);
    fill(place, h("header", { class: "page-head" }, heading), split, keys);
    let waiting = [];
    let unread = 0; // open questions that are not among them
    let pages = 1; // of questions that are read
    let chosen = parts[0] ?? "";
    let card = null;

    async function look() {
        try {
            await read();
        } catch (error) {
            return report(error);
        }
        if (!waiting.some((one) => one.id === chosen)) await vanished();
        return show();
    }

    /** Reads as many pages as are shown. Their questions come in two lists, each the oldest first. */
    async function read() {
        const found = new Map();
        let after = "";
        let wordsAfter = "";
        for (let page = 0; page < pages; page++) {
            const told = await get("/api/questions", { after, words_after: wordsAfter }, scope.signal);
            for (const row of [...told.questions.map(asRow), ...told.words.map(wordsRow)]) found.set(row.id, row);
            unread = told.total + told.words_total - found.size;
            after = told.questions.at(-1)?.id ?? after;
            wordsAfter = told.words_next || wordsAfter;
            if (unread <= 0) break;
        }
        waiting = [...found.values()].sort((one, other) => one.since - other.since);
    }

    /** What was looked at is answered: by somebody else, if not here. Who was writing sees that first. */
    async function vanished() {
        if (card?.isKept) return;
        if (card && !card.isMine && card.question?.status === "open") {
            const asked = card;
            const now = await get(`/api/questions/${part(card.question.id)}`).catch(() => null);
            if (now && now.status !== "open" && asked === card) {
                notify(`${now.tool}: ${outcomeWords(now)}`);
                if (card.isAtWork()) {
                    card.isKept = true;
                    return card.over(now);
                }
            }
        }
        chosen = waiting[0]?.id ?? "";
    }

    function show() {
        const isHere = detail.contains(document.activeElement);
        split.hidden = !waiting.length && !card?.isKept;
        keys.hidden = !waiting.length;
        place.querySelector(".empty")?.remove();
        if (split.hidden) {
            card = null;
            fill(detail);
            place.append(
                empty(
                    "No open questions.",
                    "When an agent needs your approval or asks a question, it appears here.",
                ),
            );
        }
        batch.update(waiting, chosen);
        redraw(
            rows,
            waiting.map((one) => rowOf(one, one.id === chosen, () => choose(one.id), batch)),
            unread > 0
                ? h("li", { class: "quiet", "data-key": "more" }, `${unread} more. `, button("Show more", showMore))
                : null,
        );
        for (const pick of rows.querySelectorAll("input[data-key=pick]"))
            pick.checked = batch.has(pick.parentElement.dataset.key); // no attribute, so `redraw` does not see it
        const one = waiting.find((other) => other.id === chosen);
        if (one && card?.id !== one.id) {
            card = one.words
                ? wordsCard(one, look)
                : questionCard(one.question, { answered: (now) => answered(one, now) });
            card.id = one.id;
            fill(detail, card.element);
            if (isHere) card.element.focus({ preventScroll: true });
        }
    }

    function answered(one, now) {
        if (card?.id === one.id) card.isMine = true;
        const at = waiting.findIndex((other) => other.id === one.id);
        waiting = waiting.filter((other) => other.id !== one.id);
        chosen = (waiting[at] ?? waiting.at(-1))?.id ?? "";
        notify(`${now.tool}: ${outcomeWords(now)}`);
        if (!waiting.length) heading.focus();
        show();
        say(`${outcomeWords(now)}. ${waiting.length ? `${waiting.length} more open` : "That was the last one."}`);
    }

    function showMore() {
        pages += 1;
        return look();
    }

    function choose(id) {
        chosen = id;
        note(["approvals", id]);
        show();
    }

    function step(by) {
        const at = waiting.findIndex((one) => one.id === chosen);
        const next = waiting[Math.max(0, Math.min(waiting.length - 1, at + by))];
        if (!next) return;
        choose(next.id);
        rows.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
    }

    const press = (key) => () => card?.keys?.find(([one]) => one === key)?.[2]();
    bindKeys(scope, [
        ["j", "next", () => step(1)],
        ["k", "previous", () => step(-1)],
        ["x", "select", () => waiting.find((one) => one.id === chosen && isSelectable(one)) && batch.toggle(chosen)],
        ...KEYS.slice(3).map(([key, words]) => [key, words, press(key)]),
    ]);
    const again = soon(look, 60, scope);
    scope.add(
        listen("changed", ({ what }) => {
            if (what.includes("questions") || what.includes("runs")) again();
        }),
    );
    return look();
}

const asRow = (question) => ({ id: question.id, question, since: question.asked });
const wordsRow = (words) => ({ id: `words ${words.run} ${words.since}`, words, since: words.since });

function rowOf(row, isChosen, choose, batch) {
    const { id, question, words, since: from } = row;
    const about = question ? question.question || question.effects?.summary || question.parts[0]?.target || "" : words.text;
    const line = question
        ? [h("code", {}, question.tool), " ", brief(about, 90)]
        : [badge("question"), " ", brief(about, 90)];
    const { agent, prompt } = question ?? words;
    const pick = isSelectable(row)
        ? h("input", {
              type: "checkbox",
              "data-key": "pick",
              checked: batch.has(id),
              "aria-label": `Select ${question.tool} ${brief(about, 60)}`,
              onchange: ({ target }) => batch.toggle(id, target.checked),
          })
        : null;
    return h(
        "li",
        { "data-key": id, class: "pick-row" },
        pick,
        h(
            "button",
            {
                type: "button",
                class: "row-button",
                "data-key": "choose",
                "aria-current": String(isChosen),
                onclick: choose,
            },
            h("span", { class: "row-main" }, line),
            h("span", { class: "row-more quiet" }, `${agent} · ${brief(prompt, 60)}`, " · ", since(from)),
        ),
    );
}

function wordsCard({ words }, answered) {
    const send = async (text) => {
        await post(`/api/runs/${part(words.run)}/answer`, { text });
        notify("The answer is sent.");
        answered();
    };
    const whose = h(
        "p",
        { class: "quiet" },
        badge(words.agent, "agent"),
        " in ",
        h("a", { href: address(["runs", words.root]) }, brief(words.prompt, 90)),
    );
    const element = h(
        "article",
        { class: "question", tabindex: "-1" },
        h("header", {}, h("h2", {}, "The agent asks a question"), whose),
        textBox(words.text, { lines: 60, label: "Question" }),
        composer({ label: "Your answer", words: "Answer", placeholder: "Your answer", send }),
    );
    return {
        element,
        keys: [
            ["y", "", () => element.querySelector("textarea").focus()],
            ["e", "", () => element.querySelector("textarea").focus()],
        ],
    };
}

// Answers several open questions at once: each answer is sent and recorded singly.

/** A call that only needs a yes or a no: nothing is to be filled in, and no new tool is to be judged. */
export const isSelectable = ({ question }) =>
    Boolean(question) && !question.form && !question.personal && question.result === null && !question.question;

/** The questions that are selected, and the bar above the list. `changed()` after each change. */
function batchBar({ answered, changed }) {
    const selected = new Set();
    const element = h("div", { class: "batch", role: "group", "aria-label": "Answer several at once" });
    let rows = [];

    const questions = () => rows.filter((one) => selected.has(one.id)).map((one) => one.question);
    const toggle = (id, isOn = !selected.has(id)) => {
        if (isOn) selected.add(id);
        else selected.delete(id);
        say(`${selected.size} selected`);
        changed();
    };
    const select = (some) => {
        selected.clear();
        for (const one of some) selected.add(one.id);
        say(`${selected.size} selected`);
        changed();
    };
    const ask = (kind) => batchDialog(questions(), kind, answered);

    function update(all, current) {
        rows = all.filter(isSelectable);
        for (const id of [...selected]) if (!rows.some((one) => one.id === id)) selected.delete(id);
        element.hidden = rows.length < 2;
        if (element.hidden) return redraw(element);
        const chosen = rows.find((one) => one.id === current)?.question;
        const group = (words, key, some) =>
            some.length > 1 && some.length < rows.length
                ? button(`${words} (${some.length})`, () => select(some), { kind: "small", key })
                : null;
        const size = selected.size;
        return redraw(
            element,
            button(`Select all (${rows.length})`, () => select(rows), { kind: "small", key: "all" }),
            chosen
                ? [
                      group(`Select all of ${chosen.tool}`, "tool", rows.filter((one) => one.question.tool === chosen.tool)),
                      group("Select all of this run", "run", rows.filter((one) => one.question.root === chosen.root)),
                  ]
                : null,
            size
                ? [
                      button("Clear selection", () => select([]), { kind: "small", key: "none" }),
                      button(`Approve ${size}…`, () => ask("once"), { kind: "small primary", key: "yes" }),
                      button(`Deny ${size}…`, () => ask("no"), { kind: "small danger", key: "no" }),
                  ]
                : null,
        );
    }

    return { element, update, toggle, has: (id) => selected.has(id) };
}

export function batchDialog(questions, kind, answered) {
    const isYes = kind === "once";
    const calls = count(questions.length, "call");
    const feedback = h("textarea", { rows: "2", placeholder: "Reason for the model (optional)", "aria-label": "Reason for the model" });
    const lines = questions.map((one) => questionLine(one));
    const summary = h("p", { role: "status" });
    const words = isYes ? `Approve ${calls}` : `Deny ${calls}`;
    const send = async () => {
        const more = feedback.value.trim() ? { feedback: feedback.value.trim() } : {};
        const open = lines.filter((one) => !one.isDone);
        for (const [index, line] of open.entries()) {
            setText(summary, `Answering ${index + 1} of ${open.length}…`);
            await answerOne(line, kind, isYes ? {} : more);
        }
        const failed = lines.filter((one) => !one.isDone).length;
        answered();
        if (!failed) {
            close();
            return notify(isYes ? `${calls} approved.` : `${calls} denied.`);
        }
        return setText(summary, `${lines.length - failed} of ${lines.length} are answered. ${count(failed, "answer")} failed; see above.`);
    };
    const close = dialog(
        `${words}?`,
        h(
            "p",
            { class: "quiet" },
            isYes ? "Each call runs once with exactly these arguments." : "None of these calls runs. The model is informed.",
        ),
        h(
            "ol",
            { class: "batch-list" },
            lines.map((one) => one.element),
        ),
        isYes ? null : feedback,
        h("div", { class: "actions" }, button(words, send, { kind: isYes ? "primary" : "danger" }), button("Cancel", () => close())),
        summary,
    );
}

async function answerOne(line, kind, more) {
    try {
        const told = await post(`/api/questions/${part(line.question.id)}/answer`, { kind, ...more });
        line.isDone = true;
        fill(line.outcome, kind === "once" ? "Approved." : "Denied.", told.note ? ` ${told.note}` : "");
    } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        fill(line.outcome, h("span", { class: "bad" }, error.message), ` ${error.next}`);
    }
}

function questionLine(question) {
    const outcome = h("p", { class: "quiet" });
    const targets = question.parts.filter((one) => one.permission || one.target);
    const element = h(
        "li",
        {},
        h("p", {}, h("code", {}, question.tool), " ", h("span", { class: "quiet" }, `${question.agent} · ${brief(question.prompt, 60)}`)),
        targets.length
            ? targets.slice(0, 20).map(({ permission, target }) =>
                  h("p", {}, badge(permission || "run", `permission ${permission}`), " ", h("code", { class: "value" }, target)),
              )
            : h("p", {}, h("code", { class: "value" }, briefArguments(question.arguments, 200))),
        targets.length > 20 ? h("p", { class: "quiet" }, `${targets.length - 20} more targets are listed in its details.`) : null,
        h(
            "details",
            {},
            h("summary", {}, question.preview ? "Changes and arguments" : "Arguments"),
            question.preview ? differenceBox(question.preview) : null,
            valuesList(question.arguments),
        ),
        outcome,
    );
    return { question, element, outcome, isDone: false };
}
