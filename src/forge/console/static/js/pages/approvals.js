// Everything that waits for a person.

import { get, part, post } from "../api.js";
import { fill, h } from "../dom.js";
import { since } from "../format.js";
import { bindKeys, legend } from "../keys.js";
import { soon } from "../pace.js";
import { composer } from "../parts/controls.js";
import { badge, empty } from "../parts/marks.js";
import { notify, report, say } from "../parts/notices.js";
import { outcomeWords, questionCard } from "../parts/question.js";
import { textBox } from "../parts/text_view.js";
import { redraw } from "../redraw.js";
import { address, note } from "../router.js";
import { listen } from "../stream.js";
import { brief } from "../text.js";

const MOST_ROWS = 300;
const KEYS = [
    ["j", "next"],
    ["k", "previous"],
    ["y", "allow once"],
    ["a", "always"],
    ["n", "no"],
    ["e", "edit"],
];

export function openApprovals(place, { parts }, scope) {
    const heading = h("h1", { tabindex: "-1" }, "Approvals");
    const rows = h("ul", { class: "rows", "aria-label": "What waits" });
    const detail = h("div", { class: "detail" });
    const split = h("div", { class: "split" }, rows, detail);
    const keys = legend(KEYS);
    fill(place, h("header", { class: "page-head" }, heading), split, keys);
    let waiting = [];
    let chosen = parts[0] ?? "";
    let card = null;

    async function look() {
        try {
            const told = await get("/api/questions", {}, scope.signal);
            waiting = [...told.questions.map(asRow), ...told.words.map(wordsRow)].sort(
                (one, other) => one.since - other.since,
            );
        } catch (error) {
            return report(error);
        }
        if (!waiting.some((one) => one.id === chosen)) await vanished();
        return show();
    }

    /** What was looked at is answered: by somebody else, if not here. Who was writing sees that first. */
    async function vanished() {
        if (card?.isKept) return;
        if (card && !card.isMine && card.question?.status === "open") {
            const asked = card;
            const now = await get(`/api/questions/${part(card.question.id)}`).catch(() => null);
            if (now && now.status !== "open" && asked === card) {
                notify(`${now.tool}: ${outcomeWords(now)}`);
                if (card.isAtWork()) {
                    card.isKept = true;
                    return card.over(now);
                }
            }
        }
        chosen = waiting[0]?.id ?? "";
    }

    function show() {
        const isHere = detail.contains(document.activeElement);
        split.hidden = !waiting.length && !card?.isKept;
        keys.hidden = !waiting.length;
        place.querySelector(".empty")?.remove();
        if (split.hidden) {
            card = null;
            fill(detail);
            place.append(
                empty(
                    "Nothing waits for you.",
                    "What an agent may not do without asking appears here, from any run of this project.",
                ),
            );
        }
        const shown = waiting.filter((one, index) => index < MOST_ROWS || one.id === chosen);
        redraw(
            rows,
            shown.map((one) => rowOf(one, one.id === chosen, () => choose(one.id))),
            shown.length < waiting.length
                ? h("li", { class: "quiet" }, `and ${waiting.length - shown.length} more`)
                : null,
        );
        const one = waiting.find((other) => other.id === chosen);
        if (one && card?.id !== one.id) {
            card = one.words
                ? wordsCard(one, look)
                : questionCard(one.question, { answered: (now) => answered(one, now) });
            card.id = one.id;
            fill(detail, card.element);
            if (isHere) card.element.focus({ preventScroll: true });
        }
    }

    function answered(one, now) {
        if (card?.id === one.id) card.isMine = true;
        const at = waiting.findIndex((other) => other.id === one.id);
        waiting = waiting.filter((other) => other.id !== one.id);
        chosen = (waiting[at] ?? waiting.at(-1))?.id ?? "";
        notify(`${now.tool}: ${outcomeWords(now)}`);
        if (!waiting.length) heading.focus();
        show();
        say(`${outcomeWords(now)}. ${waiting.length ? `${waiting.length} more` : "Nothing more waits."}`);
    }

    function choose(id) {
        chosen = id;
        note(["approvals", id]);
        show();
    }

    function step(by) {
        const at = waiting.findIndex((one) => one.id === chosen);
        const next = waiting[Math.max(0, Math.min(waiting.length - 1, at + by))];
        if (!next) return;
        choose(next.id);
        rows.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
    }

    const press = (key) => () => card?.keys?.find(([one]) => one === key)?.[2]();
    bindKeys(scope, [
        ["j", "next", () => step(1)],
        ["k", "previous", () => step(-1)],
        ...KEYS.slice(2).map(([key, words]) => [key, words, press(key)]),
    ]);
    const again = soon(look, 60, scope);
    scope.add(
        listen("changed", ({ what }) => {
            if (what.includes("questions") || what.includes("runs")) again();
        }),
    );
    return look();
}

const asRow = (question) => ({ id: question.id, question, since: question.asked });
const wordsRow = (words) => ({ id: `words ${words.run} ${words.since}`, words, since: words.since });

function rowOf({ id, question, words, since: from }, isChosen, choose) {
    const about = question ? question.question || question.parts[0]?.target || "" : words.text;
    const line = question
        ? [h("code", {}, question.tool), " ", brief(about, 90)]
        : [badge("asks"), " ", brief(about, 90)];
    const { agent, prompt } = question ?? words;
    return h(
        "li",
        { "data-key": id },
        h(
            "button",
            {
                type: "button",
                class: "row-button",
                "data-key": "choose",
                "aria-current": String(isChosen),
                onclick: choose,
            },
            h("span", { class: "row-main" }, line),
            h("span", { class: "row-more quiet" }, `${agent} · ${brief(prompt, 60)}`, " · ", since(from)),
        ),
    );
}

function wordsCard({ words }, answered) {
    const send = async (text) => {
        await post(`/api/runs/${part(words.run)}/answer`, { text });
        notify("Answered.");
        answered();
    };
    const whose = h(
        "p",
        { class: "quiet" },
        badge(words.agent, "agent"),
        " in ",
        h("a", { href: address(["runs", words.root]) }, brief(words.prompt, 90)),
    );
    const element = h(
        "article",
        { class: "question", tabindex: "-1" },
        h("header", {}, h("h2", {}, "The agent asks"), whose),
        textBox(words.text, { lines: 60, label: "Question" }),
        composer({ label: "Your answer", words: "Answer", placeholder: "Your answer", send }),
    );
    return {
        element,
        keys: [
            ["y", "", () => element.querySelector("textarea").focus()],
            ["e", "", () => element.querySelector("textarea").focus()],
        ],
    };
}
