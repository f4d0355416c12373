// The keys of a run's page: its own, and those that answer its open question.

import { bindKeys } from "../keys.js";
import { notify } from "../parts/notices.js";

const ANSWERS = [
    ["y", "allow once"],
    ["a", "allow always"],
    ["n", "deny"],
    ["e", "edit"],
];

/** `cards`: the open questions that are shown. */
export function bindRunKeys(scope, keys, cards) {
    const press = (key) => () => {
        const open = [...cards.values()].filter((card) => card.question.status === "open");
        const card =
            open.find((one) => one.element.contains(document.activeElement)) ?? (open.length === 1 ? open[0] : null);
        if (card) card.keys.find(([one]) => one === key)?.[2]();
        else if (open.length) notify("Several questions are open here.", "Focus one of them first, or open Approvals.");
    };
    bindKeys(scope, [...keys, ...ANSWERS.map(([key, words]) => [key, words, press(key)])]);
}
