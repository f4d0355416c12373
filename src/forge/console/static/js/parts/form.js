// A form made from a JSON Schema: objects in objects, lists, choices, files; what no form can say is written as JSON.

import { fill, h } from "../dom.js";
import { isNumber } from "../exact.js";
import { booleanField, choiceField, fixedField, jsonField, nameOf, numberField, textField } from "./form_fields.js";

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
