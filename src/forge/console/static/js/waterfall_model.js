// The steps of a run as rows with times, and scales for them, from folded events. Nothing here knows of the page.

const MOST_TICKS = 6;
const CONTINUED = 0.05; // seconds between two spans of the model that are shown as one
const STEPS = [
    ...[0.001, 0.01, 0.1, 1].flatMap((one) => [one, 2 * one, 5 * one]),
    ...[10, 20, 30, 60, 120, 300, 600, 900, 1_800],
    ...[3_600, 7_200, 14_400, 21_600, 43_200, 86_400],
];

/** {rows: [{key, label, depth, kind, item, spans: [{kind, from, to}]}], sums, from, to}; open ends are `now`. */
export function waterfall(fold, now) {
    const rows = [];
    visit(fold.trunk, 0, rows, now);
    for (const branch of fold.branches.values())
        if (branch !== fold.trunk && !branch.below) visit(branch, 1, rows, now);
    const sums = { model: 0, tool: 0, person: 0, run: 0 };
    let from = Infinity;
    let to = -Infinity;
    for (const { spans } of rows) {
        for (const span of spans) {
            sums[span.kind] += span.to - span.from;
            from = Math.min(from, span.from);
            to = Math.max(to, span.to);
        }
    }
    return { rows, sums, from, to, isEmpty: from === Infinity };
}

/** The turns of the model and the calls of one agent by their beginning; sub-agents come after their call. */
function visit(branch, depth, rows, now) {
    const end = branch.isOver ? branch.last : now;
    if (depth) rows.push({ key: `agent ${branch.key}`, label: branch.agent || "agent", depth, kind: "agent", item: null, spans: [] });
    const turns = branch.spans.map((span) => ({ span, at: span.from }));
    if (branch.thinking !== null && !branch.isOver)
        turns.push({ span: { kind: "model", from: branch.thinking, to: end }, at: branch.thinking });
    const calls = branch.items.filter((item) => item.kind === "call").map((item) => ({ item, at: item.at }));
    const steps = [...turns, ...calls].sort((one, other) => one.at - other.at);
    for (const { span, item, at } of steps) {
        if (span) {
            const [before] = rows.at(-1)?.kind === "model" ? rows.at(-1).spans : [];
            if (before && span.from - before.to < CONTINUED) {
                before.to = Math.max(before.to, span.to);
                continue;
            }
            rows.push({ key: `${branch.key} ${at}`, label: "model", depth, kind: "model", item: null, spans: [{ ...span }] });
            continue;
        }
        const spans = item.spans.map((one) => ({ ...one, to: one.to ?? end }));
        rows.push({ key: `${branch.key} ${item.id}`, label: item.name, depth, kind: "call", item, spans });
        for (const one of item.branches) visit(one, depth + 1, rows, now);
    }
}

/** True proportions: a function from a time to 0…1, and the marks of the axis. */
export function linearScale({ from, to }) {
    const whole = to - from || 1;
    const step = STEPS.find((one) => whole / one <= MOST_TICKS) ?? 86_400 * Math.ceil(whole / 86_400 / MOST_TICKS);
    const ticks = [];
    for (let at = 0; at <= whole; at += step) ticks.push({ at: at / whole, seconds: at });
    return { place: (time) => (time - from) / whole, ticks, breaks: [] };
}

/** The same with long waits shortened; `breaks` are the shortened places. */
export function shortenedScale({ rows, from, to }) {
    const busy = union(rows.flatMap((row) => row.spans.filter(({ kind }) => kind === "model" || kind === "tool")));
    const total = busy.reduce((sum, [start, end]) => sum + end - start, 0);
    const longest = Math.max(total * 0.15, 0.5);
    const points = [[from, 0]];
    const breaks = [];
    let at = 0;
    let last = from;
    for (const [start, end] of [...busy, [to, to]]) {
        const gap = Math.max(0, start - last);
        if (gap > longest * 1.5) breaks.push({ at: at + longest / 2, seconds: gap });
        at += gap > longest * 1.5 ? longest : gap;
        points.push([start, at]);
        at += end - start;
        points.push([end, at]);
        last = end;
    }
    const whole = at || 1;
    return {
        place: (time) => between(points, time) / whole,
        ticks: [],
        breaks: breaks.map((one) => ({ ...one, at: one.at / whole })),
    };
}

function between(points, time) {
    let low = 0;
    let high = points.length - 1;
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (points[middle][0] <= time) low = middle;
        else high = middle;
    }
    const [[start, first], [end, second]] = [points[low], points[high]];
    const share = end > start ? Math.min(1, Math.max(0, (time - start) / (end - start))) : 1;
    return first + share * (second - first);
}

function union(bars) {
    const found = [];
    for (const { from, to } of [...bars].sort((one, other) => one.from - other.from)) {
        const last = found.at(-1);
        if (last && from <= last[1]) last[1] = Math.max(last[1], to);
        else found.push([from, to]);
    }
    return found;
}
