// Adds a note to the memory.

import { post } from "../api.js";
import { h } from "../dom.js";
import { changeDialog } from "../parts/change_dialog.js";
import { field } from "../parts/controls.js";
import { differenceBox } from "../parts/diff.js";
import { notify } from "../parts/notices.js";

/** `added(name)` is called with the name of the note. */
export function noteDialog(added) {
    const content = h("textarea", { rows: "5", autofocus: true, placeholder: "Ada looks after releases." });
    const target = h(
        "select",
        {},
        h("option", { value: "memory" }, "MEMORY.md: facts that stay true"),
        h("option", { value: "today" }, "Today’s note: what happened today"),
    );
    const values = () => ({ content: content.value, target: target.value });
    return changeDialog("Add a note", {
        words: "Add note",
        fields: [
            field("Note", content, "Markdown. The agents of this project can read it. Write no secrets."),
            field("Where", target),
        ],
        isComplete: () => Boolean(content.value.trim()),
        preview: () => post("/api/memory/note", values()),
        show: ({ diff, problem }) => (problem ? h("p", { class: "bad" }, problem) : differenceBox(diff)),
        make: async () => {
            const { note } = await post("/api/memory/note", { ...values(), write: true });
            notify(`The note is in ${note.source}, lines ${note.line_start} to ${note.line_end}.`);
            added(note.source);
        },
    });
}
