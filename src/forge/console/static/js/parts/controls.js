// Buttons that work once at a time, groups of choices, boxes to write in, dialogs.

import { fill, h } from "../dom.js";
import { notify, report } from "./notices.js";

/** While it works it cannot be pressed again; what goes wrong is reported. */
export function button(words, work, { kind = "", title = null, label = null } = {}) {
    const press = async () => {
        if (element.disabled) return;
        element.disabled = true;
        try {
            await work();
        } catch (error) {
            report(error);
        } finally {
            element.disabled = false;
        }
    };
    const element = h("button", { type: "button", class: kind, title, "aria-label": label, onclick: press }, words);
    return element;
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
    const place = h("div", { class: "tab-place" });
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
        fill(place, views[index][1]());
    }

    function move(event, index) {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const next = (index + step + views.length) % views.length;
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
            await send(text);
            area.value = "";
            grow();
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

export function field(label, input, hint = null) {
    return h(
        "label",
        { class: "field" },
        h("span", { class: "field-name" }, label),
        input,
        hint ? h("span", { class: "quiet" }, hint) : null,
    );
}

/** Call it often; it works once things are quiet. */
export function settled(work, pause = 200) {
    let timer = 0;
    return (...given) => {
        clearTimeout(timer);
        timer = setTimeout(() => work(...given), pause);
    };
}
