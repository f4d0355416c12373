// A small chart of bars by day. Its numbers are said in its label, and stand in a table beside it.

import { h, svg } from "../dom.js";

const HIGH = 100;
const WIDE = 10; // units of a day

/** `series`: [{name, kind, values}]; later ones stand in front of earlier ones. `show(value)` writes a value. */
export function barChart(title, days, series, show) {
    const most = Math.max(...series.flatMap(({ values }) => values.map((one) => one ?? 0)), 0);
    const width = days.length * WIDE;
    const drawing = svg("svg", {
        viewBox: `0 0 ${width} ${HIGH}`,
        preserveAspectRatio: "none",
        class: "chart-drawing",
        role: "img",
        "aria-label": chartWords(title, days, series, show),
    });
    for (const { kind, values } of series) {
        values.forEach((value, index) => {
            if (!value) return;
            const height = Math.max(1.5, (value / most) * HIGH);
            drawing.append(
                svg("rect", { class: `chart-bar ${kind}`, x: index * WIDE + 1, y: HIGH - height, width: WIDE - 2, height }),
            );
        });
    }
    const names = series.length > 1 ? series.map(({ name, kind }) => [h("span", { class: "series" }, h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), name), " "]) : null;
    return h(
        "figure",
        { class: "chart" },
        h("figcaption", {}, h("strong", {}, title), " ", h("span", { class: "quiet" }, names)),
        h("div", { class: "chart-box" }, h("span", { class: "quiet chart-most", "aria-hidden": "true" }, most ? show(most) : ""), drawing),
        h("div", { class: "chart-days quiet", "aria-hidden": "true" }, h("span", {}, shortDay(days[0])), h("span", {}, "today")),
    );
}

function chartWords(title, days, series, show) {
    const words = series.map(({ name, values }) => {
        const known = values.map((value, index) => ({ value, day: days[index] })).filter(({ value }) => value);
        if (!known.length) return `${name}: none`;
        const top = known.reduce((one, other) => (other.value > one.value ? other : one));
        const last = values.at(-1);
        return `${name}: today ${last ? show(last) : "none"}, highest ${show(top.value)} on ${shortDay(top.day)}`;
    });
    return `${title}, last ${days.length} days. ${words.join(". ")}.`;
}

export const shortDay = (day) => {
    const [year, month, date] = day.split("-").map(Number);
    return new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" }).format(new Date(year, month - 1, date));
};
