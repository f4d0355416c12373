// A form made from a JSON Schema: objects in objects, lists, choices, files; what no form can say is written as JSON.

import { fill, h } from "../dom.js";
import { isNumber, numberFrom, parseExactly } from "../exact.js";
import { asText } from "../text.js";
import { report } from "./notices.js";

const DEEPEST = 8;

/** {element, value(), set(value)}; `value()` throws where something written is no JSON or no number. */
export function schemaForm(schema, value = undefined) {
    const root = schema ?? {};
    return makeField(root, { root, depth: 0, name: "", isNeeded: true }, value);
}

function makeField(given, at, value) {
    const schema = resolved(given, at.root);
    if (at.depth > DEEPEST) return jsonField(schema, at, value);
    if (schema.const !== undefined) return fixedField(schema, at);
    if (Array.isArray(schema.enum)) return choiceField(schema, at, value);
    const variants = schema.anyOf ?? schema.oneOf;
    if (variants) return variantField(schema, variants, at, value);
    const type = Array.isArray(schema.type) ? schema.type.find((one) => one !== "null") : schema.type;
    if (type === "object" || schema.properties) return objectField(schema, at, value);
    if (type === "array" && !Array.isArray(schema.items)) return listField(schema, at, value);
    if (type === "boolean") return booleanField(schema, at, value);
    if (type === "integer" || type === "number") return numberField(schema, at, value, type);
    if (type === "string") return textField(schema, at, value);
    return jsonField(schema, at, value);
}

/** What `$ref` points to, with what stands beside it. */
function resolved(schema, root, left = 20) {
    if (typeof schema !== "object" || schema === null) return {};
    const { $ref: reference, allOf, ...own } = schema;
    let found = own;
    if (typeof reference === "string" && left > 0) {
        const path = reference.replace(/^#\/?/, "").split("/").filter(Boolean);
        const target = path.reduce((here, key) => here?.[key.replaceAll("~1", "/").replaceAll("~0", "~")], root);
        found = { ...resolved(target, root, left - 1), ...own };
    }
    for (const one of Array.isArray(allOf) && left > 0 ? allOf : []) {
        const more = resolved(one, root, left - 1);
        found = { ...more, ...found, properties: { ...more.properties, ...found.properties } };
    }
    return found;
}

const inner = (at, name, isNeeded) => ({ root: at.root, depth: at.depth + 1, name, isNeeded });

function variantField(schema, variants, at, value) {
    const { anyOf, oneOf, ...shared } = schema;
    const all = variants.map((one) => resolved(one, at.root));
    const real = all.filter((one) => one.type !== "null");
    if (real.length === 1)
        return makeField(
            { ...real[0], ...pick(shared) },
            { ...at, isNeeded: at.isNeeded && real.length === all.length },
            value,
        );
    if (real.every((one) => one.const !== undefined))
        return choiceField({ ...pick(shared), enum: real.map((one) => one.const) }, at, value);
    const words = real.map((one, index) => one.title ?? one.type ?? `form ${index + 1}`);
    const select = h(
        "select",
        { class: "narrow", "aria-label": `Form of ${at.name}` },
        words.map((text, index) => h("option", { value: String(index) }, text)),
    );
    const place = h("div", {});
    let field = null;
    const choose = (now) => {
        field = makeField({ ...real[Number(select.value)], ...pick(shared) }, inner(at, at.name, at.isNeeded), now);
        fill(place, field.element);
    };
    const set = (now) => {
        const index = real.findIndex((one) => fits(one, now));
        select.value = String(Math.max(0, index));
        choose(now);
    };
    select.addEventListener("change", () => choose(undefined));
    set(value);
    return { element: h("div", { class: "variant" }, select, place), value: () => field.value(), set };
}

const pick = ({ description, default: usual }) => ({
    ...(description && { description }),
    ...(usual !== undefined && { default: usual }),
});

function fits(schema, value) {
    const type =
        value === null ? "null" : Array.isArray(value) ? "array" : isNumber(value) ? "number" : typeof value;
    const wanted = schema.type ?? (schema.properties ? "object" : undefined);
    return wanted === type || (type === "number" && wanted === "integer");
}

function objectField(schema, at, value) {
    const needed = new Set(schema.required ?? []);
    const given = typeof value === "object" && value !== null ? value : {};
    const names = Object.keys(schema.properties ?? {}).sort((one, other) => needed.has(other) - needed.has(one));
    const fields = names.map((name) => [
        name,
        makeField(schema.properties[name], inner(at, name, needed.has(name)), given[name]),
    ]);
    const isOpen =
        schema.additionalProperties !== false && (!names.length || typeof schema.additionalProperties === "object");
    const more = isOpen
        ? jsonField(
              { description: "Further values, as a JSON object." },
              inner(at, names.length ? "more" : at.name || "values", false),
              rest(given, names),
          )
        : null;
    const content = [fields.map(([, field]) => field.element), more?.element];
    const element =
        at.depth === 0
            ? h("div", { class: "form" }, content)
            : h(
                  "fieldset",
                  {},
                  h("legend", {}, nameOf(schema, at)),
                  schema.description ? h("p", { class: "quiet hint" }, schema.description) : null,
                  content,
              );
    return {
        element,
        value() {
            const found = { ...more?.value() };
            for (const [name, field] of fields) {
                const one = field.value();
                if (one !== undefined) found[name] = one;
            }
            return at.depth > 0 && !at.isNeeded && !Object.keys(found).length ? undefined : found;
        },
        set(now) {
            for (const [name, field] of fields) field.set(now?.[name]);
            more?.set(rest(now ?? {}, names));
        },
    };
}

function rest(values, names) {
    const left = Object.entries(values).filter(([name]) => !names.includes(name));
    return left.length ? Object.fromEntries(left) : undefined;
}

function listField(schema, at, value) {
    const rows = h("div", { class: "list-rows" });
    let fields = [];
    let number = 0;
    const add = (one) => {
        const name = `${at.name || "item"} ${(number += 1)}`;
        const field = makeField(schema.items ?? {}, inner(at, name, true), one);
        const remove = () => {
            fields = fields.filter((other) => other !== field);
            row.remove();
            changed();
            adding.focus();
        };
        const row = h(
            "div",
            { class: "list-row" },
            field.element,
            h(
                "button",
                { type: "button", class: "icon", "aria-label": `Remove ${name}`, title: "Remove", onclick: remove },
                "×",
            ),
        );
        fields.push(field);
        rows.append(row);
        return row;
    };
    const more = () => {
        add(undefined).querySelector("input, textarea, select, button")?.focus();
        changed();
    };
    const changed = () => rows.dispatchEvent(new Event("input", { bubbles: true }));
    const set = (now) => {
        fields = [];
        number = 0;
        rows.textContent = "";
        for (const one of Array.isArray(now) ? now : []) add(one);
    };
    const label = `Add to ${at.name || "the list"}`;
    const adding = h("button", { type: "button", class: "small", "aria-label": label, onclick: more }, "+ Add");
    set(value);
    const hint = schema.description ? h("p", { class: "quiet hint" }, schema.description) : null;
    return {
        element: h("fieldset", {}, h("legend", {}, nameOf(schema, at)), hint, rows, adding),
        value: () =>
            fields.length || at.isNeeded
                ? fields.map((one) => one.value()).filter((one) => one !== undefined)
                : undefined,
        set,
    };
}

// The single values of a form: texts and files, numbers, choices, and JSON for what has no form.

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

function nameOf(schema, at) {
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

function textField(schema, at, value) {
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

function numberField(schema, at, value, type) {
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

function booleanField(schema, at, value) {
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

function choiceField(schema, at, value) {
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

function fixedField(schema, at) {
    const input = h("input", { type: "text", class: "code", value: asText(schema.const, 0) });
    input.readOnly = true;
    return { element: labelled(schema, at, input), value: () => schema.const, set() {} };
}

function jsonField(schema, at, value) {
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
