// All tools of the project.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { amount, count } from "../format.js";
import { bindKeys } from "../keys.js";
import { settled } from "../pace.js";
import { copyButton } from "../parts/controls.js";
import { badge, empty, permissionBadges, pinBadge } from "../parts/marks.js";
import { report } from "../parts/notices.js";
import { address, note } from "../router.js";
import { brief } from "../text.js";
import { openTool } from "./tool.js";

export function openTools(place, at, scope) {
    if (at.parts[0]) return openTool(place, at, scope);
    const search = h("input", {
        type: "search",
        placeholder: "Name, description, permission",
        "aria-label": "Search tools",
        value: at.query.get("text") ?? "",
    });
    const sources = h("select", { "aria-label": "Source" });
    const total = h("p", { class: "quiet" });
    const problems = h("div", {});
    const found = h("div", { class: "tool-list" });
    const lacking = h("div", {});
    fill(
        place,
        h("header", { class: "page-head" }, h("h1", { tabindex: "-1" }, "Tools"), total),
        problems,
        h("div", { class: "filters", role: "search" }, search, sources),
        found,
        lacking,
    );
    let tools = [];

    const draw = () => {
        const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
        const shown = tools.filter(
            (tool) =>
                (!sources.value || tool.source === sources.value) && words.every((word) => textOf(tool).includes(word)),
        );
        const groups = Map.groupBy(shown, (tool) => tool.source);
        const of = ([source, some]) =>
            h(
                "section",
                {},
                h(
                    "h2",
                    {},
                    source,
                    h("span", { class: "quiet" }, ` ${count(some.length, "tool")}, ${amount(sum(some))} tokens`),
                ),
                h("ul", { class: "tools" }, some.map(toolRow)),
            );
        fill(found, shown.length ? [...groups].map(of) : empty("No tools match.", "Change the search or the source."));
    };

    const look = () => {
        note(["tools"], { text: search.value, source: sources.value });
        draw();
    };
    search.addEventListener("input", settled(look, 60, scope));
    sources.addEventListener("change", look);
    const step = (by) => {
        const links = [...found.querySelectorAll("a.tool-row")];
        links[Math.max(0, Math.min(links.length - 1, links.indexOf(document.activeElement) + by))]?.focus();
    };
    bindKeys(scope, [
        ["j", "next", () => step(1)],
        ["k", "previous", () => step(-1)],
        ["/", "search", () => search.focus()],
    ]);
    return get("/api/tools", {}, scope.signal)
        .then((told) => {
            tools = told.tools;
            const names = [...new Set(tools.map((tool) => tool.source))];
            fill(
                sources,
                h("option", { value: "" }, "All sources"),
                names.map((name) => h("option", { value: name }, name)),
            );
            fill(
                problems,
                told.problems.map((one) => h("p", { class: "hint-line bad" }, one)),
            );
            fill(
                total,
                costs(tools),
            );
            fill(lacking, unavailable(told.unavailable ?? []));
            sources.value = names.includes(at.query.get("source")) ? at.query.get("source") : "";
            draw();
        })
        .catch(report);
}

const sum = (tools) => tools.reduce((total, tool) => total + tool.tokens, 0);

/** The tokens that the sent definitions cost in each request, and those of the tools that the model must search. */
function costs(tools) {
    const { sent = [], searched = [] } = Object.groupBy(tools, (tool) => (tool.sent ? "sent" : "searched"));
    const first = `${count(tools.length, "tool")}. ${count(sent.length, "definition")} in each request: ${amount(sum(sent))} tokens.`;
    const more = ` ${count(searched.length, "tool")} found by search: ${amount(sum(searched))} tokens.`;
    return searched.length ? first + more : first;
}

const textOf = (tool) =>
    [tool.name, tool.description, tool.category, tool.origin, ...tool.aliases, ...tool.permissions, ...tool.groups]
        .join(" ")
        .toLowerCase();

/** The tools whose extra is not installed, by the command that installs it. */
function unavailable(tools) {
    if (!tools.length) return [];
    const groups = Map.groupBy(tools, (tool) => tool.install);
    return h(
        "section",
        { class: "unavailable" },
        h("h2", {}, "Not installed", h("span", { class: "quiet" }, ` ${count(tools.length, "tool")}`)),
        h("p", { class: "quiet" }, "The model does not see these tools. Install the extra, then restart the console."),
        [...groups].map(([install, some]) => [
            h("p", { class: "install" }, h("code", {}, install), copyButton(install)),
            h(
                "ul",
                { class: "tools" },
                some.map((tool) =>
                    h(
                        "li",
                        { class: "tool-row" },
                        h("code", { class: "tool" }, tool.name),
                        h("span", { class: "row-more quiet" }, brief(tool.description, 300)),
                    ),
                ),
            ),
        ]),
    );
}

function toolRow(tool) {
    return h(
        "li",
        {},
        h(
            "a",
            { class: "tool-row", href: address(["tools", tool.name]) },
            h("code", { class: "tool" }, tool.name),
            h("span", { class: "row-more quiet" }, brief(tool.description, 300)),
            h(
                "span",
                { class: "badges" },
                permissionBadges(tool),
                tool.pin ? pinBadge(tool.pin) : null,
                tool.sent ? null : badge("found by search"),
            ),
            h("span", { class: "quiet tokens", title: "Tokens of the definition" }, amount(tool.tokens)),
        ),
    );
}
