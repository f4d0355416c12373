// The single values of a form: texts and files, numbers, choices, and JSON for what has no form.

import { h } from "../dom.js";
import { numberFrom, parseExactly } from "../exact.js";
import { asText } from "../text.js";
import { report } from "./notices.js";

const LARGEST_FILE = 700_000; // bytes: a request may have a million
const LONG = /(^|_)(content|text|command|code|body|patch|prompt|script|sql|stdin|message|source|task)s?$/i;
let numbers = 0;

/** A label around an input. The hint is what the schema says of it. */
function labelled(schema, at, input, more = null) {
    const id = `field-${(numbers += 1)}`;
    input.id = id;
    const hint = schema.description ? h("p", { class: "quiet hint", id: `${id}-hint` }, schema.description) : null;
    if (hint) input.setAttribute("aria-describedby", hint.id);
    if (at.isNeeded && at.name) input.setAttribute("aria-required", "true");
    return h(
        "div",
        { class: "form-field" },
        at.name ? h("label", { for: id }, nameOf(schema, at)) : null,
        h("div", { class: "input-row" }, input, more),
        hint,
    );
}

export function nameOf(schema, at) {
    const type = Array.isArray(schema.type) ? schema.type.join(" or ") : (schema.type ?? "");
    return [
        h("code", {}, at.name),
        at.isNeeded ? h("span", { class: "needed", title: "needed" }, " *") : null,
        h("span", { class: "quiet" }, ` ${type}`),
    ];
}

const placeholder = (schema) => {
    const one = schema.default ?? schema.examples?.[0];
    return one === undefined || one === null || one === "" ? "" : asText(one, 0).slice(0, 80);
};

export function textField(schema, at, value) {
    const isFile = schema.contentEncoding === "base64" || ["byte", "binary"].includes(schema.format);
    const isLong =
        isFile || ((schema.maxLength ?? Infinity) > 200 && (LONG.test(at.name) || String(value ?? "").includes("\n")));
    const input = isLong ? h("textarea", { rows: "2", class: "code" }) : h("input", { type: "text", class: "code" });
    input.spellcheck = false;
    input.autocomplete = "off";
    input.placeholder = placeholder(schema);
    input.value = value ?? "";
    return {
        element: labelled(schema, at, input, isLong ? fileButton(input, isFile) : null),
        value: () => (input.value === "" && !at.isNeeded ? undefined : input.value),
        set: (now) => {
            input.value = now ?? "";
        },
    };
}

/** Puts a file into a text: as text, or as base64 where the schema wants bytes. */
function fileButton(input, asBase64) {
    const picker = h("input", { type: "file", class: "unseen", tabindex: "-1", "aria-hidden": "true" });
    picker.addEventListener("change", async () => {
        const [file] = picker.files;
        if (!file) return;
        try {
            if (file.size > LARGEST_FILE)
                throw new Error(`${file.name} has ${file.size} bytes; ${LARGEST_FILE} can be sent`);
            input.value = asBase64 ? base64(new Uint8Array(await file.arrayBuffer())) : await file.text();
            input.dispatchEvent(new Event("input", { bubbles: true }));
        } catch (error) {
            report(error);
        }
        picker.value = "";
    });
    const words = asBase64 ? "File (base64)…" : "File…";
    return h("span", {}, picker, h("button", { type: "button", class: "small", onclick: () => picker.click() }, words));
}

function base64(bytes) {
    let text = "";
    for (let at = 0; at < bytes.length; at += 8_192) text += String.fromCharCode(...bytes.subarray(at, at + 8_192));
    return btoa(text);
}

export function numberField(schema, at, value, type) {
    const input = h("input", {
        type: "text",
        inputmode: type === "integer" ? "numeric" : "decimal",
        class: "code narrow",
    });
    input.placeholder = placeholder(schema);
    const set = (now) => {
        input.value = now === undefined || now === null ? "" : asText(now);
    };
    set(value);
    return {
        element: labelled(schema, at, input),
        value() {
            const text = input.value.trim();
            if (text === "") return undefined;
            if (!Number.isFinite(Number(text))) throw new Error(`${at.name}: “${text}” is not a number`);
            return numberFrom(text);
        },
        set,
    };
}

export function booleanField(schema, at, value) {
    const choices = ["true", "false"].map((one) => h("option", { value: one }, one));
    const input = h("select", { class: "narrow" }, unsaid(schema, at), choices);
    const set = (now) => {
        input.value = now === undefined || now === null ? "" : String(now);
    };
    set(value);
    return {
        element: labelled(schema, at, input),
        value: () => (input.value === "" ? undefined : input.value === "true"),
        set,
    };
}

/** Nothing is chosen for somebody who has not chosen. */
function unsaid(schema, at) {
    if (schema.default !== undefined) return h("option", { value: "" }, `default (${asText(schema.default, 0)})`);
    return h("option", { value: "" }, at.isNeeded && at.name ? "choose…" : "not said");
}

export function choiceField(schema, at, value) {
    const options = schema.enum.map((one, index) => h("option", { value: String(index) }, asText(one, 0)));
    const input = h("select", {}, unsaid(schema, at), options);
    const set = (now) => {
        const index = schema.enum.findIndex((one) => JSON.stringify(one) === JSON.stringify(now));
        input.value = index < 0 ? "" : String(index);
    };
    set(value);
    return {
        element: labelled(schema, at, input),
        value: () => (input.value === "" ? undefined : schema.enum[Number(input.value)]),
        set,
    };
}

export function fixedField(schema, at) {
    const input = h("input", { type: "text", class: "code", value: asText(schema.const, 0) });
    input.readOnly = true;
    return { element: labelled(schema, at, input), value: () => schema.const, set() {} };
}

export function jsonField(schema, at, value) {
    const input = h("textarea", { rows: "2", class: "code", placeholder: placeholder(schema) || "JSON" });
    const set = (now) => {
        input.value = now === undefined ? "" : JSON.stringify(now, null, 2);
    };
    set(value);
    return {
        element: labelled({ ...schema, type: "JSON" }, at, input),
        value: () => parsed(input.value, at.name),
        set,
    };
}

function parsed(text, name) {
    if (text.trim() === "") return undefined;
    try {
        return parseExactly(text);
    } catch (error) {
        throw new Error(`${name || "the value"} is not JSON: ${error.message}`);
    }
}
