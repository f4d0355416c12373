// Starts a new run from a step of an old one, or copies a conversation up to a message.

import { part, post } from "../api.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { changeDialog } from "../parts/change_dialog.js";
import { field } from "../parts/controls.js";
import { notify } from "../parts/notices.js";
import { go } from "../router.js";
import { briefArguments } from "../text.js";

const MOST_CALLS = 30;

/** `step`: {call} or {message}, as the server takes it. */
export function rerunDialog(base, step) {
    const say = h("textarea", { rows: "2", placeholder: "Read the tests first.", autofocus: true });
    const values = () => ({ ...step, ...(say.value.trim() ? { say: say.value.trim() } : {}) });
    return changeDialog("Re-run from this step", {
        words: "Start new run",
        fields: [field("What should be different? (optional)", say, "The model reads this text before it repeats the step.")],
        isComplete: () => true,
        preview: () => post(`${base}/rerun`, values()),
        show: showRepeated,
        make: async () => go(["runs", (await post(`${base}/rerun`, { ...values(), write: true })).run.id]),
    });
}

function showRepeated({ kept, turns, calls, left_out: leftOut }) {
    const one = ({ name, arguments: given }) =>
        h("li", {}, h("code", {}, name), " ", h("code", { class: "value" }, briefArguments(given, 90)));
    const more = calls.length - MOST_CALLS + leftOut;
    return [
        h(
            "p",
            {},
            `A new run starts with the first ${count(kept, "message")} of this one. `,
            `The model repeats ${turns === 1 ? "the last turn" : `the last ${turns} turns`} and may decide differently.`,
        ),
        calls.length
            ? [
                  h("p", {}, `The old run made ${count(calls.length + leftOut, "call")} from here on. They may run again:`),
                  h("ul", { class: "plain" }, calls.slice(0, MOST_CALLS).map(one)),
                  more > 0 ? h("p", { class: "quiet" }, `${more} more are not listed.`) : null,
              ]
            : null,
        h(
            "p",
            { class: "hint-line" },
            "Files stay as they are now: the changes of the old run are not undone. The old run stays, too.",
        ),
    ];
}

/** A copy of a conversation with its first `upto` messages. */
export function forkDialog(name, upto, hasModel) {
    const created = h("input", { type: "text", value: `${name}-2`, autocomplete: "off" });
    const say = h("textarea", { rows: "2", placeholder: "Try it with the other parser.", disabled: !hasModel });
    const words = "The copy has the first";
    return changeDialog("Fork this conversation", {
        words: "Create copy",
        fields: [
            field("Name of the copy", created),
            field("Next message (optional)", say, hasModel ? "A run continues the copy with this text." : "This needs a model."),
        ],
        isComplete: () => Boolean(created.value.trim()),
        preview: async () => ({}),
        show: () => h("p", {}, `${words} ${count(upto, "message")} of ${name}. Later messages are left out. ${name} stays as it is.`),
        make: async () => {
            const body = { upto, new: created.value.trim(), ...(say.value.trim() ? { say: say.value.trim() } : {}) };
            const { session, run } = await post(`/api/sessions/${part(name)}/fork`, body);
            notify(`${session.name} has ${count(session.messages, "message")}.`, `Continue at the terminal: forge run --session ${session.name}`);
            if (run) go(["runs", run.id]);
            else go(["sessions", session.name]);
        },
    });
}
