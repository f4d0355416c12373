// What can be done about a run, and what else there is of it.

import { get, linked, part, post } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, bytes, count, moment } from "../format.js";
import { button, composer, dialog } from "../parts/controls.js";
import { jsonBox } from "../parts/diff.js";
import { badge } from "../parts/marks.js";
import { notify } from "../parts/notices.js";
import { textBox } from "../parts/text_view.js";
import { go } from "../router.js";

export function runActions(run, base, startReplay, takeBack) {
    const download = (as, words) => h("a", { class: "button", href: linked(`${base}/export`, { as }), download: "" }, words);
    return [
        run.can.includes("cancel")
            ? button(
                  "Stop",
                  async () =>
                      notify((await post(`${base}/cancel`)).run.cancelling ? "It is told to stop." : "Stopped."),
                  { kind: "danger", key: "stop" },
              )
            : null,
        run.can.includes("resume") ? button("Resume", () => post(`${base}/resume`), { kind: "primary", key: "resume" }) : null,
        run.undoable ? button(`Undo… (${run.undoable})`, takeBack, { key: "undo" }) : null,
        button("Replay", startReplay, { title: "Step by step", key: "replay" }),
        download("ndjson", "NDJSON"),
        download("markdown", "Markdown"),
    ];
}

const shown = new WeakMap(); // foot → what it is for

/** Where one writes to the run. Left alone while it stays the same, for somebody may be writing; a draft is kept. */
export function showFoot(foot, run, base, sent) {
    const kind = run.can.includes("answer") ? "answer" : run.can.includes("say") ? "say" : "";
    const asked = kind === "answer" ? (run.waits.find((one) => one.kind === "question")?.detail?.text ?? "") : "";
    const now = `${kind} ${asked}`;
    const area = foot.querySelector("textarea");
    if (shown.get(foot) === now || (!kind && area?.value)) return;
    shown.set(foot, now);
    const draft = area?.value ?? "";
    const isHere = foot.contains(document.activeElement);
    if (!kind) return fill(foot);
    const send = async (text) => {
        await (kind === "answer" ? post(`${base}/answer`, { text }) : post(`${base}/resume`, { say: text }));
        sent();
    };
    fill(
        foot,
        asked
            ? h(
                  "div",
                  { class: "asks" },
                  h("strong", {}, "The agent asks"),
                  textBox(asked, { isOutput: true, lines: 20 }),
              )
            : null,
        composer({
            label: kind === "answer" ? "Your answer" : "What to do next",
            placeholder: kind === "answer" ? "Your answer" : "Say what to do next",
            send,
            words: kind === "answer" ? "Answer" : "Send",
        }),
    );
    const box = foot.querySelector("textarea");
    box.value = draft;
    if (isHere) box.focus({ preventScroll: true });
}

export async function undo(base) {
    const { changes } = await get(`${base}/undo`);
    const take = async (body) => {
        const { run } = await post(`${base}/undo`, body);
        close();
        go(["runs", run.id]);
    };
    const row = (one) =>
        h(
            "li",
            {},
            h("code", {}, one.tool),
            " ",
            one.files.map((file) => [
                h("code", { class: "value" }, file.path),
                file.lost ? badge("too large to take back", "bad") : null,
                " ",
            ]),
            h("span", { class: "quiet" }, ago(one.at)),
            " ",
            one.undone ? badge("taken back") : button("Take back", () => take({ call: one.call }), { kind: "small" }),
        );
    const close = dialog(
        "Changes of files",
        h("p", { class: "quiet" }, "The newest first. What would change is shown before it does."),
        h("ul", { class: "changes" }, changes.map(row)),
        changes.length ? null : h("p", {}, "There are none."),
    );
}

export function messages(base) {
    const box = h("div", { class: "messages" }, h("p", { class: "quiet" }, "…"));
    get(`${base}/messages`)
        .then(({ messages: found, left_out: left }) => {
            const one = ({ role, text, tool_calls: calls, call_id: id }) =>
                h(
                    "div",
                    { class: `message ${role}` },
                    h("span", { class: "who" }, role, id ? h("span", { class: "quiet" }, ` ${id}`) : null),
                    text ? textBox(text, { lines: 16, label: role }) : null,
                    calls?.length ? jsonBox(calls, { lines: 16 }) : null,
                );
            fill(
                box,
                left ? h("p", { class: "quiet" }, `${count(left, "older message")} left out`) : null,
                found.slice(-300).map(one),
            );
        })
        .catch((error) => fill(box, h("p", { class: "bad" }, error.message)));
    return box;
}

export function fileList(files) {
    const link = ({ run, name, size }) =>
        h(
            "li",
            {},
            h("a", { href: linked(`/api/runs/${part(run)}/files/${name.split("/").map(part).join("/")}`), download: "" }, name),
            ` ${bytes(size)}`,
        );
    return h("ul", {}, files.map(link));
}

export function withoutLong({ questions, children, ...run }) {
    return {
        ...run,
        created: moment(run.created),
        updated: moment(run.updated),
        questions: questions.length,
        children: children.map((one) => one.id),
    };
}
