// What a model wrote, as Markdown: headings, lists, tables, code in colours. It is made of elements and texts only; what is
// no Markdown, markup above all, stays the text that it is.

import { h } from "../dom.js";
import { readable, visible } from "../text.js";
import { copyButton, dialog } from "./controls.js";
import { highlighted } from "./highlight.js";

// Each of these takes time in proportion to the line, whatever stands in it.
const FENCE = /^ {0,3}(`{3,20}|~{3,20})([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const BORDER = /^\|?(?:\s*:?-+:?\s*\|)*\s*(?::?-+:?)?$/; // the line below the head of a table
const LONGEST_BORDER = 1_000;
const DEEPEST = 8; // lists in lists
const MOST_COLUMNS = 30;

/** Elements of a text. */
export function markdown(text) {
    return blocks(readable(text).trimEnd().split("\n"), 0);
}

function blocks(lines, depth) {
    const made = [];
    let at = 0;
    while (at < lines.length) {
        const [element, next] = block(lines, at, depth);
        if (element) made.push(element);
        at = next;
    }
    return made;
}

/** The element that begins at that line, and the line after it. */
function block(lines, at, depth) {
    const line = lines[at];
    if (!line.trim()) return [null, at + 1];
    const fence = FENCE.exec(line);
    if (fence) return code(lines, at, fence);
    const heading = HEADING.exec(line);
    if (heading) return [title(heading), at + 1];
    if (RULE.test(line)) return [h("hr", {}), at + 1];
    if (isTable(lines, at)) return table(lines, at);
    if (QUOTE.test(line) && depth < DEEPEST) return quote(lines, at, depth);
    if (ITEM.test(line) && depth < DEEPEST) return list(lines, at, depth);
    let end = at + 1;
    while (end < lines.length && !begins(lines, end)) end += 1;
    return [h("p", {}, inline(lines.slice(at, end).join("\n"))), end];
}

/** Whether a paragraph ends before this line. */
function begins(lines, at) {
    const line = lines[at];
    return !line.trim() || [FENCE, HEADING, RULE, QUOTE, ITEM].some((one) => one.test(line)) || isTable(lines, at);
}

function isTable(lines, at) {
    const border = (lines[at + 1] ?? "").trim();
    return lines[at].includes("|") && border.includes("-") && border.length < LONGEST_BORDER && BORDER.test(border);
}

/** All of one level: those of the page itself are above them. */
function title([, marks, words]) {
    const level = { role: "heading", "aria-level": "3" };
    return h("p", { class: `heading level-${marks.length}`, ...level }, inline(words.replace(/\s#+\s*$/, "")));
}

function code(lines, at, [, marks, info]) {
    let end = at + 1;
    const closes = (line) => line.trim().startsWith(marks) && line.trim().replaceAll(marks[0], "") === "";
    while (end < lines.length && !closes(lines[end])) end += 1;
    const language = /^[\w+#.-]{1,30}/.exec(info.trim())?.[0] ?? "";
    const label = language ? `Code, ${language}` : "Code";
    const box = h("pre", { class: "text", tabindex: "0", role: "group", "aria-label": label });
    box.append(...highlighted(lines.slice(at + 1, end).join("\n"), language));
    return [box, end + 1];
}

function quote(lines, at, depth) {
    let end = at;
    while (end < lines.length && QUOTE.test(lines[end])) end += 1;
    const inside = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
    return [h("blockquote", {}, blocks(inside, depth + 1)), end];
}

/** Items of one list: lines that are indented further belong to the item above them. */
function list(lines, at, depth) {
    const [, indent, mark] = ITEM.exec(lines[at]);
    const isNumbered = /\d/.test(mark);
    const items = [];
    let end = at;
    while (end < lines.length) {
        const line = lines[end];
        const found = ITEM.exec(line);
        if (found && found[1].length <= indent.length + 1) {
            if (found[1].length < indent.length || /\d/.test(found[2]) !== isNumbered || RULE.test(line)) break;
            items.push([found[3]]);
        } else if (!line.trim()) {
            const after = lines[end + 1] ?? "";
            if (!ITEM.test(after) && !/^\s{2,}\S/.test(after)) break;
            items.at(-1).push("");
        } else if (found || /^\s{2,}/.test(line) || !begins(lines, end)) {
            items.at(-1).push(line.slice(Math.min(line.search(/\S/), indent.length + mark.length + 1)));
        } else break;
        end += 1;
    }
    const start = isNumbered && parseInt(mark, 10) !== 1 ? String(parseInt(mark, 10)) : null;
    return [h(isNumbered ? "ol" : "ul", { start }, items.map((one) => h("li", {}, item(one, depth)))), end];
}

function item(lines, depth) {
    const made = blocks(lines, depth + 1);
    const [first] = made;
    return first?.nodeName === "P" && !first.className ? [[...first.childNodes], made.slice(1)] : made;
}

function table(lines, at) {
    const aligned = cells(lines[at + 1]).map((one) => (one.endsWith(":") ? (one.startsWith(":") ? "middle" : "end") : ""));
    const names = cells(lines[at]);
    let end = at + 2;
    while (end < lines.length && lines[end].includes("|") && lines[end].trim()) end += 1;
    const row = (tag, found) =>
        h(
            "tr",
            {},
            names.map((_, index) => h(tag, { class: aligned[index] || null, scope: tag === "th" ? "col" : null }, inline(found[index] ?? ""))),
        );
    const made = h(
        "div",
        { class: "table-box", tabindex: "0", role: "group", "aria-label": "Table" },
        h("table", {}, h("thead", {}, row("th", names)), h("tbody", {}, lines.slice(at + 2, end).map((line) => row("td", cells(line))))),
    );
    return [made, end];
}

/** The cells of a row; `\|` and a bar in code are no borders. */
function cells(line) {
    const found = line.trim().replace(/^\|/, "").match(/(?:\\.|`[^`]*`|[^|\\])+|\|/g) ?? [];
    const made = [""];
    for (const piece of found) {
        if (piece === "|") made.push("");
        else made[made.length - 1] += piece;
    }
    if (made.length > 1 && !made.at(-1).trim()) made.pop();
    return made.slice(0, MOST_COLUMNS).map((one) => one.trim().replaceAll("\\|", "|"));
}

const INLINE = new RegExp(
    [
        /(?<ticks>`{1,5})(?<code>[^`\n]|[^`\n][^\n]{0,2000}?[^`\n])\k<ticks>(?!`)/,
        /\*\*(?<strong>[^\s*](?:[^*\n]*[^\s*])?)\*\*/,
        /(?<![\w*])(?<mark>[*_])(?<emphasis>[^\s*_](?:[^*_\n]*[^\s*_])?)\k<mark>(?![\w*])/,
        /!?\[(?<words>[^[\]\n]{0,500})\]\((?<target>[^()\s]{1,2000})\)/,
        /(?<bare>https?:\/\/[^\s<>"'`|()[\]{}]{1,2000}[^\s<>"'`|()[\]{}.,;:!?*_])/,
    ]
        .map((one) => one.source)
        .join("|"),
    "g",
);

function inline(text) {
    const made = [];
    let last = 0;
    for (const found of text.matchAll(INLINE)) {
        made.push(plain(text.slice(last, found.index)), inlineOf(found));
        last = found.index + found[0].length;
    }
    made.push(plain(text.slice(last)));
    return made;
}

function inlineOf({ 0: whole, groups }) {
    const { code: codeText, strong, emphasis, words, target, bare } = groups;
    if (codeText !== undefined) return raw(h("code", {}), codeText.replace(/^ (.*[^ ].*) $/, "$1"));
    if (strong !== undefined) return h("strong", {}, inline(strong));
    if (emphasis !== undefined) return h("em", {}, inline(emphasis));
    const address = checkedAddress(bare ?? target);
    if (!address || whole.startsWith("!")) return plain(whole); // a picture of elsewhere is not loaded
    return bare ? outside(bare, address) : [outside(words || target, address), h("span", { class: "quiet" }, ` (${address.host})`)];
}

/** Only an address of the web that says where it leads; null for anything else. */
function checkedAddress(text) {
    try {
        const found = new URL(text);
        const isPlain = ["http:", "https:"].includes(found.protocol) && !found.username && !found.password;
        return isPlain && /^https?:\/\//i.test(text) ? found : null;
    } catch {
        return null;
    }
}

/** A link that a model wrote: it says where it leads before anything is asked for there, for an address can carry data away. */
function outside(words, { href }) {
    const show = () => {
        const link = h("a", { class: "button" }, "Open in a new tab");
        link.setAttribute("href", href);
        link.setAttribute("target", "_blank");
        link.setAttribute("rel", "noopener noreferrer nofollow");
        const close = dialog(
            "Open this link?",
            h("p", {}, "This address was written by a model or a tool. All of it is sent to its server:"),
            h("pre", { class: "text", tabindex: "0" }, visible(href)),
            h("div", { class: "actions" }, link, copyButton(href, "Copy address")),
        );
        link.addEventListener("click", () => close());
    };
    return raw(h("button", { type: "button", class: "link", title: href, onclick: show }), words);
}

const plain = (text) => document.createTextNode(text.replace(/\\([\\`*_{}[\]()#+.!|<>~-])/g, "$1"));

/** What `readable` has gone over already. */
function raw(element, text) {
    element.append(document.createTextNode(text));
    return element;
}
