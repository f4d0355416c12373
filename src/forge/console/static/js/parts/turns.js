// The turns of a session: what each changed, and the way back to it.

import { get, part, post } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, count } from "../format.js";
import { go } from "../router.js";
import { changeDialog } from "./change_dialog.js";
import { button } from "./controls.js";
import { differenceBox } from "./diff.js";
import { badge } from "./marks.js";
import { notify } from "./notices.js";

export function turnList(name) {
    const box = h("div", {}, h("p", { class: "quiet" }, "Loading…"));
    get(`/api/sessions/${part(name)}/turns`)
        .then(({ turns, is_rewound: isRewound }) => {
            const last = turns.length;
            fill(
                box,
                h("p", { class: "quiet" }, "A rewind puts the conversation and the files back. You see the change before it is made."),
                isRewound ? button("Take back the last rewind…", () => rewindDialog(name, null), { kind: "small" }) : null,
                h("ul", { class: "changes" }, turns.map((one) => row(name, one, last))),
                last ? null : h("p", {}, "This session has no turns yet."),
            );
        })
        .catch((error) => fill(box, h("p", { class: "bad" }, error.message)));
    return box;
}

function row(name, { number, at, prompt, text, calls, files, unrecorded }, last) {
    const code = (one) => [" ", h("code", { class: "value" }, one)];
    return h(
        "li",
        {},
        `${number}. `,
        prompt ? h("strong", {}, prompt.slice(0, 120)) : calls.length ? null : text.slice(0, 120),
        calls.map(code),
        files.length ? [" changed ", files.map(code)] : null,
        unrecorded.length ? [" ", badge("not recorded", "bad"), unrecorded.map(code)] : null,
        " ",
        h("span", { class: "quiet" }, ago(at)),
        " ",
        number < last ? button("Rewind to here…", () => rewindDialog(name, number), { kind: "small" }) : null,
        number === 1 ? button("Rewind to the beginning…", () => rewindDialog(name, 0), { kind: "small" }) : null,
    );
}

function rewindDialog(name, turn) {
    const path = `/api/sessions/${part(name)}/rewind`;
    const title = turn === null ? "Take back the last rewind" : turn ? `Rewind to turn ${turn}` : "Rewind to the beginning";
    return changeDialog(title, {
        words: "Rewind",
        fields: [],
        isComplete: () => true,
        preview: () => post(path, { turn }),
        show: showRewind,
        make: async (told) => {
            const done = await post(path, { turn, write: true, expect: told.digest });
            notify(`${name} is at turn ${done.turn}.`, "The rewind can be taken back.");
            go(["sessions"]);
        },
    });
}

function showRewind({ removed, restored, effects, diff, conflicts, left }) {
    const list = (title, lines) => (lines.length ? [h("p", {}, title), h("ul", { class: "plain" }, lines.map((one) => h("li", {}, one)))] : null);
    const said = [removed ? `${count(removed, "message")} removed` : "", restored ? `${count(restored, "message")} brought back` : ""];
    return [
        h("p", {}, `Conversation: ${said.filter(Boolean).join(", ") || "stays as it is"}.`),
        h("p", {}, `Files: ${effects.files.length ? effects.summary : "stay as they are"}.`),
        diff ? differenceBox(diff) : null,
        list("Stays as it is:", left),
        list("Changed by someone else since, so nothing can be rewound:", conflicts),
    ];
}
