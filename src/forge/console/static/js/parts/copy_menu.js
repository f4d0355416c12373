// Menus: of ways to copy the same thing, with the texts that are copied, and others.

import { me } from "../api.js";
import { h } from "../dom.js";
import { asText } from "../text.js";
import { copyButton } from "./controls.js";

/** `choices`: [[name, text or a function that gives it]]; entries without a name are left out. */
export const copyMenu = (choices, { label = "Copy as" } = {}) =>
    openMenu(label, choices.filter((one) => one?.[0]).map(([name, text]) => copyButton(text, name)));

/** A menu of buttons or links. */
export function openMenu(label, entries) {
    const close = (isFocused) => {
        menu.open = false;
        if (isFocused) menu.firstElementChild.focus();
    };
    const menu = h(
        "details",
        {
            class: "copy-menu",
            onkeydown: (event) => {
                if (event.key !== "Escape" || !menu.open) return;
                event.preventDefault();
                close(true);
            },
            onfocusout: ({ relatedTarget }) => relatedTarget && !menu.contains(relatedTarget) && close(false),
        },
        h("summary", {}, label),
        h("div", { class: "copy-choices" }, entries),
    );
    return menu;
}

/** The address of a part of this page, for other people at this machine. */
export const linkTo = (fragment) => `${location.origin}/${fragment}`;

/** A `forge` command about this project, from any directory. */
export function forgeCommand(...words) {
    return ["forge", ...words, ...(me.options ?? [])].map(shellWord).join(" ");
}

function shellWord(word) {
    return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

export const jsonText = (value) => JSON.stringify(value, null, 2);

/** A Markdown block of code that its content cannot end. */
export function codeBlock(text, kind = "") {
    const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((one) => one.length));
    const fence = "`".repeat(longest + 1);
    return `${fence}${kind}\n${text.replace(/\n$/, "")}\n${fence}`;
}

/** A Markdown table; `rows` are lists of values. */
export function markdownTable(names, rows) {
    const cell = (value) => asText(value, 0).replaceAll("|", "\\|").replaceAll("\n", " ");
    const line = (values) => `| ${values.map(cell).join(" | ")} |`;
    return [line(names), line(names.map(() => "---")), ...rows.map(line)].join("\n");
}

/** A call and its result as Markdown. */
export function callMarkdown({ name, arguments: given, result }) {
    const parts = [`### ${name}`, codeBlock(asText(given ?? {}), "json")];
    if (result) parts.push(result.is_error ? "Error:" : "Result:", codeBlock(String(result.for_llm ?? "")));
    return `${parts.join("\n\n")}\n`;
}
