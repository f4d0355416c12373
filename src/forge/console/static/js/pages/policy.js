// The rules in force, a preview of the decision about a call, and refused calls.

import { get, me, part, post, Refusal } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, count } from "../format.js";
import { soon } from "../pace.js";
import { argumentsEditor } from "../parts/arguments.js";
import { changeDialog } from "../parts/change_dialog.js";
import { button, field } from "../parts/controls.js";
import { copyMenu, forgeCommand, jsonText, linkTo } from "../parts/copy_menu.js";
import { differenceBox } from "../parts/diff.js";
import { badge, decision, empty } from "../parts/marks.js";
import { notify, report } from "../parts/notices.js";
import { wantsTable } from "../parts/wants.js";
import { redraw } from "../redraw.js";
import { address, note } from "../router.js";
import { listen } from "../stream.js";
import { briefArguments } from "../text.js";

const MOST_DENIALS = 200;
const EGRESS = { open: "all hosts", allowlist: "allowed hosts only", "deny-all": "no hosts" };

export function openPolicy(place, { query }, scope) {
    const rules = h("div", {});
    const denials = h("div", {});
    const chosen = query.get("rule") ?? "";
    let policy = null;
    let isFirst = true;
    const adding = button("Add a rule…", async () => ruleDialog("", policy ?? (await get("/api/policy"))));
    fill(
        place,
        h(
            "header",
            { class: "page-head" },
            h("h1", { tabindex: "-1" }, "Policy"),
            h("div", { class: "actions" }, adding),
        ),
        h(
            "div",
            { class: "split even" },
            h("div", {}, h("h2", {}, "Effective rules"), rules),
            h(
                "div",
                {},
                h("h2", {}, "Explain a call"),
                explainer(scope, query),
                h("h2", {}, "Denied calls, last 24 hours"),
                denials,
            ),
        ),
    );

    async function look() {
        try {
            policy = await get("/api/policy", {}, scope.signal);
            const told = await get("/api/denials", { since: 86_400 }, scope.signal);
            redraw(rules, rulesView(policy, chosen));
            if (isFirst && chosen) rules.querySelector("tr[aria-current]")?.scrollIntoView({ block: "center" });
            isFirst = false;
            redraw(denials, denialsView(told, policy));
        } catch (error) {
            report(error);
        }
    }

    const again = soon(look, 600, scope);
    // what runs may be refused something
    scope.add(listen("changed", ({ what }) => (what.includes("policy") || what.includes("runs")) && again()));
    return look();
}

function rulesView({ layers, defaults, egress, sandbox, can_write: canWrite, why_not: whyNot }, chosen) {
    const list = (rows) => h("table", { class: "rules" }, h("tbody", {}, rows));
    const row = (one) =>
        h(
            "tr",
            { "aria-current": one.text === chosen ? "true" : null },
            h("td", {}, h("a", { class: "rule-link", href: address(["policy"], { rule: one.text }) }, ruleText(one.text))),
            h("td", { class: "quiet" }, one.where ?? one.why),
        );
    const names = (title, some) =>
        some.length
            ? h(
                  "p",
                  {},
                  h("span", { class: "quiet" }, `${title}: `),
                  some.map((one) => [h("code", { class: "value" }, one), " "]),
              )
            : null;
    return [
        h(
            "p",
            { class: "quiet" },
            "The strictest layer comes first. In a layer, the last matching rule decides. ",
            "A later layer cannot undo a deny.",
        ),
        layers.map((layer) =>
            h(
                "section",
                { class: "layer" },
                h("h3", {}, `Layer: ${layer.name}`, h("span", { class: "quiet" }, layer.where ? ` (${layer.where})` : "")),
                layer.rules.length ? list(layer.rules.map(row)) : h("p", { class: "quiet" }, "This layer has no rules."),
            ),
        ),
        h("section", { class: "layer" }, h("h3", {}, "Defaults"), list(defaults.map(row))),
        h(
            "section",
            { class: "layer" },
            h("h3", {}, "Network", h("span", { class: "quiet" }, ` (${egress.where})`)),
            h("p", {}, badge(EGRESS[egress.mode] ?? egress.mode)),
            names("Allowed hosts", egress.domains),
            names("Allowed private addresses", egress.private),
        ),
        h(
            "section",
            { class: "layer" },
            h("h3", {}, "Sandbox", h("span", { class: "quiet" }, ` (${sandbox.where})`)),
            h("p", {}, badge(sandbox.tier || "none", sandbox.tier ? "" : "bad"), ` configured: ${sandbox.wanted}`),
            h(
                "ul",
                { class: "quiet" },
                sandbox.notes.map((one) => h("li", {}, one)),
            ),
        ),
        canWrite ? null : h("p", { class: "hint-line" }, `Rules cannot be added here: ${whyNot}`),
    ];
}

function ruleText(text) {
    const [, says, rest] = text.match(/^(allow|ask|deny)\b([\s\S]*)$/) ?? [null, "", text];
    return h("code", { class: "rule" }, says ? h("span", { class: `badge decision ${says}` }, says) : null, rest);
}

function explainer(scope, query) {
    const names = h("input", {
        type: "text",
        list: "tool-names",
        class: "code",
        placeholder: "bash",
        autocomplete: "off",
        value: query.get("tool") ?? "",
    });
    const options = h("datalist", { id: "tool-names" });
    const agents = h(
        "select",
        {},
        (me.agents ?? []).map((name) => h("option", { value: name }, name)),
    );
    const place = h("div", {});
    const found = h("div", { "aria-live": "polite" });
    let editor = null;
    let start = readArguments(query);
    get("/api/tools", {}, scope.signal)
        .then(({ tools }) =>
            fill(
                options,
                tools.map((tool) => h("option", { value: tool.name })),
            ),
        )
        .catch(() => {});
    const choose = async () => {
        const name = names.value.trim();
        fill(found);
        editor = null;
        if (!name) return fill(place);
        try {
            const tool = await get(`/api/tools/${part(name)}`, {}, scope.signal);
            editor = argumentsEditor(tool.parameters, start);
            start = {};
            editor.element.addEventListener("input", () => fill(found)); // the explanation is of other arguments
            return fill(place, editor.element);
        } catch (error) {
            return fill(
                place,
                error instanceof Refusal ? h("p", { class: "quiet" }, `${error.message}. ${error.next}`) : null,
            );
        }
    };
    names.addEventListener("change", choose);
    const explain = async () => {
        if (!editor) await choose();
        if (!editor) return;
        const told = await post("/api/policy/explain", {
            tool: names.value.trim(),
            arguments: editor.value(),
            agent: agents.value,
        });
        const tool = names.value.trim();
        const given = editor.value();
        note(["policy"], { tool, arguments: JSON.stringify(given) });
        const choices = [
            ["Link", () => linkTo(address(["policy"], { tool, arguments: JSON.stringify(given) }))],
            ["forge command", () => forgeCommand("policy", "explain", tool, JSON.stringify(given))],
            ["JSON", () => jsonText(told)],
        ];
        fill(
            found,
            told.problems.map((one) => h("p", { class: "bad" }, one)),
            told.decision ? wantsTable(told) : null,
            copyMenu(choices),
        );
    };
    if (names.value) choose().then(explain).catch(report);
    return h(
        "div",
        { class: "panel-box" },
        h(
            "div",
            { class: "fields" },
            field("Tool", names),
            options,
            me.agents?.length > 1 ? field("Agent", agents) : null,
        ),
        place,
        h("div", { class: "actions" }, button("Explain", explain, { kind: "primary" })),
        found,
    );
}

function denialsView({ denials, unreadable }, policy) {
    if (!denials.length) return empty("No call was denied.");
    const by = { rule: "denied by a rule", person: "denied by a person", guard: "denied by a safety check" };
    const one = (denial) =>
        h(
            "li",
            { class: "denial", "data-key": `${denial.at} ${denial.call} ${denial.session}` },
            h(
                "p",
                {},
                h("code", { class: "tool" }, denial.tool),
                " ",
                h("code", { class: "value" }, briefArguments(denial.arguments, 120)),
                " ",
                badge(by[denial.by] ?? denial.by),
            ),
            h("p", { class: "quiet" }, denial.reason.slice(0, 400)),
            h(
                "p",
                { class: "quiet" },
                denial.agent,
                " · ",
                ago(denial.at),
                " ",
                denial.run ? h("a", { href: address(["runs", denial.run], { step: denial.call }) }, "Show in the run") : null,
                " ",
                denial.suggestion && policy.can_write
                    ? button("Allow exactly this…", () => ruleDialog(denial.suggestion, policy), { kind: "small" })
                    : null,
                " ",
                copyMenu([
                    [
                        "forge command",
                        () => forgeCommand("policy", "explain", denial.tool, JSON.stringify(denial.arguments)),
                    ],
                    ["Suggested rule", denial.suggestion],
                    ["JSON", () => jsonText(denial)],
                ].filter(([, text]) => text)),
            ),
        );
    return h(
        "div",
        {},
        unreadable ? h("p", { class: "quiet" }, `${unreadable} lines of the event log could not be read.`) : null,
        h("ul", { class: "denials" }, denials.slice(0, MOST_DENIALS).map(one)),
        denials.length > MOST_DENIALS ? h("p", { class: "quiet" }, `${denials.length - MOST_DENIALS} more are not listed.`) : null,
    );
}

function readArguments(query) {
    try {
        return JSON.parse(query.get("arguments") || "{}");
    } catch {
        return {};
    }
}

// Adds a rule to the project's file: what it changes is shown first, and a rule that loosens is confirmed.

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

function ruleDialog(rule, policy) {
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
