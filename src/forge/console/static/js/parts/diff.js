// A difference between two texts, its lines in colours, and values of any kind.

import { h } from "../dom.js";
import { asText, visible } from "../text.js";
import { textBox, withMarks } from "./text_view.js";

const MOST_ROWS = 200;

export const isDifference = (text) => /^(--- |\+\+\+ |@@ |diff )/m.test(text.slice(0, 20_000)) && /^[+-]/m.test(text);

/** The text, in colours where it is a difference. */
export function differenceBox(text, options = {}) {
    return textBox(text, {
        lines: 80,
        label: "Difference",
        ...options,
        kindOf: isDifference(text) ? kindOfLine : null,
    });
}

function kindOfLine(line) {
    if (line.startsWith("@@")) return "hunk";
    if (/^(---|\+\+\+|diff |index )/.test(line)) return "file";
    if (line.startsWith("+")) return "added";
    return line.startsWith("-") ? "removed" : "";
}

/** Values that are not what they would be without saying so, and in one line those that are. */
export function givenValues(values, schema, options) {
    const usual = Object.entries(values ?? {}).filter(([name, value]) => isUsual(value, schema?.properties?.[name]));
    const given = Object.fromEntries(
        Object.entries(values ?? {}).filter(([name]) => !usual.some(([other]) => other === name)),
    );
    if (!usual.length) return valuesList(given, options);
    const words = usual.map(([name, value]) => [
        h("span", {}, h("code", {}, name), " ", value === "" ? "(empty)" : asText(value, 0)),
        " ",
    ]);
    return h(
        "div",
        {},
        Object.keys(given).length ? valuesList(given, options) : null,
        h("p", { class: "quiet usual" }, "Default values: ", words),
    );
}

const isUsual = (value, schema) =>
    schema?.default !== undefined &&
    JSON.stringify(value) === JSON.stringify(schema.default) &&
    asText(value, 0).length < 80;

/** Named values, each as it is: texts as text, the rest as JSON. */
export function valuesList(values, { lines = 12, whole = null } = {}) {
    if (typeof values !== "object" || values === null)
        return textBox(asText(values), { lines, whole, label: "Arguments" });
    const entries = Object.entries(values);
    if (!entries.length) return h("p", { class: "quiet" }, "No arguments.");
    const row = (name, value) => [h("dt", {}, name), h("dd", {}, valueOf(name, value, lines, whole))];
    const more = Object.fromEntries(entries.slice(MOST_ROWS));
    return h(
        "dl",
        { class: "values" },
        entries.slice(0, MOST_ROWS).map(([name, value]) => row(name, value)),
        entries.length > MOST_ROWS ? row(`${entries.length - MOST_ROWS} more`, more) : null,
    );
}

function valueOf(name, value, lines, whole) {
    const text = asText(value);
    if (text === "") return h("span", { class: "quiet" }, "(empty)");
    if (text.length <= 120 && !text.includes("\n")) return h("code", { class: "value" }, withMarks(visible(text)));
    return textBox(text, { lines, whole, label: name });
}

export const jsonBox = (value, options = {}) => textBox(asText(value), { lines: 30, label: "JSON", ...options });
