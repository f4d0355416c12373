// Something that waits for a yes or a no, and the answers there are.

import { part, post, Refusal } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, since } from "../format.js";
import { address } from "../router.js";
import { brief } from "../text.js";
import { argumentsEditor } from "./arguments.js";
import { button } from "./controls.js";
import { codeBlock, copyMenu, forgeCommand, jsonText, linkTo } from "./copy_menu.js";
import { differenceBox, givenValues } from "./diff.js";
import { schemaForm } from "./form.js";
import { badge } from "./marks.js";
import { notify, report, say } from "./notices.js";
import { textBox } from "./text_view.js";
import { traceList } from "./traces.js";
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
    const { effects } = question;
    const allow = effects ? "Apply" : form ? "Send answer" : question.result !== null ? "Show it to the model" : "Allow once";
    const deny = effects ? "Discard" : "Deny";
    const choices = [["y", allow, yes, "primary"]];
    if (question.remember) choices.push(["a", "Always", () => answer("always"), ""]);
    if (effects && effects.files.length > 1)
        choices.push(["s", "Apply some…", () => chooseEffects(effects.files, extra, answer, leave("s")), ""]);
    choices.push(["n", `${deny}…`, () => refuse(extra, answer, leave("n"), deny), "danger"]);
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
    const { paths } = question.answer;
    const once = question.effects ? (paths ? `Applied ${paths.length} of ${question.effects.total}` : "Applied") : "Allowed once";
    const words = { once, always: "Allowed always", no: question.effects ? "Discarded" : "Denied" }[kind] ?? kind;
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

/** Lets a person choose which effects of a trial run are applied. */
function chooseEffects(files, place, answer, leave) {
    const boxes = files.map(({ path }) => h("input", { type: "checkbox", value: path }));
    const chosen = () => boxes.filter((one) => one.checked).map((one) => one.value);
    const send = button("Apply these, discard the rest", () => answer("once", { paths: chosen() }), { kind: "primary" });
    send.disabled = true;
    const list = h(
        "ul",
        { class: "effects" },
        files.map(({ kind, path }, index) => h("li", {}, h("label", {}, boxes[index], badge(kind, `effect ${kind}`), h("code", {}, path)))),
    );
    list.addEventListener("change", () => {
        send.disabled = !chosen().length;
    });
    fill(
        place,
        h(
            "section",
            { class: "edit" },
            h("h3", {}, "Choose the effects to apply"),
            list,
            h("div", { class: "actions" }, send, button("Cancel", leave)),
        ),
    );
    boxes[0].focus();
}

function refuse(place, answer, leave, word = "Deny") {
    const area = h("textarea", {
        rows: "2",
        "aria-label": "Reason for the model",
        placeholder: "Reason for the model (optional)",
    });
    const send = button(word, () => answer("no", area.value.trim() ? { feedback: area.value.trim() } : {}), {
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

// What a question is about: all that would happen, why it asks, and who.

const MOST_PARTS = 100;

/** `level` is that of its heading, 2 or 3; `form` is what is to be filled in, if anything is. */
function questionFacts(question, { isInRun, level, form }) {
    const parts = question.parts.filter((one) => one.permission || one.target);
    const section = (title, content) => h("section", {}, h(`h${level + 1}`, {}, title), content);
    return [
        h(
            "header",
            {},
            h(`h${level}`, {}, h("code", {}, question.tool), headline(question)),
            isInRun ? null : whose(question),
        ),
        question.question ? textBox(question.question, { lines: 30, label: "Question" }) : null,
        parts.length && !question.question && question.result === null
            ? h("ul", { class: "parts" }, parts.slice(0, MOST_PARTS).map(partLine))
            : null,
        parts.length > MOST_PARTS
            ? section(`${parts.length - MOST_PARTS} more targets`, textBox(parts.slice(MOST_PARTS).map(partText).join("\n")))
            : null,
        question.effects ? section(`It ${question.effects.summary}`, effectsList(question.effects)) : null,
        question.reason ? h("p", { class: "why" }, "Reason: ", question.reason) : null,
        question.traces?.length ? section("Where it comes from", traceList(question.traces)) : null,
        question.introduction
            ? section(
                  "This tool is not approved yet. Its description",
                  textBox(question.introduction, { lines: 40 }),
              )
            : null,
        question.result !== null
            ? section("Result", textBox(String(question.result), { lines: 60, label: "Result" }))
            : null,
        question.preview
            ? section(
                  question.personal ? "Changes since it was approved" : "Changes",
                  differenceBox(question.preview, { lines: 200 }),
              )
            : null,
        form ? section("Your answer", form.element) : null,
        section(
            "Arguments",
            givenValues(question.arguments, question.schema, {
                lines: question.preview && !question.personal ? 6 : 60,
            }),
        ),
        question.editable || question.form || question.effects || question.result !== null
            ? null
            : h("p", { class: "quiet" }, "The tool asks for this during its call, so its arguments can no longer be changed."),
        question.remember
            ? h(
                  "div",
                  { class: "remember" },
                  h("span", { class: "quiet" }, "“Always” stores, for this tool in this session: "),
                  rules(question.remember),
              )
            : null,
        asInTerminal(question.shown),
        copyMenu(copiesOf(question)),
    ];
}

const rules = (text) =>
    text.length > 2_000
        ? textBox(text, { lines: 30, label: "Rules" })
        : text.split("\n").map((line) => h("code", { class: "value" }, line));

function headline(question) {
    if (question.result !== null) return " has run. Show this result to the model?";
    if (question.question) return " asks";
    if (question.effects) return " ran as a trial. Nothing is changed yet. Apply its effects?";
    return " asks for approval";
}

function whose(question) {
    const waits = question.status === "open" ? ["waiting for ", since(question.asked)] : ["asked ", ago(question.asked)];
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

/** The effects by name; the difference below shows their contents. */
function effectsList({ files, total }) {
    const shown = files.slice(0, MOST_PARTS);
    return [
        h("ul", { class: "effects" }, shown.map(({ kind, path }) => h("li", {}, badge(kind, `effect ${kind}`), h("code", {}, path)))),
        total > shown.length ? h("p", { class: "quiet" }, `${total - shown.length} more`) : null,
    ];
}

const partText = ({ permission, target }) => `${permission || "run"} ${target || ""}`;

function copiesOf(question) {
    const answer = (word) => () => forgeCommand("runs", "answer", question.run, "--question", question.id, word);
    return [
        ["Link", () => linkTo(address(["approvals", question.id]))],
        ["forge command: approve", answer("--yes")],
        ["forge command: deny", answer("--no")],
        ["JSON", () => jsonText({ id: question.id, run: question.run, tool: question.tool, arguments: question.arguments })],
        ["Markdown", () => `### ${question.tool}\n\n${codeBlock(question.shown)}\n`],
    ];
}

/** It has everything written out already. */
function asInTerminal(text) {
    const show = () => {
        if (!box.open || box.querySelector("pre")) return;
        const shown = h("pre", { class: "text", tabindex: "0" });
        shown.append(document.createTextNode(text));
        box.append(shown);
    };
    const box = h("details", { ontoggle: show }, h("summary", {}, "Plain text, as in the terminal"));
    return box;
}
