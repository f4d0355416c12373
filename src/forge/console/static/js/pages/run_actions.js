// The actions of a run, its messages and its files.

import { get, linked, me, part, post } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, bytes, count, moment } from "../format.js";
import { changeDialog } from "../parts/change_dialog.js";
import { button, composer, dialog, field } from "../parts/controls.js";
import { copyMenu, forgeCommand, jsonText, linkTo, openMenu } from "../parts/copy_menu.js";
import { jsonBox } from "../parts/diff.js";
import { badge } from "../parts/marks.js";
import { notify } from "../parts/notices.js";
import { textBox } from "../parts/text_view.js";
import { isMarkable, markDialog, verdictWords } from "../parts/verdict.js";
import { address, go } from "../router.js";
import { briefArguments } from "../text.js";

export function runActions(run, base, startReplay, takeBack, toEnd) {
    const download = (as, words) => h("a", { class: "button", href: linked(`${base}/export`, { as }), download: "" }, words);
    return [
        run.status === "finished" ? button("Answer ↓", toEnd, { title: "Go to the answer (G)", key: "answer" }) : null,
        run.can.includes("cancel")
            ? button(
                  "Stop",
                  async () =>
                      notify((await post(`${base}/cancel`)).run.cancelling ? "The run is stopping." : "The run is stopped."),
                  { kind: "danger", key: "stop" },
              )
            : null,
        run.can.includes("resume") ? button("Resume", () => post(`${base}/resume`), { kind: "primary", key: "resume" }) : null,
        run.undoable ? button(`Undo… (${run.undoable})`, takeBack, { key: "undo" }) : null,
        isMarkable(run)
            ? button(run.mark ? `Marked as ${run.mark.verdict}…` : "Mark…", () => markDialog([run], () => {}), {
                  title: run.mark ? verdictWords(run.mark) : "Mark the answer as good or bad",
                  key: "mark",
              })
            : null,
        button("Replay", startReplay, { title: "Replay the run step by step", key: "replay" }),
        h("a", { class: "button", href: address(["compare", run.id]) }, "Compare…"),
        openMenu("Export", [download("json", "JSON"), download("ndjson", "NDJSON"), download("markdown", "Markdown")]),
        copyMenu(copiesOf(run, base)),
    ];
}

function copiesOf(run, base) {
    const python = () =>
        `from forge import Runs\n\nwith Runs(${JSON.stringify(me.database)}) as runs:\n    print(runs.result(${JSON.stringify(run.id)}).text)\n`;
    const markdown = async () => {
        const answer = await fetch(linked(`${base}/export`, { as: "markdown" }));
        if (!answer.ok) throw new Error(`the run was not exported: the console answered ${answer.status}`);
        return answer.text();
    };
    return [
        ["Link", () => linkTo(address(["runs", run.id]))],
        ["forge command", () => forgeCommand("runs", "show", run.id)],
        ["Python", python],
        ["Prompt", run.prompt],
        ["JSON", () => jsonText(withoutLong(run))],
        ["Markdown", markdown],
    ];
}

export const sessionCopies = ({ name }) => [
    ["Link", () => linkTo(address(["sessions", name]))],
    ["forge command: show", () => forgeCommand("session", "show", name)],
    ["forge command: continue", () => forgeCommand("run", "--session", name)],
    ["JSON", async () => jsonText((await get(`/api/sessions/${part(name)}/messages`)).messages)],
];

const MOST_MESSAGES = 300;
const ROLES = { system: "Instructions", user: "User", assistant: "Model", tool: "Tool result" };
const LABELS = { answer: "Your answer", say: "What to do next", send: "Message to the running agent" };
const shown = new WeakMap(); // foot → what it is for

/** Where one writes to the run. Left alone while it stays the same, for somebody may be writing; a draft is kept. */
export function showFoot(foot, run, base, sent) {
    const kind = ["answer", "say", "send"].find((one) => run.can.includes(one)) ?? "";
    const asked = kind === "answer" ? (run.waits.find((one) => one.kind === "question")?.detail?.text ?? "") : "";
    const now = `${kind} ${asked}`;
    const area = foot.querySelector("textarea");
    if (shown.get(foot) === now || (!kind && area?.value)) return;
    shown.set(foot, now);
    const draft = area?.value ?? "";
    const isHere = foot.contains(document.activeElement);
    if (!kind) return fill(foot);
    const send = async (text) => {
        await (kind === "say" ? post(`${base}/resume`, { say: text }) : post(`${base}/${kind}`, { text }));
        if (kind === "send") notify("The agent sees the message before its next turn.");
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
            label: LABELS[kind],
            placeholder: kind === "say" ? "Continue with a new message" : LABELS[kind],
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
                file.lost ? badge("too large to undo", "bad") : null,
                " ",
            ]),
            h("span", { class: "quiet" }, ago(one.at)),
            " ",
            one.undone ? badge("undone") : button("Undo this change", () => take({ call: one.call }), { kind: "small" }),
        );
    const close = dialog(
        "File changes",
        h("p", { class: "quiet" }, "Newest first. You see the change before it is made."),
        h("ul", { class: "changes" }, changes.map(row)),
        changes.length ? null : h("p", {}, "This run changed no files."),
    );
}

/** The messages of a conversation. `repeat(number, role)` gives a button for a message, or null. */
export function messages(base, repeat = () => null) {
    const box = h("div", { class: "messages" }, h("p", { class: "quiet" }, "Loading…"));
    get(`${base}/messages`)
        .then(({ messages: found, left_out: left }) => {
            const hidden = Math.max(0, found.length - MOST_MESSAGES);
            const one = ({ role, text, tool_calls: calls, call_id: id }, index) =>
                h(
                    "div",
                    { class: `message ${role}` },
                    h(
                        "p",
                        { class: "who" },
                        `${left + hidden + index + 1}. ${ROLES[role] ?? role}`,
                        id ? h("span", { class: "quiet" }, ` ${id}`) : null,
                        " ",
                        repeat(left + hidden + index, role),
                    ),
                    text ? textBox(text, { lines: 16, label: role }) : null,
                    calls?.length ? jsonBox(calls, { lines: 16 }) : null,
                );
            fill(
                box,
                left + hidden ? h("p", { class: "quiet" }, `${count(left + hidden, "older message")} not shown`) : null,
                found.slice(-MOST_MESSAGES).map(one),
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

// Starts a new run from a step of an old one, or copies a conversation up to a message.

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
