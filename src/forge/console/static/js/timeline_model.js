// Who worked when, and who waited for whom: lanes and a scale, from folded events. Nothing here knows of the page.

const MOST_ROWS = 4; // of one lane: calls that ran at the same time
const MOST_BARS = 1_500;

/** {lanes: [{label, depth, rows, bars: [{kind, from, to, row, item}]}], sums, from, to}; open ends are `now`. */
export function timeline(fold, now) {
    const lanes = [];
    visit(fold.trunk, 0, lanes, now);
    for (const branch of fold.branches.values())
        if (branch !== fold.trunk && !branch.below) visit(branch, 1, lanes, now);
    const bars = lanes.flatMap((lane) => lane.bars);
    const sums = { model: 0, tool: 0, person: 0, run: 0 };
    for (const bar of bars) sums[bar.kind] += bar.to - bar.from;
    return {
        lanes,
        sums,
        from: bars.reduce((least, bar) => Math.min(least, bar.from), Infinity),
        to: bars.reduce((most, bar) => Math.max(most, bar.to), -Infinity),
        isEmpty: !bars.length,
    };
}

function visit(branch, depth, lanes, now) {
    const end = branch.isOver ? branch.last : now;
    const bars = branch.spans.map((span) => ({ ...span, row: 0, item: null }));
    if (branch.thinking !== null && !branch.isOver)
        bars.push({ kind: "model", from: branch.thinking, to: end, row: 0, item: null });
    const free = [];
    const below = [];
    for (const item of branch.items) {
        if (item.kind !== "call") continue;
        const last = item.spans.at(-1).to ?? end;
        let row = free.findIndex((until) => until <= item.at + 0.001);
        if (row < 0) row = Math.min(free.length, MOST_ROWS - 1);
        free[row] = last;
        for (const span of item.spans) bars.push({ ...span, to: span.to ?? end, row, item });
        below.push(...item.branches);
    }
    lanes.push({ label: branch.agent || "agent", depth, rows: Math.max(1, free.length), bars: thinned(bars) });
    for (const one of below) visit(one, depth + 1, lanes, now);
}

/** Of very many only the longest can be seen. */
function thinned(bars) {
    if (bars.length <= MOST_BARS) return bars;
    return [...bars].sort((one, other) => other.to - other.from - (one.to - one.from)).slice(0, MOST_BARS);
}

/** A function from a time to 0…1, in which long stretches where nobody works are short, and where those are. */
export function scale({ lanes, from, to }) {
    const busy = union(lanes.flatMap((lane) => lane.bars.filter((bar) => bar.kind === "model" || bar.kind === "tool")));
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
