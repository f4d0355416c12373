// What people think of the answers of runs: good or bad, with a note.

import { part, post, Refusal } from "../api.js";
import { fill, h } from "../dom.js";
import { count } from "../format.js";
import { button, dialog, field } from "./controls.js";
import { badge } from "./marks.js";
import { notify } from "./notices.js";

const VERDICTS = [
    ["good", "Good"],
    ["bad", "Bad"],
    ["", "No mark"],
];

export function verdictBadge(mark) {
    return mark ? badge(mark.verdict, `verdict ${mark.verdict === "good" ? "good" : "bad"}`) : null;
}

/** The note of a mark, and who wrote it. */
export const verdictWords = (mark) => (mark ? [mark.note, `by ${mark.by}`].filter(Boolean).join(" · ") : "");

/** The answer of a run can be marked: a person began the run, a model answered, and it is over. */
export const isMarkable = (run) =>
    run.kind === "chat" && !run.parent && ["finished", "failed", "cancelled"].includes(run.status);

let groups = 0;

/** Marks the answers of these runs; `done()` afterwards. */
export function markDialog(runs, done) {
    const only = runs.length === 1 ? runs[0].mark : null;
    const name = `verdict-${(groups += 1)}`;
    const radios = VERDICTS.map(([value]) => h("input", { type: "radio", name, value, checked: value === (only?.verdict ?? "good") }));
    const note = h("textarea", { rows: "3", maxlength: "10000", value: only?.note ?? "" });
    const problem = h("div", { role: "alert" });
    const save = async () => {
        const verdict = radios.find((one) => one.checked)?.value ?? "good";
        const failed = [];
        for (const run of runs) {
            try {
                await post(`/api/runs/${part(run.id)}/mark`, { verdict, note: note.value.trim() });
            } catch (error) {
                if (!(error instanceof Refusal)) throw error;
                failed.push(h("p", { class: "bad" }, error.message), h("p", {}, error.next));
            }
        }
        done();
        if (failed.length) return fill(problem, failed);
        close();
        return notify(verdict ? `${count(runs.length, "answer")} marked as ${verdict}.` : "The mark is removed.");
    };
    const close = dialog(
        runs.length === 1 ? "Mark the answer" : `Mark ${count(runs.length, "answer")}`,
        h(
            "div",
            { class: "form" },
            h(
                "fieldset",
                { class: "verdicts" },
                h("legend", {}, "The answer is"),
                VERDICTS.map(([, words], index) => h("label", {}, radios[index], " ", words)),
            ),
            field("Note (optional)", note, "For people, and for a judge in forge eval."),
        ),
        h("div", { class: "actions" }, button("Save", save, { kind: "primary" }), button("Cancel", () => close())),
        problem,
    );
}
