// Several runs at once: answers to their questions, another try, marks, deletion.

import { post, Refusal } from "../api.js";
import { fill, h } from "../dom.js";
import { bytes, count } from "../format.js";
import { button, dialog } from "../parts/controls.js";
import { notify, say } from "../parts/notices.js";
import { isMarkable, markDialog } from "../parts/verdict.js";
import { redraw } from "../redraw.js";
import { brief } from "../text.js";
import { batchDialog, isSelectable } from "./approvals.js";

const MOST = 200; // runs that are selected at once
const NAMED = 50; // runs that a confirmation names
const OVER = ["finished", "failed", "cancelled"];

/** `shown()` gives the runs of the list, `changed()` draws them, `done()` reads them again. */
export function runSelection({ shown, changed, done }) {
    const selected = new Set();
    const element = h("div", { class: "selection", role: "group", "aria-label": "Selected runs", hidden: true });
    const chosen = () => shown().filter((run) => selected.has(run.id));

    function toggle(id, isOn = !selected.has(id)) {
        if (!isOn) selected.delete(id);
        else if (selected.size < MOST) selected.add(id);
        else notify(`At most ${MOST} runs are selected at once.`);
        return update();
    }

    function selectAll(isOn) {
        selected.clear();
        if (isOn) for (const run of shown().slice(0, MOST)) selected.add(run.id);
        return update();
    }

    function update() {
        draw();
        changed();
        say(`${selected.size} selected`);
    }

    const after = () => {
        selected.clear();
        draw();
        done();
    };

    function draw() {
        const known = new Set(shown().map((run) => run.id));
        for (const id of [...selected]) if (!known.has(id)) selected.delete(id);
        const runs = chosen();
        element.hidden = !runs.length;
        const waiting = runs.filter((run) => run.status === "waiting");
        const failed = runs.filter((run) => run.can.includes("resume"));
        const markable = runs.filter(isMarkable);
        const over = runs.filter((run) => OVER.includes(run.status));
        const offer = (some, words, work, kind = "") =>
            some.length ? button(`${words} ${some.length}…`, () => work(some), { kind: `small ${kind}`, key: words }) : null;
        redraw(
            element,
            h("strong", { "data-key": "count" }, `${runs.length} selected`),
            offer(waiting, "Approve", (some) => answer(some, "once"), "primary"),
            offer(waiting, "Deny", (some) => answer(some, "no"), "danger"),
            offer(failed, "Retry", (some) => confirm(some, retrying)),
            offer(markable, "Mark", (some) => markDialog(some, after)),
            offer(over, "Delete", (some) => confirm(some, deleting), "danger"),
            button("Clear selection", () => selectAll(false), { kind: "small", key: "clear" }),
        );
    }

    async function answer(runs, kind) {
        const { questions } = await post("/api/runs/questions", { runs: runs.map((run) => run.id) });
        const plain = questions.filter((question) => isSelectable({ question }));
        if (!plain.length)
            return notify("None of these runs waits for a plain yes or no. Answer them on their pages.");
        if (plain.length < questions.length)
            notify(`${count(questions.length - plain.length, "question")} must be answered on the page of the run.`);
        return batchDialog(plain, kind, after);
    }

    /** Shows what would happen to which runs, and does it. */
    async function confirm(runs, { path, title, explain, ended }) {
        const told = await post(path, { runs: runs.map((run) => run.id) });
        const problem = h("div", { role: "alert" });
        const words = `${title} ${count(told.runs.length, "run")}`;
        const work = async () => {
            try {
                const made = await post(path, { runs: told.runs, write: true });
                after();
                if (made.refused.length) return fill(problem, refusals(made.refused));
                close();
                return notify(`${count(made.runs.length, "run")} ${ended}.`);
            } catch (error) {
                if (!(error instanceof Refusal)) throw error;
                after();
                return fill(problem, h("p", { class: "bad" }, error.message), h("p", {}, error.next));
            }
        };
        const named = runs.filter((run) => told.runs.includes(run.id));
        const kind = path.endsWith("delete") ? "danger" : "primary";
        const close = dialog(
            `${words}?`,
            explain(told),
            h(
                "ul",
                { class: "batch-list" },
                named.slice(0, NAMED).map((run) => h("li", {}, brief(run.prompt || run.id, 120), " ", h("code", { class: "quiet" }, run.id))),
                named.length > NAMED ? h("li", { class: "quiet" }, `${named.length - NAMED} more`) : null,
            ),
            told.refused.length ? h("div", { class: "hint-line" }, refusals(told.refused)) : null,
            h(
                "div",
                { class: "actions" },
                told.runs.length ? button(words, work, { kind }) : null,
                button("Cancel", () => close()),
            ),
            problem,
        );
    }

    return { element, toggle, selectAll, draw, has: (id) => selected.has(id), size: () => selected.size };
}

const refusals = (refused) => refused.map(({ what, next }) => h("p", {}, `${what}. ${next}`));

const retrying = {
    path: "/api/runs/retry",
    title: "Retry",
    ended: "queued again",
    explain: () => h("p", { class: "quiet" }, "Each run continues where it stopped. Finished steps are not repeated."),
};

const deleting = {
    path: "/api/runs/delete",
    title: "Delete",
    ended: "deleted",
    explain: ({ runs, parts }) => [
        h("p", {}, h("strong", {}, "These are deleted for good: "), partsWords(runs.length, parts), "."),
        h("p", { class: "quiet" }, "What the runs changed stays changed. Conversations in sessions stay."),
    ],
};

function partsWords(runs, { started, events, questions, files, bytes: size, marks }) {
    const words = [
        `${count(runs, "run")} with all messages`,
        started ? `${count(started, "run")} that they started` : "",
        events ? count(events, "event") : "",
        questions ? `${count(questions, "question")} with the answers` : "",
        files ? `${count(files, "file")} (${bytes(size)})` : "",
        marks ? count(marks, "mark") : "",
    ].filter(Boolean);
    return words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words[0];
}
