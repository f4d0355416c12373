// What a question is about: all that would happen, why it asks, and who.

import { h } from "../dom.js";
import { ago, since } from "../format.js";
import { address } from "../router.js";
import { brief } from "../text.js";
import { differenceBox, givenValues } from "./diff.js";
import { codeBlock, copyMenu, forgeCommand, jsonText, linkTo } from "./copy_menu.js";
import { badge } from "./marks.js";
import { textBox } from "./text_view.js";
import { traceList } from "./traces.js";

const MOST_PARTS = 100;

/** `level` is that of its heading, 2 or 3; `form` is what is to be filled in, if anything is. */
export function questionFacts(question, { isInRun, level, form }) {
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
        question.editable || question.form || question.result !== null
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
