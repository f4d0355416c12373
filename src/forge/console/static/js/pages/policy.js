// Which rules hold, what would happen to a call, and what was refused.

import { Refusal, get, me, part, post } from "../api.js";
import { fill, h } from "../dom.js";
import { ago } from "../format.js";
import { argumentsEditor } from "../parts/arguments.js";
import { soon } from "../pace.js";
import { button, dialog, field } from "../parts/controls.js";
import { differenceBox } from "../parts/diff.js";
import { badge, empty } from "../parts/marks.js";
import { notify, report } from "../parts/notices.js";
import { wantsTable } from "../parts/wants.js";
import { redraw } from "../redraw.js";
import { address } from "../router.js";
import { listen } from "../stream.js";
import { briefArguments } from "../text.js";

const MOST_DENIALS = 200;

export function openPolicy(place, at, scope) {
    const rules = h("div", {});
    const denials = h("div", {});
    let policy = null;
    const adding = button("Add a rule…", () => ruleDialog("", policy));
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
            h("div", {}, h("h2", {}, "Rules in force"), rules),
            h(
                "div",
                {},
                h("h2", {}, "What would happen?"),
                explainer(scope),
                h("h2", {}, "Refused in the last day"),
                denials,
            ),
        ),
    );

    async function look() {
        try {
            policy = await get("/api/policy", {}, scope.signal);
            const told = await get("/api/denials", { since: 86_400 }, scope.signal);
            redraw(rules, rulesView(policy));
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

function rulesView({ layers, defaults, egress, sandbox, can_write: canWrite, why_not: whyNot }) {
    const list = (rows) => h("table", { class: "rules" }, h("tbody", {}, rows));
    const row = (one) =>
        h("tr", {}, h("td", {}, ruleText(one.text)), h("td", { class: "quiet" }, one.where ?? one.why));
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
            "A layer can only narrow what the one above it allows; in a layer the last rule that fits counts.",
        ),
        layers.map((layer) =>
            h(
                "section",
                { class: "layer" },
                h("h3", {}, `Layer: ${layer.name}`, h("span", { class: "quiet" }, ` ${layer.where}`)),
                layer.rules.length ? list(layer.rules.map(row)) : h("p", { class: "quiet" }, "No rules."),
            ),
        ),
        h("section", { class: "layer" }, h("h3", {}, "Where no rule fits"), list(defaults.map(row))),
        h(
            "section",
            { class: "layer" },
            h("h3", {}, "Network", h("span", { class: "quiet" }, ` ${egress.where}`)),
            h("p", {}, badge(egress.mode)),
            names("Allowed", egress.domains),
            names("Private, allowed", egress.private),
        ),
        h(
            "section",
            { class: "layer" },
            h("h3", {}, "Sandbox", h("span", { class: "quiet" }, ` ${sandbox.where}`)),
            h("p", {}, badge(sandbox.tier || "none", sandbox.tier ? "" : "bad"), ` wanted: ${sandbox.wanted}`),
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

function explainer(scope) {
    const names = h("input", {
        type: "text",
        list: "tool-names",
        class: "code",
        placeholder: "bash",
        autocomplete: "off",
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
            editor = argumentsEditor(tool.parameters, {});
            editor.element.addEventListener("input", () => fill(found)); // it was said of something else
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
        fill(
            found,
            told.problems.map((one) => h("p", { class: "bad" }, one)),
            told.decision ? wantsTable(told) : null,
        );
    };
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
    if (!denials.length) return empty("Nothing was refused.");
    const by = { rule: "by a rule", person: "by a person", guard: "by a guard" };
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
                denial.run ? h("a", { href: address(["runs", denial.run]) }, "run") : null,
                " ",
                denial.suggestion && policy.can_write
                    ? button("Allow just this…", () => ruleDialog(denial.suggestion, policy), { kind: "small" })
                    : null,
            ),
        );
    return h(
        "div",
        {},
        unreadable ? h("p", { class: "quiet" }, `${unreadable} lines of the log cannot be read.`) : null,
        h("ul", { class: "denials" }, denials.slice(0, MOST_DENIALS).map(one)),
        denials.length > MOST_DENIALS ? h("p", { class: "quiet" }, `and ${denials.length - MOST_DENIALS} more`) : null,
    );
}

/** A rule, what it would change in the file, and only then the writing of it. */
function ruleDialog(rule, policy) {
    if (!policy?.can_write) return notify("Rules cannot be added here.", policy?.why_not);
    const input = h("input", { type: "text", class: "code", value: rule, placeholder: "allow execute git fetch *" });
    input.spellcheck = false;
    const shown = h("div", { "aria-live": "polite" });
    const preview = async () => {
        const told = await post("/api/policy/rule", { rule: input.value.trim(), write: false });
        const write = async () => {
            await post("/api/policy/rule", { rule: told.rule, write: true, was: told.was });
            close();
            notify("The rule is written.", told.note || told.file);
        };
        fill(
            shown,
            h("p", { class: "quiet" }, told.file),
            differenceBox(told.diff),
            told.note ? h("p", { class: "hint-line" }, told.note) : null,
            h("div", { class: "actions" }, button("Write it", write, { kind: "primary" })),
        );
    };
    input.addEventListener("input", () => fill(shown));
    const close = dialog(
        "A rule for this project",
        field("Rule", input, "allow, ask or deny; a permission; what it is about"),
        h("div", { class: "actions" }, button("Show the change", preview)),
        shown,
    );
    if (rule) preview().catch(report);
    return null;
}
