// Buttons that work once at a time, groups of choices, boxes to write in, dialogs.

import { fill, h } from "../dom.js";
import { notify, report } from "./notices.js";

const working = new WeakSet();

/** While it works it cannot be pressed again, but keeps the focus; what goes wrong is reported. */
export function button(words, work, { kind = "", title = null, label = null, key = null } = {}) {
    const press = async ({ currentTarget: pressed }) => {
        if (working.has(pressed)) return;
        working.add(pressed);
        pressed.setAttribute("aria-disabled", "true");
        try {
            await work();
        } catch (error) {
            report(error);
        } finally {
            working.delete(pressed);
            pressed.removeAttribute("aria-disabled");
        }
    };
    const attributes = { type: "button", class: kind, title, "aria-label": label, "data-key": key, onclick: press };
    return h("button", attributes, words);
}

export function copyButton(text, words = "Copy") {
    return button(
        words,
        async () => {
            await navigator.clipboard.writeText(typeof text === "function" ? await text() : text);
            notify("Copied.");
        },
        { kind: "small" },
    );
}

/** One of several views; `views` is [[name, make]], and only the chosen one is made. */
export function tabs(views, label, chosen = 0) {
    const place = h("div", { class: "tab-place", role: "tabpanel" });
    const buttons = views.map(([name], index) =>
        h(
            "button",
            { type: "button", role: "tab", onclick: () => choose(index), onkeydown: (event) => move(event, index) },
            name,
        ),
    );

    function choose(index) {
        buttons.forEach((one, other) => {
            one.setAttribute("aria-selected", String(other === index));
            one.tabIndex = other === index ? 0 : -1;
        });
        place.setAttribute("aria-label", views[index][0]);
        fill(place, views[index][1]());
    }

    function move(event, index) {
        const last = views.length - 1;
        const next = {
            ArrowRight: index === last ? 0 : index + 1,
            ArrowLeft: index === 0 ? last : index - 1,
            Home: 0,
            End: last,
        }[event.key];
        if (next === undefined) return;
        event.preventDefault();
        choose(next);
        buttons[next].focus();
    }

    choose(chosen);
    return h(
        "div",
        { class: "tabs" },
        h("div", { role: "tablist", class: "segments", "aria-label": label }, buttons),
        place,
    );
}

/** Somewhere to write to the agent: Enter sends, Shift and Enter begins a line. */
export function composer({ label, words = "Send", send, placeholder = "" }) {
    const area = h("textarea", { rows: "1", "aria-label": label, placeholder });
    const sending = button(
        words,
        async () => {
            const text = area.value.trim();
            if (!text) return area.focus();
            area.value = "";
            try {
                await send(text);
            } catch (error) {
                area.value ||= text;
                throw error;
            } finally {
                grow();
            }
            return area.focus();
        },
        { kind: "primary" },
    );
    const grow = () => {
        area.style.height = "auto";
        area.style.height = `${Math.min(area.scrollHeight + 2, 220)}px`;
    };
    area.addEventListener("input", grow);
    area.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        sending.click();
    });
    return h("div", { class: "composer" }, area, sending);
}

/** A dialog in front of the page; Escape closes it. Gives how to close it. */
export function dialog(title, ...content) {
    const close = () => box.close();
    const box = h(
        "dialog",
        { "aria-label": title, onclose: () => box.remove() },
        h(
            "header",
            {},
            h("h2", {}, title),
            h("button", { type: "button", class: "icon", "aria-label": "Close", onclick: close }, "×"),
        ),
        content,
    );
    document.body.append(box);
    box.showModal();
    return close;
}

let hints = 0;

/** An input with its label, and a hint that describes it. */
export function field(label, input, hint = null) {
    const id = hint ? `hint-${(hints += 1)}` : null;
    if (id) input.setAttribute("aria-describedby", id);
    return h(
        "div",
        { class: "field" },
        h("label", { class: "field" }, h("span", { class: "field-name" }, label), input),
        hint ? h("span", { class: "quiet hint", id }, hint) : null,
    );
}
