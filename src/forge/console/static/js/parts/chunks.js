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
export function chunkedList({ build, estimate = 40, name = "chunks" }) {
    const element = h("div", { class: name });
    let chunks = [];

    function makeAt(index) {
        const chunk = makeChunk(build, estimate);
        chunks.splice(index, 0, chunk);
        element.insertBefore(chunk.element, chunks[index + 1]?.element ?? null);
        observer.observe(chunk.element);
        if (chunks.length === 1) chunk.enter();
        return chunk;
    }

    function append(items) {
        for (const item of items) {
            const last = chunks.at(-1);
            const chunk = last && last.items.length < SIZE ? last : makeAt(chunks.length);
            chunk.insert(item, chunk.items.length);
        }
    }

    function drop(chunk) {
        observer.unobserve(chunk.element);
        chunk.forget();
        chunk.element.remove();
        chunks = chunks.filter((one) => one !== chunk);
    }

    /** Before that item, which stays where it is. */
    function insert(item, next) {
        let at = chunks.findIndex((one) => one.items.includes(next));
        if (at < 0) return append([item]);
        const isFirst = chunks[at].items[0] === next;
        if (isFirst && chunks[at].items.length >= SIZE) makeAt(at);
        const index = chunks[at].items.indexOf(next);
        return chunks[at].insert(item, index < 0 ? 0 : index);
    }

    return {
        element,
        append,
        clear() {
            for (const chunk of chunks) drop(chunk);
        },
        /** These and no others. Whatever is in the list already stays untouched, if their order is the same. */
        keep(items) {
            const wanted = new Set(items);
            for (const chunk of chunks) {
                for (const item of chunk.items.filter((one) => !wanted.has(one))) chunk.remove(item);
                if (!chunk.items.length) drop(chunk);
            }
            const known = new Set(chunks.flatMap((chunk) => chunk.items));
            let next = null;
            for (const item of items.toReversed()) {
                if (!known.has(item)) insert(item, next);
                next = item;
            }
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

function makeChunk(build, estimate) {
    const items = [];
    const element = h("div", { class: "chunk" });
    let isIn = false;

    function enter() {
        if (isIn) return;
        isIn = true;
        items.forEach((_, index) => add(index));
        element.style.height = "";
    }

    function leave() {
        if (!isIn || isInUse(element)) return;
        element.style.height = `${element.offsetHeight}px`;
        isIn = false;
        element.textContent = "";
        forget();
    }

    function add(index) {
        items[index].view = build(items[index]);
        element.insertBefore(items[index].view.element, items[index + 1]?.view?.element ?? null);
    }

    function forget() {
        for (const item of items) forgetOne(item);
    }

    function forgetOne(item) {
        item.view?.close?.();
        item.view = null;
    }

    function insert(item, index) {
        items.splice(index, 0, item);
        changed(() => add(index));
    }

    function remove(item) {
        items.splice(items.indexOf(item), 1);
        changed(() => item.view.element.remove());
        forgetOne(item);
    }

    function changed(draw) {
        if (isIn) draw();
        else element.style.height = `${items.length * estimate}px`;
    }

    const chunk = { items, element, enter, leave, insert, remove, forget };
    element.chunk = chunk;
    return chunk;
}

/** Somebody is at it, has written in it, marked some of it, or opened all of a long text. */
function isInUse(element) {
    const marked = getSelection();
    return (
        element.contains(document.activeElement) ||
        (!marked.isCollapsed && marked.containsNode(element, true)) ||
        element.querySelector("textarea, .text.big") !== null
    );
}
