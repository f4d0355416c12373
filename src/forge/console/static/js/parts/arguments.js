// Arguments to fill in, as a form or as JSON: whichever was touched last counts.

import { h } from "../dom.js";
import { parseExactly } from "../exact.js";
import { tabs } from "./controls.js";
import { schemaForm } from "./form.js";

/** {element, value(), set(value)} */
export function argumentsEditor(schema, start = {}) {
    let now = start;
    let read = () => now;

    const asForm = () => {
        const form = schemaForm(schema, now);
        read = () => form.value() ?? {};
        return h("div", {}, form.element);
    };
    const asJson = () => {
        now = readOr(now);
        const area = h("textarea", {
            class: "code json",
            rows: String(Math.min(24, JSON.stringify(now, null, 2).split("\n").length + 1)),
            "aria-label": "Arguments as JSON",
        });
        area.spellcheck = false;
        area.value = JSON.stringify(now, null, 2);
        read = () => {
            const found = parseExactly(area.value.trim() || "{}");
            if (typeof found !== "object" || found === null || Array.isArray(found))
                throw new Error("the arguments must be a JSON object");
            return found;
        };
        return area;
    };
    const readOr = (otherwise) => {
        try {
            return read();
        } catch {
            return otherwise;
        }
    };
    const place = h("div", {});
    const build = () => {
        place.textContent = "";
        place.append(
            tabs(
                [
                    ["Form", () => ((now = readOr(now)), asForm())],
                    ["JSON", asJson],
                ],
                "How to write the arguments",
            ),
        );
    };
    build();
    return {
        element: place,
        value: () => (now = read()),
        set(value) {
            now = value;
            read = () => now;
            build();
        },
    };
}
