// What a call would need, and what the policy says to each of it.

import { h } from "../dom.js";
import { decision } from "./marks.js";

const WORDS = { allow: "It would run.", ask: "It would ask a person.", deny: "It would be refused." };

export function wantsTable({ decision: found, wants }) {
    return h(
        "div",
        { class: "wants" },
        h("p", {}, decision(found), ` ${WORDS[found] ?? ""}`),
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
                          ["Needs", "Target", "Says", "Because"].map((name) => h("th", { scope: "col" }, name)),
                      ),
                  ),
                  h("tbody", {}, wants.map(wantRow)),
              )
            : h("p", { class: "quiet" }, "It needs no permission."),
    );
}

function wantRow(want) {
    return h(
        "tr",
        {},
        h("td", {}, want.permission || "run", want.optional ? h("span", { class: "quiet" }, " maybe") : null),
        h("td", {}, h("code", { class: "value" }, want.target || "–")),
        h("td", {}, decision(want.decision)),
        h("td", { class: "quiet" }, want.reason || want.rule || want.layer),
    );
}
