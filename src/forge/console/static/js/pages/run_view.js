// The page of one run: its steps, its waterfall, and a replay.

import { me } from "../api.js";
import { fill, h, setText } from "../dom.js";
import { Fold } from "../fold.js";
import { ago, cost, count, duration, short } from "../format.js";
import { bindKeys, legend } from "../keys.js";
import { soon } from "../pace.js";
import { settle } from "../parts/chunks.js";
import { button, tabs } from "../parts/controls.js";
import { copyMenu } from "../parts/copy_menu.js";
import { jsonBox } from "../parts/diff.js";
import { itemList } from "../parts/items.js";
import { badge, runState } from "../parts/marks.js";
import { notify, say } from "../parts/notices.js";
import { replayBar } from "../parts/replay.js";
import { runSearch } from "../parts/run_search.js";
import { turnList } from "../parts/turns.js";
import { waterfallPanel } from "../parts/waterfall.js";
import { redraw } from "../redraw.js";
import { address, nameTab, note } from "../router.js";
import { runFeed } from "../run_feed.js";
import { brief } from "../text.js";
import {
    fileList,
    forkDialog,
    messages,
    rerunDialog,
    runActions,
    sessionCopies,
    showFoot,
    undo,
    withoutLong,
} from "./run_actions.js";

export const OVER = new Set(["finished", "failed", "cancelled"]);

/** `where`: the parts of its address; `step`: the call to show first; `find`: the words to look for. */
export function runView({ place, base, id, where, step, find, scope, hasFiles, isOurs, questionOf, isLive = true }) {
    const view = { answered: () => {} };
    const source = {
        base,
        hasFiles,
        questionOf,
        cards: new Map(),
        answered: () => view.answered(),
        linkOf: (item) => address(where, { step: item.id }),
        chosen: (item) => noteHere({ step: item.id }),
        repeat: (item) => (canRepeat() && item.branch === fold.trunk ? () => rerunDialog(base, { call: item.id }) : null),
        list: (branch) => (branch.list = itemList(branch, source)),
    };
    const here = { step, find };
    const noteHere = (change) => note(where, Object.assign(here, change));
    let fold = new Fold(id);
    let list = source.list(fold.trunk);
    let run = null;
    let session = null;
    let replay = null;
    let isFollowing = false;
    let isLoaded = false;

    const title = h("h1", { tabindex: "-1" }, "…");
    const stateLine = h("span", {});
    const numbers = h("span", { class: "numbers quiet" });
    const actions = h("div", { class: "actions" });
    const times = waterfallPanel({ fold: () => fold, linkOf: source.linkOf, chosen: (item) => followStep(item) });
    const morePanel = h(
        "details",
        { class: "panel", ontoggle: () => showMore() },
        h("summary", {}, "Messages, files, details"),
        h("div", { class: "more-place" }),
    );
    const replayPlace = h("div", {});
    const search = runSearch({
        fold: () => fold,
        reveal: (item) => reveal(item, false),
        noted: (words) => words !== here.find && noteHere({ find: words }),
        scope,
    });
    const itemsPlace = h(
        "div",
        { class: "items-place", role: "log", "aria-live": "off", "aria-label": "Steps" },
        list.element,
    );
    const foot = h("div", { class: "foot" });
    const brought = new Set(); // questions that were brought into view, or announced
    const toQuestion = h("button", { type: "button", class: "to-end to-question", hidden: true });
    const toEnd = h("button", { type: "button", class: "to-end", hidden: true, onclick: () => follow() }, "↓ Go to the end");
    fill(
        place,
        h(
            "header",
            { class: "page-head run-head" },
            title,
            h("div", { class: "run-line" }, stateLine, numbers),
            actions,
        ),
        times.element,
        morePanel,
        replayPlace,
        search.element,
        h("h2", { class: "unseen" }, "Steps"),
        itemsPlace,
        foot,
        toEnd,
        toQuestion,
    );

    const feed = runFeed({ base, isOurs, scope, isLive, arrived });
    view.feed = feed;

    function arrived(fresh) {
        if (replay) return replay.grown(feed.entries.length);
        if (fresh) for (const entry of fresh) fold.add(entry);
        else refold(feed.entries.length);
        return draw();
    }

    /** Show the first so many entries. */
    function refold(upto, isOnward = false) {
        const from = isOnward ? (fold.count ?? 0) : 0;
        if (!isOnward) {
            list.clear();
            fold = new Fold(id);
            fold.know(run?.children ?? []);
            list = source.list(fold.trunk);
            fill(itemsPlace, list.element);
        }
        for (const entry of feed.entries.slice(from, upto)) fold.add(entry);
        fold.count = upto;
    }

    function draw() {
        const wasAtEnd = isFollowing && isAtEnd();
        list.update();
        for (const item of fold.takeChanged()) item.view?.update?.();
        if (wasAtEnd) toBottom();
        toEnd.hidden = isAtEnd() || !isFollowing;
        drawTimesSoon();
        searchSoon();
        showNumbers();
        bringQuestion();
    }

    const searchSoon = soon(search.grown, 500, scope);

    const drawTimesSoon = soon(times.draw, 500, scope);
    const canRepeat = () => run?.kind === "chat" && !run.parent && Boolean(me.model);

    function followStep(item) {
        source.chosen(item);
        reveal(item);
    }

    /** The step that the address names. */
    function showStep() {
        const found = [...fold.branches.values()].map((branch) => branch.calls.get(step)).find(Boolean);
        if (!found) return notify("This run has no such step.", "The step may belong to another run, or may not have started yet.");
        times.choose(found);
        return reveal(found);
    }

    /** Have a step in the page and in sight, with all that it is shown in. Gives its element. */
    function reveal(item, isFocused = true) {
        const path = [item];
        while (path[0].branch.below) path.unshift(path[0].branch.below);
        for (const one of path) {
            if (one.kind === "call") one.isOpen = true;
            one.branch.list?.show(one);
            one.view?.update?.();
        }
        const element = item.view?.element;
        if (!element) return null;
        if (element.matches("details")) element.open = true;
        const head = element.querySelector(":scope > .card-head") ?? element;
        head.scrollIntoView({ block: "center" });
        if (isFocused) head.focus({ preventScroll: true });
        return element;
    }

    function showNumbers() {
        const usage = run?.usage?.input ? run.usage : summed(fold);
        const calls = [...fold.branches.values()].reduce((sum, branch) => sum + branch.calls.size, 0);
        const tokens = usage.input
            ? `${short(usage.input)} in${usage.cached ? ` (${short(usage.cached)} cached)` : ""} · ${short(usage.output)} out`
            : "";
        const { trunk } = fold;
        // of a stored run as in the list: the time in which it worked, without its waits
        const seconds = run?.seconds ?? (trunk.last ?? 0) - (trunk.first ?? 0);
        const took = run && !OVER.has(run.status) && isLive ? "" : duration(seconds);
        setText(
            numbers,
            [count(trunk.turns, "turn"), count(calls, "call"), tokens, cost(run?.cost), took]
                .filter(Boolean)
                .join(" · "),
        );
    }

    /** A question that appears comes into view. Whoever writes, marks a text or replays is told of it, and not moved. */
    function bringQuestion() {
        const open = (run?.questions ?? []).filter((one) => one.status === "open");
        const found = open.map((one) => [one, fold.branches.get(one.run)?.calls.get(one.call)]).find(([, item]) => item);
        toQuestion.hidden = true;
        if (!found || replay || !isLoaded) return;
        const [question, item] = found;
        const isNew = !brought.has(question.id);
        brought.add(question.id);
        const show = (isFocused) => {
            toQuestion.hidden = true;
            const card = reveal(item, isFocused)?.querySelector(".question");
            card?.scrollIntoView({ block: "nearest" });
            if (isFocused) card?.focus({ preventScroll: true });
        };
        if (isNew && !step && !find && !isBusy()) return show(false);
        toQuestion.hidden = isInSight(item.view?.element?.querySelector(".question"));
        toQuestion.textContent = "A question waits: go to it";
        toQuestion.onclick = () => show(true);
    }

    view.load = async (isRunning) => {
        isFollowing = isRunning && !step && !find;
        if (isRunning) times.setLive();
        await feed.load();
        if (!scope.isOpen()) return;
        draw();
        times.draw();
        settle();
        if (find) search.begin(find);
        if (step) showStep();
        else if (!find && isRunning) toBottom();
        isLoaded = true;
        bringQuestion();
    };
    view.show = (now) => {
        const wasOver = run && OVER.has(run.status);
        const isFirst = !run;
        run = now;
        if (isFirst) showMore();
        fold.know(run.children);
        setText(title, brief(run.prompt || run.id, 200));
        nameTab({ page: run.prompt || run.id });
        title.title = run.prompt.slice(0, 2_000);
        redraw(
            stateLine,
            runState(run),
            " ",
            badge(run.agent, "agent"),
            run.parent ? [" sub-agent of ", h("a", { href: address(["runs", run.parent]) }, run.parent)] : null,
            run.rerun_of
                ? [
                      " re-run of ",
                      h("a", { href: address(["runs", run.rerun_of]) }, run.rerun_of),
                      " (",
                      h("a", { href: address(["compare", run.rerun_of, run.id]) }, "compare both"),
                      ")",
                  ]
                : null,
            " · ",
            ago(run.created),
        );
        redraw(
            actions,
            runActions(run, base, startReplay, () => undo(base), () => follow()),
        );
        showFoot(foot, run, base, sent);
        for (const branch of fold.branches.values()) for (const item of branch.calls.values()) item.view?.update?.();
        draw();
        if (wasOver === false && OVER.has(run.status)) say(`The run is ${run.status}.`);
        if (!OVER.has(run.status)) isFollowing ||= isAtEnd();
    };
    view.showSession = (told) => {
        session = told;
        showMore();
        setText(title, brief(session.title || session.name, 200));
        nameTab({ page: session.title || session.name });
        fill(
            stateLine,
            badge(session.is_demo ? "demo" : "terminal", "agent"),
            ` ${session.name} · `,
            ago(session.updated),
            session.problem ? h("span", { class: "bad" }, ` · It cannot be continued: ${session.problem}`) : null,
        );
        fill(actions, button("Replay", startReplay, { key: "replay" }), session.is_demo ? null : copyMenu(sessionCopies(session)));
        if (session.runs?.length)
            fill(
                foot,
                h(
                    "p",
                    {},
                    "Runs of this session: ",
                    session.runs.map((one) => [
                        h("a", { href: address(["runs", one.id]) }, brief(one.prompt, 60)),
                        " ",
                    ]),
                ),
            );
    };

    function startReplay() {
        if (replay) return;
        isFollowing = false;
        replay = replayBar({
            count: feed.entries.length,
            label: (step) => `${feed.entries[step - 1]?.event.event ?? ""}`.replaceAll("_", " "),
            seconds: (step) => (feed.entries[step - 1]?.event.ts ?? 0) - (feed.entries[0]?.event.ts ?? 0),
            show: (step, before) => {
                refold(step, step > before);
                draw();
                settle();
                const last = fold.trunk.items.at(-1);
                if (last) list.show(last, "nearest");
            },
            close: () => {
                replay.stop();
                replay = null;
                fill(replayPlace);
                refold(feed.entries.length);
                draw();
                actions.querySelector("[data-key=replay]")?.focus();
            },
        });
        scope.add(() => replay?.stop());
        fill(replayPlace, replay.element);
        refold(0);
        replay.begin();
    }

    function sent() {
        follow();
        view.answered();
    }

    function follow() {
        isFollowing = true;
        toBottom();
        toEnd.hidden = true;
    }

    /** A button that begins again at a message: a new run, or a copy of a conversation. */
    function repeatMessage(number, role) {
        if (!["assistant", "user"].includes(role)) return null;
        const open = isLive
            ? canRepeat() && (() => rerunDialog(base, { message: number }))
            : session && !session.is_demo && (() => forkDialog(session.name, number + 1, Boolean(me.model)));
        return open ? button(isLive ? "Re-run from here…" : "Fork after this…", open, { kind: "small" }) : null;
    }

    async function showMore() {
        if (!morePanel.open || !(run || session)) return;
        const views = [
            ["Messages", () => messages(base, repeatMessage)],
            ["Details", () => (run ? jsonBox(withoutLong(run)) : h("p", { class: "quiet" }, "There are no more details."))],
        ];
        if (session && !session.is_demo) views.push(["Turns", () => turnList(session.name)]);
        if (run?.files.length) views.push([`Files (${run.files.length})`, () => fileList(run.files)]);
        fill(morePanel.lastElementChild, tabs(views, "More about this run"));
    }

    const onScroll = () => {
        toEnd.hidden = isAtEnd() || !(run && !OVER.has(run.status));
        if (run && !OVER.has(run.status)) isFollowing = isAtEnd();
        if (!toQuestion.hidden) bringQuestion();
    };
    addEventListener("scroll", onScroll, { passive: true });
    scope.add(() => removeEventListener("scroll", onScroll));
    const keys = [
        ["/", "search this run", search.focus],
        ["r", "replay", startReplay],
        ["t", "waterfall", times.toggle],
        ["G", "go to the end", follow],
        [",", "replay: step back", () => replay?.step(-1)],
        [".", "replay: step forward", () => replay?.step(1)],
    ];
    bindRunKeys(scope, keys, source.cards);
    place.append(legend(keys.slice(0, 4)));
    return view;
}

/** Somebody is writing, or has marked a text. */
const isBusy = () => Boolean(document.activeElement?.closest("textarea, input, select, dialog")) || !getSelection().isCollapsed;

function isInSight(element) {
    if (!element) return false;
    const { top, bottom } = element.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
}

const isAtEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 80;
const toBottom = () => scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });

function summed(fold) {
    const total = { input: 0, output: 0, cached: 0 };
    for (const { usage } of fold.branches.values())
        for (const name of Object.keys(total)) total[name] += usage[name] ?? 0;
    return total;
}

// The keys of a run's page: its own, and those that answer its open question.

const ANSWERS = [
    ["y", "allow once"],
    ["a", "allow always"],
    ["n", "deny"],
    ["e", "edit"],
];

/** `cards`: the open questions that are shown. */
function bindRunKeys(scope, keys, cards) {
    const press = (key) => () => {
        const open = [...cards.values()].filter((card) => card.question.status === "open");
        const card =
            open.find((one) => one.element.contains(document.activeElement)) ?? (open.length === 1 ? open[0] : null);
        if (card) card.keys.find(([one]) => one === key)?.[2]();
        else if (open.length) notify("Several questions are open here.", "Focus one of them first, or open Approvals.");
    };
    bindKeys(scope, [...keys, ...ANSWERS.map(([key, words]) => [key, words, press(key)])]);
}
