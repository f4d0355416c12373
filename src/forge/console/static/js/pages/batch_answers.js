// Answers several open questions at once: each answer is sent and recorded singly.

import { Refusal, part, post } from "../api.js";
import { fill, h, setText } from "../dom.js";
import { count } from "../format.js";
import { button, dialog } from "../parts/controls.js";
import { differenceBox, valuesList } from "../parts/diff.js";
import { badge } from "../parts/marks.js";
import { notify, say } from "../parts/notices.js";
import { redraw } from "../redraw.js";
import { brief, briefArguments } from "../text.js";

/** A call that only needs a yes or a no: nothing is to be filled in, and no new tool is to be judged. */
export const isSelectable = ({ question }) =>
    Boolean(question) && !question.form && !question.personal && question.result === null && !question.question;

/** The questions that are selected, and the bar above the list. `changed()` after each change. */
export function batchBar({ answered, changed }) {
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

function batchDialog(questions, kind, answered) {
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
