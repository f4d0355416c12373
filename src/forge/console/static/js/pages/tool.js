// One tool: what it is, and a form to call it through the same gate as an agent's calls.

import { get, part, post } from "../api.js";
import { fill, h } from "../dom.js";
import { Fold } from "../fold.js";
import { amount, moment } from "../format.js";
import { argumentsEditor } from "../parts/arguments.js";
import { settled, soon } from "../pace.js";
import { button, copyButton, tabs } from "../parts/controls.js";
import { callMarkdown, copyMenu, jsonText, linkTo } from "../parts/copy_menu.js";
import { differenceBox, jsonBox } from "../parts/diff.js";
import { itemList } from "../parts/items.js";
import { badge, permissionBadges, pinBadge, runState } from "../parts/marks.js";
import { report, showMissing } from "../parts/notices.js";
import { textBox } from "../parts/text_view.js";
import { wantsTable } from "../parts/wants.js";
import { redraw } from "../redraw.js";
import { address, makeScope, note } from "../router.js";
import { runFeed } from "../run_feed.js";
import { listen } from "../stream.js";

const MOST_CALLS = 10; // shown at once; all of them are under Runs
const LONGEST_LINK = 1_500; // characters of arguments in the address

export function openTool(place, { parts, query }, scope) {
    const base = `/api/tools/${part(parts[0])}`;
    return get(base, {}, scope.signal)
        .then((tool) => scope.isOpen() && show(place, tool, base, query, scope))
        .catch((error) => showMissing(place, "Tool", error, scope));
}

function show(place, tool, base, query, scope) {
    const editor = argumentsEditor(tool.parameters, given(query) ?? {});
    const foreseen = h("div", { "aria-live": "polite" });
    const results = h("div", { class: "results" });
    const views = [];
    scope.add(() => views.forEach((view) => view.close()));
    const check = async () => {
        const told = await post(`${base}/check`, { arguments: editor.value() });
        fill(
            foreseen,
            told.problems.map((one) => h("p", { class: "bad" }, one)),
            told.decision ? wantsTable(told) : null,
        );
    };
    const call = async () => {
        const { run } = await post(`${base}/call`, { arguments: editor.value() });
        fill(foreseen);
        const view = callView(run);
        views.unshift(view);
        results.prepend(view.element);
        for (const old of views.splice(MOST_CALLS)) old.close();
    };
    const example = () => {
        editor.set(tool.example ?? {});
        showCommand();
    };
    const buttons = [
        button("Call", call, { kind: "primary" }),
        button("Check", check, { title: "See what the policy decides, without calling the tool" }),
        tool.example && Object.keys(tool.example).length ? button("Fill in an example", example) : null,
    ];
    const copies = () => post(`${base}/copy`, { arguments: editor.value() });
    const command = h(
        "div",
        { class: "command" },
        textBox(tool.copy?.cli ?? "", { lines: 4, label: "On the command line" }),
    );
    const writeCommand = async () => {
        try {
            const { cli } = await copies();
            const text = JSON.stringify(editor.value());
            note(["tools", tool.name], { arguments: text === "{}" || text.length > LONGEST_LINK ? "" : text });
            fill(command, textBox(cli, { lines: 4, label: "On the command line" }));
        } catch {
            fill(command); // the arguments are not complete yet
        }
    };
    const showCommand = settled(writeCommand, 250, scope);
    editor.element.addEventListener("input", () => {
        fill(foreseen); // it was about other arguments
        showCommand();
    });
    const copyAs = (name) => async () => (await copies())[name];
    const copy = copyMenu([
        ["Link with these arguments", () => linkTo(address(["tools", tool.name], { arguments: JSON.stringify(editor.value()) }))],
        ["forge command", copyAs("cli")],
        ["Python", copyAs("python")],
        ["MCP request", copyAs("mcp")],
        tool.copy?.curl ? ["curl", copyAs("curl")] : null,
        ["JSON", () => jsonText({ name: tool.name, arguments: editor.value() })],
        ["Markdown", () => callMarkdown({ name: tool.name, arguments: editor.value() })],
    ]);
    fill(
        place,
        h(
            "header",
            { class: "page-head" },
            h("p", { class: "crumbs" }, h("a", { href: address(["tools"]) }, "Tools"), " /"),
            h("h1", { tabindex: "-1" }, h("code", {}, tool.name)),
            h("p", { class: "badges" }, facts(tool)),
            tool.description.length > 2_000
                ? h("div", { class: "line" }, textBox(tool.description, { label: "Description" }))
                : h("p", { class: "line" }, tool.description),
        ),
        tool.pin ? pinSection(tool.pin) : null,
        h(
            "div",
            { class: "split even" },
            h(
                "section",
                { class: "panel-box", "aria-label": "Call this tool" },
                h("h2", {}, "Call this tool"),
                editor.element,
                h("div", { class: "actions" }, buttons, copy),
                command,
                foreseen,
                results,
            ),
            h("section", {}, tabs(aboutViews(tool), "About this tool")),
        ),
    );
}

function given(query) {
    try {
        return query.get("arguments") ? JSON.parse(query.get("arguments")) : null;
    } catch {
        return null;
    }
}

function facts(tool) {
    return [
        badge(tool.category),
        tool.source === tool.category ? null : badge(tool.source),
        permissionBadges(tool),
        badge(`${amount(tool.tokens)} tokens`),
        tool.groups.map((one) => badge(`group: ${one}`, "quiet")),
        tool.sent ? null : badge("found by search"),
        tool.ends_turn ? badge("ends the turn") : null,
    ];
}

function pinSection(pin) {
    if (pin.state === "pinned" && !pin.diff)
        return h(
            "p",
            { class: "quiet" },
            pinBadge(pin.state),
            ` approved ${moment(pin.approved) || pin.approved} ${pin.by ? `by ${pin.by}` : ""}`,
        );
    return h(
        "section",
        { class: "panel-box" },
        h("h2", {}, pinBadge(pin.state)),
        pin.diff ? differenceBox(pin.diff) : null,
    );
}

const COPIES = { cli: "forge command", python: "Python", mcp: "MCP request", curl: "curl" };
const yesOrNo = (value) => (value ? "yes" : "no");

function aboutViews(tool) {
    const rows = [
        ["Origin", tool.origin],
        ["Aliases", tool.aliases.join(", ")],
        ["Target", tool.target],
        ["Time limit", tool.timeout ? `${tool.timeout} s` : ""],
        ["Rate limit", tool.rate ? JSON.stringify(tool.rate) : ""],
        ["Parallel-safe", yesOrNo(tool.parallel)],
        ["Repeated calls allowed", yesOrNo(tool.repeatable)],
        ["Idempotent", yesOrNo(tool.idempotent)],
    ];
    const table = () =>
        h(
            "dl",
            { class: "values" },
            rows.filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
        );
    return [
        ["Properties", table],
        ["Parameters", () => jsonBox(tool.parameters, { lines: 60 })],
        [
            "Definition for the model",
            () =>
                h(
                    "div",
                    {},
                    h(
                        "p",
                        { class: "quiet" },
                        `This definition uses ${amount(tool.tokens)} tokens of each request${tool.sent ? "" : ", once the model found the tool"}.`,
                    ),
                    jsonBox(tool.definition, { lines: 60 }),
                ),
        ],
        [
            "As code",
            () =>
                h(
                    "div",
                    {},
                    Object.entries(tool.copy ?? {}).map(([name, text]) =>
                        h(
                            "section",
                            {},
                            h("h3", {}, COPIES[name] ?? name, " ", copyButton(text)),
                            textBox(text, { lines: 30, label: COPIES[name] ?? name }),
                        ),
                    ),
                ),
        ],
    ];
}

/** The call as a run of its own, followed to its end. */
function callView(run) {
    const base = `/api/runs/${part(run.id)}`;
    const scope = makeScope();
    const head = h("p", {});
    let now = { ...run, questions: [], children: [] };
    const source = {
        base,
        hasFiles: true,
        questionOf: (item) => now.questions.findLast((one) => one.call === item.id) ?? null,
        answered: () => look(),
        list: (branch) => itemList(branch, source),
    };
    const fold = new Fold(run.id);
    const list = source.list(fold.trunk);
    const draw = () => {
        list.update();
        for (const item of fold.takeChanged()) {
            if (item.kind === "call" && item.isOpen === undefined) item.isOpen = true;
            item.view?.update?.();
        }
    };
    const feed = runFeed({
        base,
        scope,
        isOurs: (one) => one === run.id || one.startsWith(`${run.id}-`),
        arrived(fresh) {
            for (const entry of fresh ?? []) fold.add(entry);
            draw();
        },
    });
    const showHead = () =>
        redraw(
            head,
            runState(now),
            " ",
            h("a", { href: address(["runs", run.id]) }, run.id),
            now.error ? h("span", { class: "bad" }, ` ${now.error}`) : null,
        );
    async function look() {
        try {
            now = await get(base, {}, scope.signal);
            fold.know(now.children);
            showHead();
            for (const item of fold.trunk.items) fold.touch(item);
            draw();
        } catch (error) {
            report(error);
        }
    }
    const again = soon(look, 80, scope);
    scope.add(
        listen("changed", ({ what, runs }) => {
            if (what.includes("questions") || runs.includes(run.id) || runs.includes("*")) again();
        }),
    );
    showHead();
    feed.load().then(look).catch(report);
    const element = h("div", { class: "result-of-call" }, head, list.element);
    const close = () => {
        scope.close();
        list.clear();
        element.remove();
    };
    return { element, close };
}
