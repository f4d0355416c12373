// Something that waits for a yes or a no, and the answers there are.

import { Refusal, part, post } from "../api.js";
import { fill, h } from "../dom.js";
import { ago } from "../format.js";
import { argumentsEditor } from "./arguments.js";
import { button } from "./controls.js";
import { differenceBox } from "./diff.js";
import { schemaForm } from "./form.js";
import { notify, report, say } from "./notices.js";
import { questionFacts } from "./question_facts.js";
import { wantsTable } from "./wants.js";

const LOOK_FIRST = 350; // milliseconds: an answer meant for what stood here before must not reach this one

/**
 * {element, keys, question, isAtWork(), over(question)}; `answered(question)` is called once it is answered from here.
 * `isAtWork()`: somebody is writing a refusal, other arguments or what it asks for.
 */
export function questionCard(question, { answered = () => {}, isInRun = false, level = 2 } = {}) {
    const actions = h("div", { class: "actions" });
    const extra = h("div", { class: "extra" });
    const form = question.form ? schemaForm(question.form) : null;
    const element = h(
        "article",
        { class: "question", "aria-label": `${question.tool} asks`, tabindex: "-1" },
        questionFacts(question, { isInRun, level, form }),
        extra,
        actions,
    );
    const card = { element, question, keys: [] };
    let isReady = false;

    const answer = async (kind, more = {}) => {
        if (!isReady) return;
        try {
            const told = await post(`/api/questions/${part(question.id)}/answer`, { kind, ...more });
            taken(told.question);
            if (told.note) notify("The answer is saved.", told.note);
        } catch (error) {
            if (!(error instanceof Refusal) || error.status !== 409 || !error.told.question) throw error;
            taken(error.told.question);
            notify(error.message, error.next);
        }
    };
    const taken = (now) => {
        card.over(now);
        answered(now);
    };
    card.isAtWork = () => extra.childElementCount > 0 || Boolean(form && form.element.matches(":focus-within"));
    card.over = (now) => {
        const isHere = element.contains(document.activeElement);
        card.question = now;
        card.keys = [];
        fill(extra);
        fill(actions, outcome(now));
        say(outcomeWords(now));
        if (isHere) element.focus({ preventScroll: true });
    };
    const leave = (key) => () => {
        fill(extra);
        actions.children[choices.findIndex(([one]) => one === key)].focus();
    };
    const yes = () => answer("once", form ? { arguments: form.value() ?? {} } : {});
    const choices = [
        ["y", form ? "Send answer" : question.result !== null ? "Show it to the model" : "Allow once", yes, "primary"],
    ];
    if (question.remember) choices.push(["a", "Always", () => answer("always"), ""]);
    choices.push(["n", "Deny…", () => refuse(extra, answer, leave("n")), "danger"]);
    if (question.editable && question.schema)
        choices.push(["e", "Edit…", () => edit(question, extra, answer, leave("e")), ""]);

    if (question.status === "open") {
        const buttons = choices.map(([key, words, work, kind]) => button([words, h("kbd", {}, key)], work, { kind }));
        fill(actions, buttons);
        for (const one of buttons) one.disabled = true;
        setTimeout(() => {
            isReady = true;
            for (const one of buttons) one.disabled = false;
        }, LOOK_FIRST);
        card.keys = choices.map(([key, words], index) => [
            key,
            words.replace("…", "").toLowerCase(),
            () => extra.childElementCount || buttons[index].click(),
        ]);
    } else fill(actions, outcome(question));
    return card;
}

export function outcomeWords(question) {
    if (!question.answer) return "The run ended without an answer";
    const { kind, by } = question.answer;
    const words = { once: "Allowed once", always: "Allowed always", no: "Denied" }[kind] ?? kind;
    return `${words}${question.answer.arguments ? ", with edited arguments" : ""}${by ? ` (by ${by})` : ""}`;
}

function outcome(question) {
    const { answer } = question;
    return h(
        "p",
        { class: `outcome ${answer?.kind ?? ""}` },
        outcomeWords(question),
        answer?.at ? [" · ", ago(answer.at)] : null,
        answer?.feedback ? h("q", {}, answer.feedback) : null,
    );
}

function refuse(place, answer, leave) {
    const area = h("textarea", {
        rows: "2",
        "aria-label": "Reason for the model",
        placeholder: "Reason for the model (optional)",
    });
    const send = button("Deny", () => answer("no", area.value.trim() ? { feedback: area.value.trim() } : {}), {
        kind: "danger",
    });
    area.addEventListener("keydown", (event) => {
        if (event.key === "Escape") leave();
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        send.click();
    });
    fill(
        place,
        h(
            "div",
            { class: "refuse" },
            area,
            h(
                "div",
                { class: "actions" },
                send,
                button("Cancel", leave),
            ),
        ),
    );
    area.focus();
}

function edit(question, place, answer, leave) {
    const editor = argumentsEditor(question.schema, question.arguments);
    const found = h("div", { "aria-live": "polite" });
    const check = async () => {
        try {
            const told = await post(`/api/questions/${part(question.id)}/check`, { arguments: editor.value() });
            fill(
                found,
                told.problems.map((one) => h("p", { class: "bad" }, one)),
                told.decision ? wantsTable(told) : null,
                told.preview ? differenceBox(told.preview) : null,
            );
        } catch (error) {
            report(error);
        }
    };
    editor.element.addEventListener("input", () => fill(found)); // it was said of something else
    const run = () => answer("once", { arguments: editor.value() });
    const choices = [
        button("Check", check),
        button("Run with these arguments", run, { kind: "primary" }),
        button("Cancel", leave),
    ];
    fill(
        place,
        h(
            "section",
            { class: "edit" },
            h("h3", {}, "Edit the arguments"),
            editor.element,
            found,
            h("div", { class: "actions" }, choices),
        ),
    );
    place.querySelector("input, textarea, select")?.focus();
}
