// A run as it is looked at: what happened, how long it took, once more step by step.

import { fill, h, setText } from "../dom.js";
import { Fold } from "../fold.js";
import { ago, cost, count, duration, short } from "../format.js";
import { bindKeys, legend } from "../keys.js";
import { settle } from "../parts/chunks.js";
import { soon } from "../pace.js";
import { button, tabs } from "../parts/controls.js";
import { jsonBox } from "../parts/diff.js";
import { itemList } from "../parts/items.js";
import { badge, runState } from "../parts/marks.js";
import { notify, say } from "../parts/notices.js";
import { replayBar } from "../parts/replay.js";
import { timelineView } from "../parts/timeline.js";
import { redraw } from "../redraw.js";
import { address } from "../router.js";
import { runFeed } from "../run_feed.js";
import { brief } from "../text.js";
import { fileList, messages, runActions, showFoot, undo, withoutLong } from "./run_actions.js";

export const OVER = new Set(["finished", "failed", "cancelled"]);

export function runView({ place, base, id, scope, hasFiles, isOurs, questionOf, isLive = true }) {
    const view = { answered: () => {} };
    const source = {
        base,
        hasFiles,
        questionOf,
        cards: new Map(),
        answered: () => view.answered(),
        list: (branch) => itemList(branch, source),
    };
    let fold = new Fold(id);
    let list = source.list(fold.trunk);
    let run = null;
    let replay = null;
    let isFollowing = false;

    const title = h("h1", { tabindex: "-1" }, "…");
    const stateLine = h("span", {});
    const numbers = h("span", { class: "numbers quiet" });
    const actions = h("div", { class: "actions" });
    const times = timelineView((item) => reveal(item));
    const timesPanel = h(
        "details",
        { class: "panel", ontoggle: () => drawTimes() },
        h("summary", {}, "Time line"),
        times.element,
    );
    const morePanel = h(
        "details",
        { class: "panel", ontoggle: () => showMore() },
        h("summary", {}, "Messages, files, details"),
        h("div", { class: "more-place" }),
    );
    const replayPlace = h("div", {});
    const itemsPlace = h(
        "div",
        { class: "items-place", role: "log", "aria-live": "off", "aria-label": "What happened" },
        list.element,
    );
    const foot = h("div", { class: "foot" });
    const toEnd = h("button", { type: "button", class: "to-end", hidden: true, onclick: () => follow() }, "↓ Newest");
    fill(
        place,
        h(
            "header",
            { class: "page-head run-head" },
            title,
            h("div", { class: "run-line" }, stateLine, numbers),
            actions,
        ),
        timesPanel,
        morePanel,
        replayPlace,
        h("h2", { class: "unseen" }, "What happened"),
        itemsPlace,
        foot,
        toEnd,
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
        showNumbers();
    }

    const drawTimesSoon = soon(drawTimes, 300, scope);
    function drawTimes() {
        if (timesPanel.open && scope.isOpen()) times.update(fold, Date.now() / 1_000);
    }

    function reveal(item) {
        item.isOpen = true;
        for (let one = item.branch.below; one; one = one.branch.below) one.isOpen = true;
        const top = topmost(item);
        list.show(top);
        top.view?.update?.();
        const found = itemsPlace.querySelector(`[data-call="${CSS.escape(item.id)}"] .card-head`);
        item.view?.update?.();
        found?.scrollIntoView({ block: "center" });
        found?.focus({ preventScroll: true });
    }

    function showNumbers() {
        const usage = run?.usage?.input ? run.usage : summed(fold);
        const calls = [...fold.branches.values()].reduce((sum, branch) => sum + branch.calls.size, 0);
        const tokens = usage.input
            ? `${short(usage.input)} in${usage.cached ? ` (${short(usage.cached)} cached)` : ""} · ${short(usage.output)} out`
            : "";
        const { trunk } = fold;
        const took = run && !OVER.has(run.status) && isLive ? "" : duration((trunk.last ?? 0) - (trunk.first ?? 0));
        setText(
            numbers,
            [count(trunk.turns, "turn"), count(calls, "call"), tokens, cost(run?.cost), took]
                .filter(Boolean)
                .join(" · "),
        );
    }

    view.load = async (isRunning) => {
        isFollowing = isRunning;
        await feed.load();
        if (!scope.isOpen()) return;
        draw();
        settle();
        if (isRunning) toBottom();
    };
    view.show = (now) => {
        const wasOver = run && OVER.has(run.status);
        run = now;
        fold.know(run.children);
        setText(title, brief(run.prompt || run.id, 200));
        title.title = run.prompt.slice(0, 2_000);
        redraw(
            stateLine,
            runState(run),
            " ",
            badge(run.agent, "agent"),
            run.parent ? [" below ", h("a", { href: address(["runs", run.parent]) }, run.parent)] : null,
            " · ",
            ago(run.created),
        );
        redraw(
            actions,
            runActions(run, base, startReplay, () => undo(base)),
        );
        showFoot(foot, run, base, sent);
        for (const branch of fold.branches.values()) for (const item of branch.calls.values()) item.view?.update?.();
        draw();
        if (wasOver === false && OVER.has(run.status)) say(`The run is ${run.status}.`);
        if (!OVER.has(run.status)) isFollowing ||= isAtEnd();
    };
    view.showSession = (session) => {
        setText(title, brief(session.title || session.name, 200));
        fill(
            stateLine,
            badge(session.is_demo ? "demo" : "terminal", "agent"),
            ` ${session.name} · `,
            ago(session.updated),
        );
        fill(actions, button("Replay", startReplay, { key: "replay" }));
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

    async function showMore() {
        if (!morePanel.open) return;
        const views = [
            ["Messages", () => messages(base)],
            ["Details", () => (run ? jsonBox(withoutLong(run)) : h("p", { class: "quiet" }, "Nothing more."))],
        ];
        if (run?.files.length) views.push([`Files (${run.files.length})`, () => fileList(run.files)]);
        fill(morePanel.lastElementChild, tabs(views, "More of this run"));
    }

    const onScroll = () => {
        toEnd.hidden = isAtEnd() || !(run && !OVER.has(run.status));
        if (run && !OVER.has(run.status)) isFollowing = isAtEnd();
    };
    addEventListener("scroll", onScroll, { passive: true });
    scope.add(() => removeEventListener("scroll", onScroll));
    const keys = [
        ["r", "replay", startReplay],
        ["t", "time line", () => (timesPanel.open = !timesPanel.open)],
        ["G", "newest", follow],
        [",", "step back", () => replay?.step(-1)],
        [".", "step on", () => replay?.step(1)],
    ];
    const press = (key) => () => {
        const open = [...source.cards.values()].filter((card) => card.question.status === "open");
        const card =
            open.find((one) => one.element.contains(document.activeElement)) ?? (open.length === 1 ? open[0] : null);
        if (card) card.keys.find(([one]) => one === key)?.[2]();
        else if (open.length) notify("Several things wait here.", "Go into one of them first, or to Approvals.");
    };
    bindKeys(scope, [
        ...keys,
        ...[
            ["y", "allow once"],
            ["a", "always"],
            ["n", "no"],
            ["e", "edit"],
        ].map(([key, words]) => [key, words, press(key)]),
    ]);
    place.append(legend(keys.slice(0, 3)));
    return view;
}

const isAtEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 80;
const toBottom = () => scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });

function topmost(item) {
    let found = item;
    while (found.branch?.below) found = found.branch.below;
    return found;
}

function summed(fold) {
    const total = { input: 0, output: 0, cached: 0 };
    for (const { usage } of fold.branches.values())
        for (const name of Object.keys(total)) total[name] += usage[name] ?? 0;
    return total;
}
