// Something that waits for a yes or a no: all that would happen, why it asks, and the answers there are.

import { Refusal, part, post } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, since } from "../format.js";
import { address } from "../router.js";
import { brief } from "../text.js";
import { argumentsEditor } from "./arguments.js";
import { button } from "./controls.js";
import { differenceBox, givenValues } from "./diff.js";
import { schemaForm } from "./form.js";
import { badge } from "./marks.js";
import { notify, report, say } from "./notices.js";
import { textBox } from "./text_view.js";
import { wantsTable } from "./wants.js";

const LOOK_FIRST = 350; // milliseconds: an answer meant for what stood here before must not reach this one

/** {element, keys, question}; `answered(question)` is called once it is, by whomever. */
export function questionCard(question, { answered = () => {}, isInRun = false, level = "h2" } = {}) {
    const actions = h("div", { class: "actions" });
    const extra = h("div", { class: "extra" });
    const form = question.form ? schemaForm(question.form) : null;
    const element = h(
        "article",
        { class: "question", "aria-label": `${question.tool} asks` },
        facts(question, isInRun, level, form),
        extra,
        actions,
    );
    const card = { element, question, keys: [] };
    let isReady = false;

    const answer = async (kind, more = {}) => {
        if (!isReady) return;
        try {
            const told = await post(`/api/questions/${part(question.id)}/answer`, { kind, ...more });
            over(told.question);
        } catch (error) {
            if (!(error instanceof Refusal) || error.status !== 409 || !error.told.question) throw error;
            over(error.told.question);
            notify(error.message, error.next);
        }
    };
    const over = (now) => {
        card.question = now;
        fill(extra);
        fill(actions, outcome(now));
        say(outcomeWords(now));
        answered(now);
    };
    const yes = () => answer("once", form ? { arguments: form.value() ?? {} } : {});
    const choices = [
        ["y", form ? "Send this" : question.result !== null ? "Let the model see it" : "Allow once", yes, "primary"],
    ];
    if (question.remember) choices.push(["a", "Always", () => answer("always"), ""]);
    choices.push(["n", "No…", () => refuse(extra, answer), "danger"]);
    if (question.editable && question.schema) choices.push(["e", "Edit…", () => edit(question, extra, answer), ""]);

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
    card.over = over;
    return card;
}

function facts(question, isInRun, level, form) {
    const parts = question.parts.filter((one) => one.permission || one.target);
    return [
        h(
            "header",
            {},
            h(level, {}, h("code", {}, question.tool), headline(question)),
            isInRun ? null : whose(question),
        ),
        question.question ? textBox(question.question, { lines: 30, label: "Question" }) : null,
        parts.length && !question.question && question.result === null
            ? h("ul", { class: "parts" }, parts.slice(0, 100).map(partLine))
            : null,
        parts.length > 100 ? h("p", {}, `and ${parts.length - 100} more targets`) : null,
        question.reason ? h("p", { class: "why" }, "Asked because: ", question.reason) : null,
        question.introduction
            ? section(
                  "No person has approved this tool yet. It says of itself",
                  textBox(question.introduction, { lines: 40 }),
              )
            : null,
        question.result !== null
            ? section("The result", textBox(String(question.result), { lines: 60, label: "Result" }))
            : null,
        question.preview
            ? section(
                  question.personal ? "What changed since" : "It would change",
                  differenceBox(question.preview, { lines: 200 }),
              )
            : null,
        form ? section("Your answer", form.element) : null,
        section(
            "With these arguments",
            givenValues(question.arguments, question.schema, {
                lines: question.preview && !question.personal ? 6 : 60,
            }),
        ),
        question.editable || question.form || question.result !== null
            ? null
            : h("p", { class: "quiet" }, "It runs already: its arguments can no longer be changed."),
        question.remember
            ? h(
                  "p",
                  { class: "remember" },
                  h("span", { class: "quiet" }, "Always would remember, for this session and this tool: "),
                  rules(question.remember),
              )
            : null,
        asInTerminal(question.shown),
    ];
}

const section = (title, content) => h("section", {}, h("h3", {}, title), content);
const rules = (text) => text.split("\n").map((line) => h("code", { class: "value" }, line));

function headline(question) {
    if (question.result !== null) return " has run. May the model see this result?";
    if (question.question) return " asks";
    return question.parts.length ? " wants to" : " wants to run";
}

function whose(question) {
    const waits = question.status === "open" ? ["waits ", since(question.asked)] : ["asked ", ago(question.asked)];
    const run = h(
        "a",
        { href: address(["runs", question.root || question.run]) },
        brief(question.prompt || question.run, 90),
    );
    return h(
        "p",
        { class: "quiet" },
        badge(question.agent, "agent"),
        " in ",
        run,
        " · ",
        waits,
        question.origin ? ` · from ${question.origin}` : "",
    );
}

function partLine({ permission, target }) {
    return h(
        "li",
        {},
        badge(permission || "run", `permission ${permission}`),
        textBox(target || "", { lines: 30, label: "Target" }),
    );
}

/** It has everything written out already. */
function asInTerminal(text) {
    const show = () => {
        if (!box.open || box.querySelector("pre")) return;
        const shown = h("pre", { class: "text", tabindex: "0" });
        shown.append(document.createTextNode(text));
        box.append(shown);
    };
    const box = h("details", { ontoggle: show }, h("summary", {}, "As the terminal shows it"));
    return box;
}

export function outcomeWords(question) {
    if (!question.answer) return "It is over without an answer";
    const { kind, by } = question.answer;
    const words = { once: "Allowed once", always: "Allowed always", no: "Refused" }[kind] ?? kind;
    return `${words}${question.answer.arguments ? ", with other arguments" : ""}${by ? ` (by ${by})` : ""}`;
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

function refuse(place, answer) {
    const area = h("textarea", {
        rows: "2",
        "aria-label": "What the agent should know",
        placeholder: "What should it do instead? (optional)",
    });
    const send = button("Refuse", () => answer("no", area.value.trim() ? { feedback: area.value.trim() } : {}), {
        kind: "danger",
    });
    area.addEventListener("keydown", (event) => {
        if (event.key === "Escape") fill(place);
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
                button("Cancel", () => fill(place)),
            ),
        ),
    );
    area.focus();
}

function edit(question, place, answer) {
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
    const run = () => answer("once", { arguments: editor.value() });
    const choices = [
        button("Check again", check),
        button("Run with these", run, { kind: "primary" }),
        button("Cancel", () => fill(place)),
    ];
    fill(
        place,
        h(
            "section",
            { class: "edit" },
            h("h3", {}, "Edit what runs"),
            editor.element,
            found,
            h("div", { class: "actions" }, choices),
        ),
    );
    place.querySelector("input, textarea, select")?.focus();
}
