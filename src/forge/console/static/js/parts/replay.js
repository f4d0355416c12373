// Replays a run step by step.

import { h, setText } from "../dom.js";
import { duration } from "../format.js";
import { button } from "./controls.js";

const PACE = 250; // milliseconds a step

/** `show(step, before)` shows the first `step` entries. */
export function replayBar({ count, label, seconds, show, close }) {
    const slider = h("input", { type: "range", min: "0", max: String(count), value: "0", "aria-label": "Step" });
    const words = h("output", { class: "quiet" });
    const playing = button("Play", () => (timer ? stop() : play()));
    let at = 0;
    let timer = 0;

    function to(step) {
        const now = Math.max(0, Math.min(Number(slider.max), step));
        show(now, at);
        at = now;
        slider.value = String(now);
        slider.setAttribute("aria-valuetext", `step ${now} of ${slider.max}: ${label(now)}`);
        setText(words, `${now} / ${slider.max} · ${label(now)} · ${duration(now ? seconds(now) : 0)}`);
        if (now === Number(slider.max)) stop();
    }

    function play() {
        if (at === Number(slider.max)) to(0);
        timer = setInterval(() => to(at + 1), PACE);
        setText(playing, "Pause");
    }

    function stop() {
        clearInterval(timer);
        timer = 0;
        setText(playing, "Play");
    }

    let asked = 0;
    slider.addEventListener("input", () => {
        asked ||= requestAnimationFrame(() => {
            asked = 0;
            to(Number(slider.value));
        });
    });
    const element = h(
        "div",
        { class: "replay", role: "group", "aria-label": "Replay" },
        button("‹", () => to(at - 1), { label: "Step back" }),
        playing,
        button("›", () => to(at + 1), { label: "Step forward" }),
        slider,
        words,
        button("End replay", close),
    );
    return { element, stop, step: (by) => to(at + by), begin: () => to(1), grown: (now) => (slider.max = String(now)) };
}
