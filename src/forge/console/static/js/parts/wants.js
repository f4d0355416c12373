// What a call would need, and what the policy says to each of it.

import { h } from "../dom.js";
import { decision } from "./marks.js";

const WORDS = { allow: "The call would run.", ask: "The call would ask a person.", deny: "The call would be denied." };

const TRIED = "The call would run as a trial. The rules judge its effects; what they do not allow asks a person.";

export function wantsTable({ tool, decision: found, wants }) {
    const tried = found === "ask" && wants.every((want) => want.trial || want.optional || want.decision !== "ask");
    return h(
        "div",
        { class: "wants" },
        h("p", {}, decision(tried ? "trial" : found), ` ${tried ? TRIED : (WORDS[found] ?? "")}`),
        wants.length
            ? h(
                  "table",
                  {},
                  h(
                      "thead",
                      {},
                      h(
                          "tr",
                          {},
                          ["Permission", "Target", "Decision", "Reason"].map((name) => h("th", { scope: "col" }, name)),
                      ),
                  ),
                  h("tbody", {}, wants.map((want) => wantRow(want, tool))),
              )
            : h("p", { class: "quiet" }, "The call needs no permission."),
    );
}

function wantRow(want, called) {
    return h(
        "tr",
        {},
        h(
            "td",
            {},
            want.permission || "run",
            want.tool && want.tool !== called ? ` by ${want.tool}` : null,
            want.optional ? h("span", { class: "quiet" }, " (optional)") : null,
        ),
        h("td", {}, h("code", { class: "value" }, want.target || "–")),
        h("td", {}, decision(want.trial ? "trial" : want.decision)),
        h("td", { class: "quiet" }, want.reason || want.rule || want.layer),
    );
}
