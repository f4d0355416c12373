// All runs, newest first, and conversations at a terminal.

import { get, me, post } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, cost, count, duration, instant, short } from "../format.js";
import { bindKeys } from "../keys.js";
import { chunkedList } from "../parts/chunks.js";
import { settled, soon } from "../pace.js";
import { button, composer } from "../parts/controls.js";
import { badge, empty, runState } from "../parts/marks.js";
import { report } from "../parts/notices.js";
import { textBox } from "../parts/text_view.js";
import { redraw } from "../redraw.js";
import { address, go, note } from "../router.js";
import { listen } from "../stream.js";
import { brief } from "../text.js";
import { openRun, openSession } from "./run.js";

const STATUSES = [
    ["", "all"],
    ["queued,running", "running"],
    ["waiting", "waiting"],
    ["finished", "finished"],
    ["failed,cancelled", "failed or stopped"],
];
const PAGE = 100;
const MOST_AT_ONCE = 200;

export function openRuns(place, at, scope) {
    if (at.parts[0]) return openRun(place, at.parts[0], at.query, scope);
    return listRuns(place, at, scope);
}

export function openSessions(place, at, scope) {
    if (at.parts[0]) return openSession(place, at.parts[0], at.query, scope);
    return go(["runs"], { show: "sessions" });
}

function listRuns(place, { query }, scope) {
    const wanted = Object.fromEntries(
        ["status", "text", "agent", "kind", "show"].map((name) => [name, query.get(name) ?? ""]),
    );
    const search = h("input", {
        type: "search",
        placeholder: "Search runs",
        title: "Search prompts and answers",
        "aria-label": "Search runs",
        value: wanted.text,
    });
    const agents = h("select", { "aria-label": "Agent" }, h("option", { value: "" }, "All agents"));
    const kinds = h(
        "select",
        { "aria-label": "Kind" },
        [
            ["", "agent runs and tool calls"],
            ["chat", "agent runs"],
            ["call", "single tool calls"],
        ].map(([value, words]) => h("option", { value }, words)),
    );
    kinds.value = wanted.kind;
    const statuses = h("div", { class: "segments", role: "group", "aria-label": "Status" });
    const list = chunkedList({ build: (item) => runRow(item), estimate: 46, name: "run-rows" });
    const more = button("Older runs", () => load(true));
    const found = h("div", {}, list.element, more);
    const talk = me.model ? newChat() : noModel();
    fill(
        place,
        h("header", { class: "page-head" }, h("h1", { tabindex: "-1" }, "Runs")),
        talk,
        h("div", { class: "filters", role: "search" }, statuses, search, kinds, agents),
        found,
    );
    let items = new Map(); // id → item, in the order of the list
    let next = "";
    let latest = 0;
    let known = "";

    async function load(isMore = false) {
        if (wanted.show === "sessions") return sessions();
        const { show, ...asked } = wanted;
        const mine = (latest += 1);
        try {
            const which = isMore ? { limit: PAGE, before: next } : { limit: shownNow() };
            const told = await get("/api/runs", { ...asked, ...which }, scope.signal);
            if (mine !== latest) return null; // something else was asked for since, and answered sooner
            const isBelow = !isMore && isGoingOn(told);
            if (!isBelow) next = told.next;
            more.hidden = !next;
            setAgents(told.agents);
            const rows = told.runs.map((run) => ({ id: run.id, run }));
            const older = isBelow ? [...items.values()].filter((one) => one.run.created < rows.at(-1).run.created) : [];
            showRows(isMore ? [...items.values(), ...rows] : [...rows, ...older]);
            return fillEmpty();
        } catch (error) {
            return report(error);
        }
    }

    const shownNow = () => Math.max(PAGE, Math.min(MOST_AT_ONCE, items.size));

    /** Whether older ones are shown that go on where these end. */
    const isGoingOn = ({ runs, next: more_ }) => Boolean(more_) && runs.some((run) => items.has(run.id));

    /** Those that are there stay as they are, so that nothing jumps and nothing loses the focus. */
    function showRows(rows) {
        const before = items;
        items = new Map();
        for (const row of rows) items.set(row.id, before.has(row.id) ? Object.assign(before.get(row.id), row) : row);
        list.keep([...items.values()]);
        for (const item of items.values()) item.view?.update();
    }

    function fillEmpty() {
        found.querySelector(".empty")?.remove();
        if (items.size) return;
        const isAny = wanted.text || wanted.status || wanted.agent || wanted.kind;
        found.prepend(isAny ? empty("No runs match.", "Change the search or the filters.") : firstSteps());
    }

    async function sessions() {
        more.hidden = true;
        const mine = (latest += 1);
        try {
            const told = await get("/api/sessions", { text: wanted.text }, scope.signal);
            if (mine !== latest) return;
            found.querySelector(".empty")?.remove();
            showRows(told.sessions.map((session) => ({ id: `session ${session.name}`, session })));
        } catch (error) {
            report(error);
        }
    }

    function setAgents(names) {
        if (names.join("\n") === known) return; // it may be open just now
        known = names.join("\n");
        fill(
            agents,
            h("option", { value: "" }, "All agents"),
            names.map((name) => h("option", { value: name }, name)),
        );
        agents.value = wanted.agent;
    }

    function change(more_) {
        Object.assign(wanted, more_);
        note(["runs"], wanted);
        drawStatuses();
        showRows([]);
        return load();
    }

    function drawStatuses() {
        const choice = (isOn, words, work) =>
            h("button", { type: "button", "aria-pressed": String(isOn), onclick: work }, words);
        const isSessions = wanted.show === "sessions";
        redraw(
            statuses,
            STATUSES.map(([value, words]) =>
                choice(!isSessions && wanted.status === value, words, () => change({ status: value, show: "" })),
            ),
            choice(isSessions, "terminal sessions", () => change({ show: "sessions" })),
        );
    }

    search.addEventListener(
        "input",
        settled(() => change({ text: search.value.trim() }), 250, scope),
    );
    kinds.addEventListener("change", () => change({ kind: kinds.value }));
    agents.addEventListener("change", () => change({ agent: agents.value }));
    const again = soon(() => load(), 250, scope);
    scope.add(
        listen("changed", ({ what }) => {
            if (what.includes(wanted.show === "sessions" ? "sessions" : "runs")) again();
        }),
    );
    const step = (by) => {
        const links = [...list.element.querySelectorAll(".run-row")];
        const at = links.indexOf(document.activeElement);
        links[Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
    };
    bindKeys(scope, [
        ["j", "next", () => step(1)],
        ["k", "previous", () => step(-1)],
        ["/", "search", () => search.focus()],
        ["c", "new run", () => place.querySelector(".composer textarea")?.focus()],
    ]);
    drawStatuses();
    return load();
}

export function newChat() {
    const send = async (prompt) => go(["runs", (await post("/api/runs", { prompt })).run.id]);
    return composer({
        label: "What should the agent do?",
        placeholder: "Describe a task for the agent",
        words: "Run",
        send,
    });
}

export function noModel() {
    const [first, ...more] = (me.model_problem || "Give one with --model, or in forge.yaml.").split("\n");
    const ways = more.length
        ? h(
              "details",
              {},
              h("summary", {}, "How to set a model"),
              textBox(more.join("\n"), { isOutput: true, lines: 60, label: "Models" }),
          )
        : null;
    return h(
        "div",
        { class: "hint-line" },
        h("p", {}, h("strong", {}, "No model is set, so agents cannot run here. "), "Everything else works. ", first),
        ways,
    );
}

function firstSteps() {
    const demo = me.demo ? h("a", { href: address(["sessions", me.demo]) }, "the demo session") : null;
    return empty("No runs yet.", [
        demo ? ["Open ", demo, " for an example, "] : "",
        "call a tool under ",
        h("a", { href: address(["tools"]) }, "Tools"),
        me.model ? ", or write a task above." : ".",
    ]);
}

/** `item` has a run or a session. */
export function runRow(item) {
    const where = item.session ? ["sessions", item.session.name] : ["runs", item.run.id];
    const element = h("a", { class: "run-row", href: address(where), "data-key": where.join(" ") });
    const update = () => redraw(element, item.session ? sessionFacts(item.session) : runFacts(item.run));
    update();
    return { element, update };
}

function runFacts(run) {
    const tokens = run.usage?.input ? `${short((run.usage.input ?? 0) + (run.usage.output ?? 0))} tokens` : "";
    const facts = [
        run.agent === "main" ? "" : run.agent,
        run.kind === "call" ? "" : count(run.calls ?? 0, "call"),
        tokens,
        cost(run.cost),
        run.seconds ? duration(run.seconds) : "",
    ];
    return [
        runState(run),
        h(
            "span",
            { class: "row-main" },
            run.kind === "call" ? [badge("call"), " "] : null,
            brief(run.prompt || run.id, 200),
        ),
        h(
            "span",
            { class: "row-more quiet" },
            run.error ? h("span", { class: "bad" }, brief(run.error, 90)) : facts.filter(Boolean).join(" · "),
        ),
        ago(run.created),
    ];
}

function sessionFacts(session) {
    return [
        h("span", { class: "state" }, badge(session.is_demo ? "demo" : "terminal")),
        h("span", { class: "row-main" }, brief(session.title || session.name, 160)),
        h("span", { class: "row-more quiet" }, `${session.name} · ${count(session.messages ?? 0, "message")}`),
        ago(instant(session.updated)),
    ];
}
