// One run, live or over: what happened, how long it took, what can be done about it.

import { get, part, post } from "../api.js";
import { fill, h, setText } from "../dom.js";
import { Fold } from "../fold.js";
import { ago, bytes, cost, count, duration, moment, short } from "../format.js";
import { bindKeys, legend } from "../keys.js";
import { settle } from "../parts/chunks.js";
import { button, composer, dialog, settled, tabs } from "../parts/controls.js";
import { jsonBox } from "../parts/diff.js";
import { itemList } from "../parts/items.js";
import { badge, runState } from "../parts/marks.js";
import { notify, report, say } from "../parts/notices.js";
import { replayBar } from "../parts/replay.js";
import { textBox } from "../parts/text_view.js";
import { timelineView } from "../parts/timeline.js";
import { address, go } from "../router.js";
import { runFeed } from "../run_feed.js";
import { listen } from "../stream.js";
import { brief } from "../text.js";

const OVER = new Set(["finished", "failed", "cancelled"]);

export function openRun(place, id, scope) {
  const base = `/api/runs/${part(id)}`;
  const family = new Set([id]);
  let run = null;
  let isLoaded = false;
  const isOurs = (one) => family.has(one) || one.startsWith(`${id}-`);
  const view = runView({ place, base, id, scope, hasFiles: true, isOurs, questionOf });

  function questionOf(item) {
    return run?.questions.findLast((one) => one.run === item.run && one.call === item.id) ?? null;
  }

  async function look() {
    try {
      run = await get(base, {}, scope.signal);
    } catch (error) {
      if (run) return report(error);
      return fill(place, h("h1", {}, "Run"), h("p", { class: "bad" }, error.message), h("p", { class: "quiet" }, error.next ?? ""));
    }
    const isUnknown = run.children.some((one) => !isOurs(one.id));
    for (const child of run.children) family.add(child.id);
    view.show(run);
    if (isUnknown && isLoaded) view.feed.reload().catch(report);
    return run;
  }

  const again = settled(look, 120);
  scope.add(listen("changed", ({ what, runs }) => {
    const isAbout = !runs.length || runs.includes("*") || runs.some(isOurs);
    if ((what.includes("runs") || what.includes("questions")) && isAbout) again();
  }));
  view.answered = again;
  look().then(async (found) => {
    if (!found) return;
    await view.load(!OVER.has(found.status));
    isLoaded = true;
  }).catch(report);
}

/** A conversation at a terminal: there is a log of it, and nothing to stop. */
export function openSession(place, name, scope) {
  const base = `/api/sessions/${part(name)}`;
  const view = runView({ place, base, id: `session:${name}`, scope, hasFiles: false, isOurs: () => false, questionOf: () => null, isLive: false });
  get(base, {}, scope.signal).then((session) => {
    view.showSession(session);
    return view.load(false);
  }).catch((error) => fill(place, h("h1", {}, "Session"), h("p", { class: "bad" }, error.message)));
  scope.add(listen("changed", ({ what }) => {
    if (what.includes("sessions")) view.feed.load().catch(() => {});
  }));
}

function runView({ place, base, id, scope, hasFiles, isOurs, questionOf, isLive = true }) {
  const view = { answered: () => {} };
  const source = { base, hasFiles, questionOf, cards: new Map(), answered: () => view.answered(), list: (branch) => itemList(branch, source) };
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
  const timesPanel = h("details", { class: "panel", ontoggle: () => drawTimes() }, h("summary", {}, "Time line"), times.element);
  const morePanel = h("details", { class: "panel", ontoggle: () => showMore() }, h("summary", {}, "Messages, files, details"), h("div", { class: "more-place" }));
  const replayPlace = h("div", {});
  const itemsPlace = h("div", { class: "items-place", role: "log", "aria-live": "off", "aria-label": "What happened" }, list.element);
  const foot = h("div", { class: "foot" });
  const toEnd = h("button", { type: "button", class: "to-end", hidden: true, onclick: () => follow() }, "↓ Newest");
  fill(place, h("header", { class: "page-head run-head" }, title, h("div", { class: "run-line" }, stateLine, numbers), actions), timesPanel, morePanel, replayPlace, itemsPlace, foot, toEnd);

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
    const from = isOnward ? fold.count ?? 0 : 0;
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

  const drawTimesSoon = settled(drawTimes, 300);
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
    const tokens = usage.input ? `${short(usage.input)} in${usage.cached ? ` (${short(usage.cached)} cached)` : ""} · ${short(usage.output)} out` : "";
    const { trunk } = fold;
    const took = run && !OVER.has(run.status) && isLive ? "" : duration((trunk.last ?? 0) - (trunk.first ?? 0));
    setText(numbers, [count(trunk.turns, "turn"), count(calls, "call"), tokens, cost(run?.cost), took].filter(Boolean).join(" · "));
  }

  view.load = async (isRunning) => {
    isFollowing = isRunning;
    await feed.load();
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
    fill(stateLine, runState(run), " ", badge(run.agent, "agent"), run.parent ? [" below ", h("a", { href: address(["runs", run.parent]) }, run.parent)] : null, " · ", ago(run.created));
    fill(actions, runActions(run, base, startReplay, () => undo(base)));
    showFoot(foot, run, base, follow);
    for (const branch of fold.branches.values()) for (const item of branch.calls.values()) item.view?.update?.();
    draw();
    if (wasOver === false && OVER.has(run.status)) say(`The run is ${run.status}.`);
    if (!OVER.has(run.status)) isFollowing ||= isAtEnd();
  };
  view.showSession = (session) => {
    setText(title, brief(session.title || session.name, 200));
    fill(stateLine, badge(session.is_demo ? "demo" : "terminal", "agent"), ` ${session.name} · `, ago(session.updated));
    fill(actions, button("Replay", startReplay));
    if (session.runs?.length) fill(foot, h("p", {}, "Runs of this session: ", session.runs.map((one) => [h("a", { href: address(["runs", one.id]) }, brief(one.prompt, 60)), " "])));
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
      },
    });
    scope.add(() => replay?.stop());
    fill(replayPlace, replay.element);
    refold(0);
    replay.begin();
  }

  function follow() {
    isFollowing = true;
    toBottom();
    toEnd.hidden = true;
  }

  async function showMore() {
    if (!morePanel.open) return;
    const views = [["Messages", () => messages(base)], ["Details", () => (run ? jsonBox(withoutLong(run)) : h("p", { class: "quiet" }, "Nothing more."))]];
    if (run?.files.length) views.push([`Files (${run.files.length})`, () => fileList(run.files)]);
    fill(morePanel.lastElementChild, tabs(views, "More of this run"));
  }

  const onScroll = () => {
    toEnd.hidden = isAtEnd() || !(run && !OVER.has(run.status));
    if (run && !OVER.has(run.status)) isFollowing = isAtEnd();
  };
  addEventListener("scroll", onScroll, { passive: true });
  scope.add(() => removeEventListener("scroll", onScroll));
  const keys = [["r", "replay", startReplay], ["t", "time line", () => (timesPanel.open = !timesPanel.open)], ["G", "newest", follow], [",", "step back", () => replay?.step(-1)], [".", "step on", () => replay?.step(1)]];
  const press = (key) => () => {
    const open = [...source.cards.values()].filter((card) => card.question.status === "open");
    const card = open.find((one) => one.element.contains(document.activeElement)) ?? (open.length === 1 ? open[0] : null);
    if (card) card.keys.find(([one]) => one === key)?.[2]();
    else if (open.length) notify("Several things wait here.", "Go into one of them first, or to Approvals.");
  };
  bindKeys(scope, [...keys, ...[["y", "allow once"], ["a", "always"], ["n", "no"], ["e", "edit"]].map(([key, words]) => [key, words, press(key)])]);
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
  for (const { usage } of fold.branches.values()) for (const name of Object.keys(total)) total[name] += usage[name] ?? 0;
  return total;
}

function runActions(run, base, startReplay, takeBack) {
  const download = (as, words) => h("a", { class: "button", href: `${base}/export?as=${as}`, download: "" }, words);
  return [
    run.can.includes("cancel") ? button("Stop", async () => notify((await post(`${base}/cancel`)).run.cancelling ? "It is told to stop." : "Stopped."), { kind: "danger" }) : null,
    run.can.includes("resume") ? button("Resume", () => post(`${base}/resume`), { kind: "primary" }) : null,
    run.undoable ? button(`Undo… (${run.undoable})`, takeBack) : null,
    button("Replay", startReplay, { title: "Step by step" }),
    download("ndjson", "NDJSON"),
    download("markdown", "Markdown"),
  ];
}

/** Where one writes to the run; left alone while it stays the same, for somebody may be writing. */
function showFoot(foot, run, base, sent) {
  const kind = run.can.includes("answer") ? "answer" : run.can.includes("say") ? "say" : "";
  if (foot.dataset.kind === kind) return;
  foot.dataset.kind = kind;
  if (!kind) return fill(foot);
  const asked = run.waits.find((one) => one.kind === "question")?.detail?.text;
  const send = async (text) => {
    await (kind === "answer" ? post(`${base}/answer`, { text }) : post(`${base}/resume`, { say: text }));
    sent();
  };
  fill(
    foot,
    kind === "answer" && asked ? h("div", { class: "asks" }, h("strong", {}, "The agent asks"), textBox(asked, { isOutput: true, lines: 20 })) : null,
    composer({ label: kind === "answer" ? "Your answer" : "What to do next", placeholder: kind === "answer" ? "Your answer" : "Say what to do next", send, words: kind === "answer" ? "Answer" : "Send" }),
  );
}

async function undo(base) {
  const { changes } = await get(`${base}/undo`);
  const take = async (body) => {
    const { run } = await post(`${base}/undo`, body);
    close();
    go(["runs", run.id]);
  };
  const row = (one) =>
    h("li", {}, h("code", {}, one.tool), " ", one.files.map((file) => [h("code", { class: "value" }, file.path), file.lost ? badge("too large to take back", "bad") : null, " "]), h("span", { class: "quiet" }, ago(one.at)), " ", one.undone ? badge("taken back") : button("Take back", () => take({ call: one.call }), { kind: "small" }));
  const close = dialog("Changes of files", h("p", { class: "quiet" }, "The newest first. What would change is shown before it does."), h("ul", { class: "changes" }, changes.map(row)), changes.length ? null : h("p", {}, "There are none."));
}

function messages(base) {
  const box = h("div", { class: "messages" }, h("p", { class: "quiet" }, "…"));
  get(`${base}/messages`).then(({ messages: found, left_out: left }) => {
    const one = ({ role, text, tool_calls: calls, call_id: id }) =>
      h("div", { class: `message ${role}` }, h("span", { class: "who" }, role, id ? h("span", { class: "quiet" }, ` ${id}`) : null), text ? textBox(text, { lines: 16, label: role }) : null, calls?.length ? jsonBox(calls, { lines: 16 }) : null);
    fill(box, left ? h("p", { class: "quiet" }, `${count(left, "older message")} left out`) : null, found.slice(-300).map(one));
  }).catch((error) => fill(box, h("p", { class: "bad" }, error.message)));
  return box;
}

function fileList(files) {
  const link = ({ run, name, size }) => h("li", {}, h("a", { href: `/api/runs/${part(run)}/files/${name.split("/").map(part).join("/")}`, download: "" }, name), ` ${bytes(size)}`);
  return h("ul", {}, files.map(link));
}

function withoutLong({ questions, children, ...run }) {
  return { ...run, created: moment(run.created), updated: moment(run.updated), questions: questions.length, children: children.map((one) => one.id) };
}
