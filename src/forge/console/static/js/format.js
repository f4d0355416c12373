// Times, durations and amounts as people read them.

import { h } from "./dom.js";

const amounts = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const minute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

export const amount = (number) => amounts.format(number ?? 0);

/** 12,340 as 12.3k. */
export function short(number) {
    const value = number ?? 0;
    if (value < 1_000) return String(value);
    if (value < 999_500) return `${(value / 1_000).toFixed(value < 99_950 ? 1 : 0)}k`;
    return `${(value / 1_000_000).toFixed(1)}M`;
}

export function bytes(number) {
    if (number < 1_000) return `${number} B`;
    if (number < 999_500) return `${(number / 1_000).toFixed(number < 9_950 ? 1 : 0)} kB`;
    return `${(number / 1_000_000).toFixed(1)} MB`;
}

export function duration(seconds) {
    if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
    if (seconds < 0.9995) return `${Math.max(0, Math.round(seconds * 1_000))} ms`;
    if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
    const whole = Math.round(seconds);
    if (whole < 3_600) return `${Math.floor(whole / 60)} m ${whole % 60} s`;
    if (whole < 86_400) return `${Math.floor(whole / 3_600)} h ${Math.floor((whole % 3_600) / 60)} m`;
    return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3_600)} h`;
}

export const count = (number, one, many = `${one}s`) => `${amount(number)} ${number === 1 ? one : many}`;
export const cost = (value) => (value === null || value === undefined ? "" : `$${value.toFixed(value < 0.1 ? 4 : 2)}`);
export const timeOfDay = (at) => clock.format(at * 1_000);

export function moment(at) {
    if (!at) return "";
    const then = new Date(at * 1_000);
    return `${day.format(then)} ${clock.format(then)}`;
}

/** Seconds from what the server sent: a number, or a date as text. */
export function instant(value) {
    if (typeof value === "number") return value;
    const parsed = Date.parse(value ?? "");
    return Number.isNaN(parsed) ? 0 : parsed / 1_000;
}

/** How long ago, kept right by `keepTimes`; the whole date is its title. */
export function ago(at) {
    return at ? h("time", { class: "ago", "data-at": at, title: moment(at) }, agoText(at)) : h("span", {}, "–");
}

/** How long something has lasted so far. */
export function since(at) {
    return h("time", { class: "ago", "data-since": at, title: `since ${moment(at)}` }, coarse(Date.now() / 1_000 - at));
}

export function keepTimes() {
    setInterval(() => {
        for (const element of document.querySelectorAll("time[data-at], time[data-since]")) {
            const { at, since: from } = element.dataset;
            const text = at ? agoText(Number(at)) : coarse(Date.now() / 1_000 - Number(from));
            if (element.textContent !== text) element.textContent = text;
        }
    }, 1_000);
}

function agoText(at) {
    const seconds = Date.now() / 1_000 - at;
    if (seconds < -1) return `in ${coarse(-seconds)}`;
    if (seconds < 5) return "now";
    if (seconds < 86_400) return `${coarse(seconds)} ago`;
    const then = new Date(at * 1_000);
    return seconds < 300 * 86_400
        ? `${day.format(then).replace(/ \d{4}$/, "")} ${minute.format(then)}`
        : day.format(then);
}

function coarse(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    if (whole < 60) return `${whole} s`;
    if (whole < 3_600) return `${Math.floor(whole / 60)} min`;
    if (whole < 2 * 86_400) return `${Math.floor(whole / 3_600)} h`;
    return `${Math.floor(whole / 86_400)} d`;
}
