// Adds a rule to the project's file: what it changes is shown first, and a rule that loosens is confirmed.

import { post } from "../api.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { changeDialog } from "../parts/change_dialog.js";
import { field } from "../parts/controls.js";
import { differenceBox } from "../parts/diff.js";
import { decision } from "../parts/marks.js";
import { notify } from "../parts/notices.js";
import { briefArguments } from "../text.js";

const DECISIONS = [
    ["allow", "allow: run without asking"],
    ["ask", "ask: ask a person first"],
    ["deny", "deny: refuse"],
];
const ABOUT = [
    ["read", "reading files"],
    ["write", "writing files"],
    ["execute", "running programs"],
    ["network", "network requests"],
    ["tool:", "one tool, by its name"],
];

export function ruleDialog(rule, policy) {
    if (!policy?.can_write) return notify("Rules cannot be added here.", policy?.why_not);
    const line = h("input", { type: "text", class: "code", value: rule, placeholder: "allow execute git fetch *" });
    line.spellcheck = false;
    const builder = rule ? null : ruleBuilder(line);
    return changeDialog("Add a rule", {
        words: "Add rule",
        fields: [
            builder,
            field("Rule", line, "A decision, a permission or tool:NAME, and a target. The last rule that matches decides."),
        ],
        isComplete: () => Boolean(line.value.trim()),
        preview: () => post("/api/policy/rule", { rule: line.value.trim(), write: false }),
        show: showRule,
        confirm: (told) =>
            told.loosens
                ? {
                      yes: "Yes, loosen the policy",
                      content: [
                          h("p", {}, "This rule allows more than before: ", h("code", {}, told.rule)),
                          h("p", {}, "It applies at once, to every further call of this project."),
                      ],
                  }
                : null,
        make: async (told) => {
            const wanted = { rule: told.rule, write: true, was: told.was, confirm: told.loosens };
            await post("/api/policy/rule", wanted);
            notify("The rule is added.", told.note || told.file);
        },
    });
}

/** Three choices that write the line. */
function ruleBuilder(line) {
    const choice = (values) =>
        h(
            "select",
            {},
            values.map(([value, words]) => h("option", { value }, words)),
        );
    const says = choice(DECISIONS);
    says.value = "ask";
    const about = choice(ABOUT);
    about.value = "execute";
    const target = h("input", { type: "text", class: "code", autocomplete: "off", autofocus: true, placeholder: "git push *" });
    target.spellcheck = false;
    const write = () => {
        const what = about.value === "tool:" ? `tool:${target.value.trim()}` : `${about.value} ${target.value.trim()}`;
        line.value = target.value.trim() || about.value !== "tool:" ? `${says.value} ${what}`.trim() : "";
    };
    for (const one of [says, about, target]) one.addEventListener("input", write);
    return h(
        "div",
        { class: "fields" },
        field("Decision", says),
        field("Permission or tool", about),
        field("Target", target, "A path, a command or a host; * matches any text. Empty: everything."),
    );
}

function showRule({ file, diff, note, loosens, changes, tried }) {
    return [
        h(
            "p",
            { class: "hint-line" },
            loosens ? "This rule loosens the policy: it allows more than before." : "This rule does not allow more than before.",
        ),
        changesTable(changes, tried),
        h("p", { class: "quiet" }, file),
        differenceBox(diff),
        note ? h("p", { class: "hint-line" }, note) : null,
    ];
}

function changesTable(changes, tried) {
    if (!tried) return null;
    if (!changes.length)
        return h("p", { class: "quiet" }, `No decision changes for the latest ${count(tried, "different call")}.`);
    const row = (one) =>
        h(
            "tr",
            {},
            h("td", {}, h("code", {}, one.tool), " ", h("code", { class: "value" }, briefArguments(one.arguments, 90))),
            h("td", {}, decision(one.before)),
            h("td", {}, decision(one.after)),
        );
    return h(
        "table",
        {},
        h("caption", { class: "quiet" }, `Of the latest ${count(tried, "different call")}, these are decided differently:`),
        h(
            "thead",
            {},
            h(
                "tr",
                {},
                ["Call", "Now", "With the rule"].map((name) => h("th", { scope: "col" }, name)),
            ),
        ),
        h("tbody", {}, changes.map(row)),
    );
}
