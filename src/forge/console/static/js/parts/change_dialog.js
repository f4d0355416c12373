// A dialog that shows a change before it makes it: fields, a preview that follows them, and the button.

import { Refusal } from "../api.js";
import { fill, h } from "../dom.js";
import { settled } from "../pace.js";
import { makeScope } from "../router.js";
import { button, dialog } from "./controls.js";
import { report } from "./notices.js";

const PAUSE = 250; // milliseconds without a key before the preview is asked for

/**
 * `isComplete()`: the fields can be previewed. `preview()` gives what the server says; `show(told)` shows it.
 * `make(told)` makes the change. `confirm(told)` gives what a person must agree to first, or null.
 */
export function changeDialog(title, { fields, words, isComplete, preview, show, make, confirm = () => null }) {
    const scope = makeScope();
    const shown = h("div", { class: "change-preview", "aria-live": "polite" });
    const question = h("div", { role: "alert" });
    let told = null;
    let latest = 0;

    async function look() {
        const mine = (latest += 1);
        told = null;
        fill(question);
        if (!isComplete()) {
            fill(shown);
            return setMaking();
        }
        try {
            const found = await preview();
            if (mine !== latest || !scope.isOpen()) return null;
            told = found.problem ? null : found;
            fill(shown, show(found));
        } catch (error) {
            if (!(error instanceof Refusal)) report(error);
            else if (mine === latest) fill(shown, h("p", { class: "bad" }, error.message), h("p", {}, error.next));
        }
        return setMaking();
    }

    const finish = async () => {
        try {
            await make(told);
            close();
        } catch (error) {
            if (!(error instanceof Refusal)) throw error;
            fill(question, h("p", { class: "bad" }, error.message), h("p", {}, error.next));
        }
    };
    const press = async () => {
        if (!told) return;
        const asked = confirm(told);
        if (!asked) return finish();
        const yes = button(asked.yes, finish, { kind: "danger" });
        fill(question, h("div", { class: "hint-line" }, asked.content), h("div", { class: "actions" }, yes, back()));
        return yes.focus();
    };
    const back = () =>
        button("Back", () => {
            fill(question);
            making.focus();
        });
    const making = button(words, press, { kind: "primary" });
    const setMaking = () => {
        making.disabled = !told;
    };

    const later = settled(look, PAUSE, scope);
    const changed = () => {
        told = null;
        latest += 1;
        fill(question);
        setMaking();
        later();
    };
    const body = h("div", { class: "form", oninput: changed }, fields);
    const close = dialog(title, body, shown, h("div", { class: "actions" }, making), question);
    shown.closest("dialog").addEventListener("close", () => scope.close());
    setMaking();
    look();
    return close;
}
