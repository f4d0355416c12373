// What a question is about: all that would happen, why it asks, and who.

import { h } from "../dom.js";
import { ago, since } from "../format.js";
import { address } from "../router.js";
import { brief } from "../text.js";
import { differenceBox, givenValues } from "./diff.js";
import { badge } from "./marks.js";
import { textBox } from "./text_view.js";

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
            ? section(`and ${parts.length - MOST_PARTS} more`, textBox(parts.slice(MOST_PARTS).map(partText).join("\n")))
            : null,
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
                  "div",
                  { class: "remember" },
                  h("span", { class: "quiet" }, "Always would remember, for this session and this tool: "),
                  rules(question.remember),
              )
            : null,
        asInTerminal(question.shown),
    ];
}

const rules = (text) =>
    text.length > 2_000
        ? textBox(text, { lines: 30, label: "Rules" })
        : text.split("\n").map((line) => h("code", { class: "value" }, line));

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

const partText = ({ permission, target }) => `${permission || "run"} ${target || ""}`;

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
