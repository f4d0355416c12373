// A long list of which only what is near the window is in the page; the rest is empty space of the right height.

import { h } from "../dom.js";

const SIZE = 20; // items of one piece

const observer = new IntersectionObserver(
    (seen) => {
        for (const { target, isIntersecting } of seen) target.chunk?.[isIntersecting ? "enter" : "leave"]();
    },
    { rootMargin: "1200px 0px" },
);

/** `build(item)` gives {element, update?}; while an item is in the page that is its `view`. */
export function chunkedList({ build, estimate = 40, tag = "div", role = null, label = null, name = "chunks" }) {
    const element = h(tag, { class: name, role, "aria-label": label });
    let chunks = [];

    function append(items) {
        for (const item of items) {
            let chunk = chunks.at(-1);
            if (!chunk || chunk.items.length >= SIZE) {
                chunk = makeChunk(build, estimate, role);
                chunks.push(chunk);
                element.append(chunk.element);
                observer.observe(chunk.element);
                if (chunks.length === 1) chunk.enter();
            }
            chunk.push(item);
        }
    }

    function clear() {
        for (const chunk of chunks) {
            observer.unobserve(chunk.element);
            chunk.forget();
        }
        chunks = [];
        element.textContent = "";
    }

    return {
        element,
        append,
        clear,
        reset(items) {
            clear();
            append(items);
        },
        /** Have it in the page and in sight. */
        show(item, block = "center") {
            const chunk = chunks.find((one) => one.items.includes(item));
            if (!chunk) return null;
            chunk.enter();
            item.view.element.scrollIntoView({ block });
            return item.view.element;
        },
    };
}

/** Have what is in sight now, and not only when the browser next looks. */
export function settle() {
    for (const { target, isIntersecting } of observer.takeRecords())
        target.chunk?.[isIntersecting ? "enter" : "leave"]();
}

function makeChunk(build, estimate, role) {
    const items = [];
    const element = h("div", { class: "chunk", role: role ? "presentation" : null });
    let isIn = false;

    function enter() {
        if (isIn) return;
        isIn = true;
        for (const item of items) add(item);
        element.style.height = "";
    }

    function leave() {
        if (!isIn || element.contains(document.activeElement)) return;
        element.style.height = `${element.offsetHeight}px`;
        isIn = false;
        element.textContent = "";
        forget();
    }

    function add(item) {
        item.view = build(item);
        element.append(item.view.element);
    }

    function forget() {
        for (const item of items) {
            item.view?.close?.();
            item.view = null;
        }
    }

    function push(item) {
        items.push(item);
        if (isIn) add(item);
        else element.style.height = `${items.length * estimate}px`;
    }

    const chunk = { items, element, enter, leave, push, forget };
    element.chunk = chunk;
    return chunk;
}
