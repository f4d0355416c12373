// All runs, newest first, and conversations at a terminal.

import { get, linked, me, post } from "../api.js";
import { fill, h, setText } from "../dom.js";
import { ago, cost, count, duration, instant, moment, short, since } from "../format.js";
import { bindKeys } from "../keys.js";
import { chunkedList } from "../parts/chunks.js";
import { settled, soon } from "../pace.js";
import { button, composer } from "../parts/controls.js";
import { badge, empty, runState } from "../parts/marks.js";
import { report } from "../parts/notices.js";
import { textBox } from "../parts/text_view.js";
import { verdictBadge } from "../parts/verdict.js";
import { redraw } from "../redraw.js";
import { address, go, note, push } from "../router.js";
import { listen } from "../stream.js";
import { brief } from "../text.js";
import { openRun, openSession } from "./run.js";
import { runSelection } from "./run_selection.js";

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

const KINDS = [
    ["", "All kinds"],
    ["chat", "Agent runs"],
    ["call", "Tool calls"],
];
const MARKS = [
    ["", "Any mark"],
    ["good", "Marked as good"],
    ["bad", "Marked as bad"],
    ["any", "Marked"],
    ["none", "Not marked"],
];
const FILTERS = ["status", "text", "agent", "kind", "model", "user", "failure", "mark", "cost", "from", "to", "show"];
const COLUMNS = ["State", "Task", "Agent", "Model", "Cost", "Worked", "Waited", "Who", "When"];
const TRIES = 4; // requests until a search that has found nothing asks whether to go on

function listRuns(place, { query }, scope) {
    const wanted = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
    const search = h("input", {
        type: "search",
        placeholder: "Search runs",
        title: "Search prompts and answers",
        "aria-label": "Search runs",
        value: wanted.text,
    });
    const choice = (name, label, options) => {
        const select = h("select", { "aria-label": label, onchange: () => change({ [name]: select.value }) });
        setOptions(select, options, wanted[name]);
        return select;
    };
    const selects = {
        agent: choice("agent", "Agent", [["", "All agents"]]),
        model: choice("model", "Model", [["", "All models"]]),
        user: choice("user", "User", [["", "All users"]]),
        failure: choice("failure", "Failure", [["", "Any end"]]),
        kind: choice("kind", "Kind", KINDS),
        mark: choice("mark", "Mark", MARKS),
    };
    const input = (name, label, attributes) => {
        const made = h("input", { ...attributes, value: wanted[name], onchange: () => change({ [name]: made.value }) });
        return h("label", { class: "filter-field" }, `${label} `, made);
    };
    const fields = [
        input("from", "From", { type: "date" }),
        input("to", "To", { type: "date" }),
        input("cost", "Cost from $", { type: "number", min: "0", step: "any" }),
    ];
    const filterCount = h("span", {});
    const clear = button("Clear filters", () => go(["runs"]), { kind: "small" });
    const cases = h("a", { class: "button small", download: "", hidden: true }, "Cases for forge eval");
    const moreFilters = h(
        "details",
        { class: "more-filters", open: matchMedia("(min-width: 861px)").matches || isNarrowed() },
        h("summary", {}, "Filters", filterCount),
        h("div", { class: "filters" }, Object.values(selects), fields, clear, cases),
    );
    const statuses = h("div", { class: "segments", role: "group", "aria-label": "Status" });
    const selection = runSelection({
        shown: () => [...items.values()].map((item) => item.run).filter(Boolean),
        changed: () => drawChecks(),
        done: () => load(),
    });
    const list = chunkedList({
        build: (item) => (item.session ? runRow(item) : tableRow(item, selection)),
        estimate: 46,
        name: "run-rows",
    });
    const all = h("input", {
        type: "checkbox",
        "aria-label": "Select all runs that are shown",
        onchange: () => selection.selectAll(all.checked),
    });
    const names = h(
        "div",
        { class: "run-names", role: "row" },
        h("span", { role: "columnheader" }, all),
        COLUMNS.map((name) => h("span", { role: "columnheader" }, name)),
    );
    const head = h("div", { role: "rowgroup" }, names);
    const table = h("div", { class: "run-table" }, head, list.element);
    const searched = h("p", { class: "quiet searched", role: "status" });
    const more = button("Older runs", () => load(true));
    more.hidden = true; // until it is known that there are some
    const found = h("div", {}, table, searched, more);
    const talk = me.model ? newChat() : noModel();
    fill(
        place,
        h("header", { class: "page-head" }, h("h1", { tabindex: "-1" }, "Runs")),
        talk,
        h("div", { class: "filters", role: "search" }, statuses, search),
        moreFilters,
        selection.element,
        found,
    );
    let items = new Map(); // id → item, in the order of the list
    let next = "";
    let latest = 0; // the last request for the newest runs
    let beginnings = 0; // how often the list began anew

    function isNarrowed() {
        return FILTERS.some((name) => wanted[name] && !["status", "text", "show"].includes(name));
    }

    /** What the server is asked for. */
    function asked() {
        const { show, from, to, ...plain } = wanted;
        return { ...plain, since: startOf(from), until: startOf(to, 1) };
    }

    async function load(isMore = false) {
        if (wanted.show === "sessions") return sessions();
        const mine = isMore ? 0 : (latest += 1);
        const begun = beginnings;
        // a list that updates itself while older runs are fetched does not take them away
        const isOutdated = () => begun !== beginnings || (!isMore && mine !== latest);
        try {
            let which = isMore ? { limit: PAGE, before: next } : { limit: shownNow() };
            let told = await get("/api/runs", { ...asked(), ...which }, scope.signal);
            if (told.agents) setChoices(told);
            for (let tries = 1; tries < TRIES && !isOutdated() && !told.runs.length && told.next; tries++) {
                which = { limit: PAGE, before: told.next };
                told = await get("/api/runs", { ...asked(), ...which }, scope.signal);
            }
            if (isOutdated()) return null; // something else was asked for since, and answered sooner
            const isBelow = !isMore && isGoingOn(told);
            if (!isBelow) {
                if (!isMore) beginnings += 1;
                next = told.next;
                tellSearched(told, which.limit);
            }
            more.hidden = !next;
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

    /** One request looks at some thousand runs: how far back, where it found fewer than a page. */
    function tellSearched({ runs, searched: at }, limit) {
        setText(searched, at && runs.length < limit ? `Searched back to ${moment(at)}.` : "");
    }

    /** Those that are there stay as they are, so that nothing jumps and nothing loses the focus. */
    function showRows(rows) {
        const before = items;
        items = new Map();
        for (const row of rows) items.set(row.id, before.has(row.id) ? Object.assign(before.get(row.id), row) : row);
        list.keep([...items.values()]);
        for (const item of items.values()) item.view?.update();
        const isTable = wanted.show !== "sessions";
        for (const [element, role] of [[table, "table"], [list.element, "rowgroup"]]) {
            if (isTable) element.setAttribute("role", role);
            else element.removeAttribute("role");
        }
        if (isTable) table.setAttribute("aria-label", "Runs");
        else table.removeAttribute("aria-label");
        head.hidden = !isTable || !items.size;
        table.hidden = !items.size;
        moreFilters.hidden = !isTable;
        selection.draw();
        drawChecks();
    }

    function drawChecks() {
        for (const item of items.values()) item.view?.check?.();
        all.checked = selection.size() > 0 && selection.size() === items.size;
        all.indeterminate = selection.size() > 0 && !all.checked;
    }

    function fillEmpty() {
        found.querySelector(".empty")?.remove();
        if (items.size) return;
        const isAny = wanted.text || wanted.status || isNarrowed();
        const words = next ? "Search older runs, or change the filters." : "Change the search or the filters.";
        found.prepend(isAny ? empty(next ? "No run matches so far." : "No runs match.", words) : firstSteps());
    }

    async function sessions() {
        more.hidden = true;
        setText(searched, "");
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

    function setChoices({ agents, models, users, failures }) {
        const named = (names = []) => names.map((name) => [name, name]);
        setOptions(selects.agent, [["", "All agents"], ...named(agents)], wanted.agent);
        setOptions(selects.model, [["", "All models"], ...named(models)], wanted.model);
        setOptions(selects.user, [["", "All users"], ...named(users)], wanted.user);
        setOptions(selects.failure, [["", "Any end"], ["any", "Any failure"], ...named(failures)], wanted.failure);
    }

    /** `isTyping`: each letter is no step to go back to. */
    function change(more_, isTyping = false) {
        Object.assign(wanted, more_);
        beginnings += 1;
        more.hidden = true;
        (isTyping ? note : push)(["runs"], wanted);
        drawFilters();
        showRows([]);
        return load();
    }

    function drawFilters() {
        drawStatuses();
        const used = FILTERS.filter((name) => wanted[name] && !["status", "text", "show"].includes(name)).length;
        setText(filterCount, used ? ` (${used})` : "");
        clear.hidden = !used && !wanted.text && !wanted.status;
        cases.hidden = !["good", "bad", "any"].includes(wanted.mark);
        cases.setAttribute("href", linked("/api/cases", asked()));
    }

    function drawStatuses() {
        const option = (isOn, words, work) =>
            h("button", { type: "button", "aria-pressed": String(isOn), onclick: work }, words);
        const isSessions = wanted.show === "sessions";
        redraw(
            statuses,
            STATUSES.map(([value, words]) =>
                option(!isSessions && wanted.status === value, words, () => change({ status: value, show: "" })),
            ),
            option(isSessions, "terminal sessions", () => change({ show: "sessions" })),
        );
    }

    search.addEventListener(
        "input",
        settled(() => change({ text: search.value.trim() }, true), 250, scope),
    );
    const again = soon(() => load(), 250, scope);
    scope.add(
        listen("changed", ({ what }) => {
            if (what.includes(wanted.show === "sessions" ? "sessions" : "runs")) again();
        }),
    );
    const links = () => [...list.element.querySelectorAll("a")];
    const step = (by) => {
        const at = links().indexOf(document.activeElement);
        links()[Math.max(0, Math.min(links().length - 1, at + by))]?.focus();
    };
    const select = () => {
        const id = document.activeElement?.closest(".run-cells")?.dataset.run;
        if (id) selection.toggle(id);
    };
    bindKeys(scope, [
        ["j", "next", () => step(1)],
        ["k", "previous", () => step(-1)],
        ["x", "select", select],
        ["/", "search", () => search.focus()],
        ["c", "new run", () => place.querySelector(".composer textarea")?.focus()],
    ]);
    drawFilters();
    return load();
}

const known = new WeakMap(); // select → what it offers

/** The options of a choice; untouched while they stay the same, for it may be open just now. What is chosen is offered. */
function setOptions(select, options, value) {
    const all = options.some(([one]) => one === value) ? options : [...options, [value, value]];
    const text = JSON.stringify(all);
    if (known.get(select) !== text) {
        known.set(select, text);
        fill(
            select,
            all.map(([one, words]) => h("option", { value: one }, brief(words, 60))),
        );
    }
    select.value = value;
}

/** The seconds at which a day begins here, or so many days later. */
function startOf(day, later = 0) {
    const [year, month, date] = day.split("-").map(Number);
    const at = new Date(year, month - 1, date + later).getTime() / 1_000;
    return day && !Number.isNaN(at) ? String(at) : "";
}

/** A run as a row of the table. */
function tableRow(item, selection) {
    const { id } = item;
    const pick = h("input", {
        type: "checkbox",
        "aria-label": `Select ${brief(item.run.prompt || id, 60)}`,
        onchange: () => selection.toggle(id, pick.checked),
    });
    const first = h("span", { role: "cell", class: "cell-pick" }, pick);
    const link = h("a", { class: "run-link", href: address(["runs", id]) });
    const task = h("span", { role: "cell", class: "cell-task" }, link);
    const remark = h("span", { class: "row-more quiet" });
    task.append(remark);
    const cells = Object.fromEntries(
        ["state", "agent", "model", "cost", "worked", "waited", "who", "when"].map((name) => [
            name,
            h("span", { role: "cell", class: `cell-${name}`, "data-label": LABELS[name] }),
        ]),
    );
    const { state, ...rest } = cells;
    const element = h(
        "div",
        { class: "run-row run-cells", role: "row", "data-key": `runs ${id}`, "data-run": id },
        first,
        state,
        task,
        Object.values(rest),
    );
    const check = () => {
        pick.checked = selection.has(id);
        element.classList.toggle("selected", pick.checked);
    };
    const update = () => {
        const { run } = item;
        redraw(
            link,
            h("span", { class: "row-main" }, run.kind === "call" ? [badge("call"), " "] : null, brief(run.prompt || id, 200)),
        );
        redraw(
            remark,
            verdictBadge(run.mark),
            run.mark?.note ? ` ${brief(run.mark.note, 120)} ` : " ",
            run.error ? h("span", { class: "bad" }, brief(run.error, 120)) : null,
        );
        remark.hidden = !run.mark && !run.error;
        redraw(cells.state, runState(run));
        redraw(cells.agent, run.agent);
        redraw(cells.model, run.model ? h("span", { title: run.model }, brief(shortModel(run.model), 60)) : null);
        redraw(cells.cost, cost(run.cost) || null);
        redraw(cells.worked, workedTime(run));
        redraw(cells.waited, waitedTime(run));
        redraw(cells.who, run.user || run.tenant || null);
        redraw(cells.when, ago(run.created));
        check();
    };
    update();
    return { element, update, check };
}

const LABELS = { agent: "agent", model: "model", cost: "cost", worked: "worked", waited: "waited", who: "for" };

/** The name without its provider, and a script without its folder: they would be cut at the end, where models differ. */
const shortModel = (model) => model.replace(/^scripted:.*\//, "scripted:").replace(/^(?!scripted:)[\w-]+:(?:.*\/)?/, "");

function workedTime(run) {
    if (run.status === "running") return since(run.updated - (run.seconds ?? 0));
    return run.seconds ? duration(run.seconds) : null;
}

function waitedTime(run) {
    if (run.status === "waiting") return since(run.updated - (run.waited ?? 0));
    return run.waited ? duration(run.waited) : null;
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
