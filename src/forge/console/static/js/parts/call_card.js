// A call of a tool as a card: what it is, what it was given, what it says while it works, what came of it.

import { get, linked, part, post } from "../api.js";
import { fill, h, setClass, setText } from "../dom.js";
import { bytes, duration } from "../format.js";
import { redraw } from "../redraw.js";
import { asText, brief, briefArguments } from "../text.js";
import { button, copyButton, tabs } from "./controls.js";
import { differenceBox, isDifference, jsonBox, valuesList } from "./diff.js";
import { callMarkdown, copyMenu, jsonText, linkTo } from "./copy_menu.js";
import { badge } from "./marks.js";
import { questionCard } from "./question.js";
import { appView } from "./mcp_app.js";
import { report } from "./notices.js";
import { textBox, textView } from "./text_view.js";
import { markedText } from "./traces.js";

const MOST_ORIGINS = 20;

const LARGEST_PICTURE = 8_000_000;
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const WORDS = { running: "running", waiting: "waiting", done: "done", failed: "failed", denied: "denied" };

/** `source` has questionOf(item), base (the address of its events), and list(branch), which shows a sub-agent. */
export function callCard(item, source) {
    const summary = h("span", { class: "summary" });
    const took = h("span", { class: "took" });
    const word = h("span", { class: "word" });
    const head = h(
        "button",
        { type: "button", class: "card-head", onclick: () => toggle() },
        h("span", { class: "dot", "aria-hidden": "true" }),
        h("code", { class: "tool" }, item.name),
        summary,
        word,
        took,
    );
    const body = h("div", { class: "card-body" });
    const element = h("div", { class: "card", "data-call": item.id }, head, body);
    let parts = null;

    function toggle() {
        item.isOpen = !isOpen(item, source);
        if (item.isOpen) source.chosen?.(item);
        update();
    }

    function update() {
        const open = isOpen(item, source);
        setClass(element, `card ${item.state}${open ? " open" : ""}`);
        head.setAttribute("aria-expanded", String(open));
        setText(
            summary,
            item.progress && item.state === "running" ? brief(item.progress.title || "", 160) : summaryOf(item),
        );
        setText(word, WORDS[item.state]);
        setText(took, item.seconds === null ? "" : duration(item.seconds));
        body.hidden = !open;
        if (!open) return;
        parts ??= makeBody(item, source, body);
        parts.update();
    }

    update();
    return { element, update, close: () => parts?.close() };
}

/** What a person opened or closed stays so; else what is worth a look is open: output that comes, questions, agents. */
function isOpen(item, source) {
    if (item.isOpen !== undefined) return item.isOpen;
    if (item.state === "waiting" || (item.state === "running" && (item.output || item.branches.length)))
        item.wasLive = true;
    return Boolean(item.wasLive) || Boolean(source.questionOf(item)?.status === "open") || item.branches.length > 0;
}

function summaryOf(item) {
    const given = briefArguments(item.arguments);
    const { title } = item.result ?? {};
    return title && !given.includes(title) && !title.includes(given.slice(0, 60))
        ? `${given}  →  ${brief(title, 80)}`
        : given;
}

function makeBody(item, source, body) {
    const places = {};
    for (const name of ["given", "asked", "reconciled", "progress", "output", "below", "result", "actions"])
        body.append((places[name] = h("div", {})));
    const whole = (pick) => async () => asText(pick((await get(`${source.base}/events/${item.argumentsCut}`)).event));
    const isCut = item.argumentsCut !== null;
    fill(places.given, valuesList(item.arguments, { whole: isCut ? whole((event) => event.call.arguments) : null }));
    let output = null;
    let shownResult = null;
    let shownQuestion = "";
    let canRepeat = null;
    const lists = new Map();

    function update() {
        showQuestion();
        redraw(places.reconciled, item.reconciled ? reconciledLine(item.reconciled) : null);
        redraw(places.progress, item.progress && item.state === "running" ? progressLine(item.progress) : null);
        if (item.output && !output) {
            output = textView(item.output, {
                isOutput: true,
                fromEnd: true,
                lines: 40,
                label: `Output of ${item.name}`,
            });
            fill(places.output, h("h3", {}, "Output"), output.element);
            output.size = item.outputSize;
        } else if (output && output.size !== item.outputSize) {
            output.size = item.outputSize;
            output.update(item.output);
        }
        for (const branch of item.branches) showBranch(branch);
        if (item.result && item.result !== shownResult) {
            shownResult = item.result;
            fill(places.result, resultView(item, source));
        }
        const repeat = item.result ? (source.repeat?.(item) ?? null) : null;
        if (Boolean(repeat) === canRepeat) return;
        canRepeat = Boolean(repeat);
        fill(places.actions, actionsOf(item, source, repeat));
    }

    function showQuestion() {
        const question = source.questionOf(item);
        const key = question
            ? `${question.id} ${question.status} ${question.answer?.kind ?? ""}`
            : item.asked
              ? "asked"
              : "";
        const more = `${key} ${item.answered?.answer ?? ""}`;
        if (more === shownQuestion) return;
        shownQuestion = more;
        source.cards?.delete(item);
        const isAsked = question?.status === "open" && item.state !== "done";
        const isHere = places.asked.contains(document.activeElement);
        places.given.hidden = isAsked; // the question has them
        if (!isAsked) {
            fill(places.asked, item.asked ? askedLine(item) : null);
            if (isHere) body.previousElementSibling.focus({ preventScroll: true });
            return;
        }
        const card = questionCard(question, { isInRun: true, level: 3, answered: source.answered });
        source.cards?.set(item, card);
        fill(places.asked, card.element);
    }

    function showBranch(branch) {
        let list = lists.get(branch.key);
        if (!list) {
            list = source.list(branch);
            lists.set(branch.key, list);
            places.below.append(
                h(
                    "section",
                    { class: "branch", "aria-label": `Sub-agent ${branch.agent}` },
                    h("h3", {}, "Sub-agent ", badge(branch.agent || "?", "agent")),
                    list.element,
                ),
            );
        }
        list.update();
    }

    const close = () => {
        source.cards?.delete(item);
        for (const list of lists.values()) list.clear();
    };
    return { update, close };
}

function actionsOf(item, source, repeat) {
    const copies = async (name) => (await post(`/api/tools/${part(item.name)}/copy`, { arguments: item.arguments }))[name];
    const { name, arguments: given, id } = item;
    const isObject = typeof given === "object" && given !== null && item.argumentsCut === null;
    const other = isObject
        ? [
              ["forge command", () => copies("cli")],
              ["Python", () => copies("python")],
              ["MCP request", () => copies("mcp")],
              ["http_request", "webhook_call"].includes(name) ? ["curl", () => copies("curl")] : null,
              name === "bash" && typeof given.command === "string" ? ["Shell command", given.command] : null,
          ]
        : [];
    const choices = [
        source.linkOf ? ["Link to this step", () => linkTo(source.linkOf(item))] : null,
        ...other,
        ["JSON", () => jsonText({ call: { id, name, arguments: given }, result: item.result })],
        ["Markdown", () => callMarkdown({ name, arguments: given, result: item.result })],
    ];
    return h(
        "div",
        { class: "actions" },
        copyMenu(choices),
        repeat ? button("Re-run from here…", repeat, { kind: "small" }) : null,
    );
}

function askedLine(item) {
    const { permission, target, rule } = item.asked;
    const words = { once: "allowed once", always: "allowed always", no: "denied" };
    const told = item.answered
        ? `${words[item.answered.answer] ?? item.answered.answer} by ${item.answered.by || "a person"} after ${duration(item.answered.at - item.asked.at)}`
        : "not answered yet";
    const line = h(
        "p",
        { class: "quiet asked" },
        "Asked for permission: ",
        badge(permission || "run", "permission"),
        " ",
        h("code", {}, brief(target ?? "", 200)),
        rule ? ` (${rule})` : "",
        ": ",
        told,
    );
    if (!item.asked.origins?.length) return line;
    const origins = item.asked.origins.slice(0, MOST_ORIGINS).map((one) => h("li", {}, markedText(String(one))));
    return h("div", {}, line, h("ul", { class: "traces" }, origins));
}

const RECONCILED = {
    done: "the call took effect, and its result is used",
    not_done: "the call took no effect, so it runs now",
    unknown: "the tool cannot find out, so the call does not run again",
};

/** What the tool said about a call whose worker was lost. */
function reconciledLine({ state, reason }) {
    const words = RECONCILED[state] ?? brief(String(state), 40);
    return h("p", { class: "muted reconciled" }, `Its worker was lost: ${words}.`, reason ? ` ${brief(reason, 300)}` : "");
}

function progressLine({ title, data }) {
    const share = typeof data?.progress === "number" && data.total > 0 ? data.progress / data.total : null;
    return h(
        "p",
        { class: "quiet" },
        share === null ? null : h("progress", { max: "1", value: share }),
        " ",
        title || "",
    );
}

function resultView(item, source) {
    const { result } = item;
    const whole = (name) =>
        item.resultCut && String(result[name] ?? "").length > 32_000
            ? async () => asText((await get(`${source.base}/events/${item.resultAt}`)).event.result[name])
            : null;
    const views = [];
    const forPerson = result.for_user ?? "";
    if (forPerson)
        views.push([
            "For the person",
            () =>
                isDifference(forPerson)
                    ? differenceBox(forPerson, { whole: whole("for_user") })
                    : textBox(forPerson, { isOutput: true, whole: whole("for_user"), label: "For the person" }),
        ]);
    views.push([
        "For the model",
        () => textBox(result.for_llm ?? "", { keepsTabs: true, whole: whole("for_llm"), label: "For the model" }),
    ]);
    const data = Object.keys(result.data ?? {}).length;
    if (data) views.push(["Data", () => jsonBox(result.data, { whole: item.resultCut ? whole("data") : null })]);
    views.push([
        "JSON",
        () =>
            h(
                "div",
                {},
                copyButton(() =>
                    JSON.stringify(
                        { call: { id: item.id, name: item.name, arguments: item.arguments }, result },
                        null,
                        2,
                    ),
                ),
                jsonBox({ call: { id: item.id, name: item.name, arguments: item.arguments }, result }),
            ),
    ]);
    return [
        h("h3", {}, result.is_error ? "Error" : "Result"),
        result.is_error && result.suggestion ? h("p", { class: "quiet" }, result.suggestion) : null,
        tabs(views, "Views of the result"),
        (result.attachments ?? []).map((one) => attachment(one, item, source)),
        typeof result.data?.app === "string" ? appView(item) : null,
    ];
}

function attachment({ name, media_type: type, size, index, left_out: leftOut }, item, source) {
    const href = linked(`${source.base}/events/${item.resultAt}/attachments/${index}`);
    const place = h("div", { class: "attachment" });
    const show = async () => {
        try {
            const bytesOf = new Uint8Array(await (await fetch(href)).arrayBuffer());
            let text = "";
            for (let at = 0; at < bytesOf.length; at += 8_192)
                text += String.fromCharCode(...bytesOf.subarray(at, at + 8_192));
            fill(place, h("img", { src: `data:${type};base64,${btoa(text)}`, alt: name }));
        } catch (error) {
            report(error);
        }
    };
    const isThere = source.hasFiles && !leftOut;
    const canShow = isThere && PICTURES.has(type) && size <= LARGEST_PICTURE;
    return h(
        "div",
        {},
        h(
            "p",
            { class: "quiet" },
            "Attachment ",
            isThere ? h("a", { href, download: "" }, name || "file") : name,
            ` · ${type} · ${bytes(size)} `,
            leftOut ? `· ${leftOut} ` : null,
            canShow ? button("Show", show, { kind: "small" }) : null,
        ),
        place,
    );
}
