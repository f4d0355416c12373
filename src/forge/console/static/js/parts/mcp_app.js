// The app of an MCP server, in a frame that reaches nothing: it talks to this page only, and may only call tools of its
// own server. Every call is a run of its own, which a person may have to approve.

import { get, part, post } from "../api.js";
import { h } from "../dom.js";
import { button } from "./controls.js";
import { report } from "./notices.js";

const VERSION = "2026-01-26";
const TALLEST = 1_000; // pixels
const PAUSE = 400; // milliseconds between two looks at a call
const MOST = 8; // calls at once
const OVER = new Set(["finished", "failed", "cancelled"]);

/** A button that opens the app with the result of this call. */
export function appView(item) {
    const place = h("div", { class: "app-place" });
    const open = button("Show the app", async () => {
        try {
            const app = await get(`/api/apps/${part(item.name)}`);
            place.replaceChildren(frameOf(app, item));
        } catch (error) {
            report(error);
        }
    });
    place.append(open);
    return place;
}

function frameOf(app, item) {
    const frame = h("iframe", {
        class: "app-frame",
        sandbox: "allow-scripts",
        referrerpolicy: "no-referrer",
        title: `App of ${app.server}`,
        src: `/apps/${part(item.name)}`,
    });
    const send = (message) => frame.contentWindow?.postMessage({ jsonrpc: "2.0", ...message }, "*"); // its origin is opaque
    let calls = 0;
    let wasConnected = false;

    function receive(event) {
        wasConnected ||= frame.isConnected;
        if (wasConnected && !frame.isConnected) {
            window.removeEventListener("message", receive);
            return;
        }
        const message = event.data;
        if (event.source !== frame.contentWindow || event.origin !== "null") return;
        if (typeof message !== "object" || message === null || typeof message.method !== "string") return;
        const params = typeof message.params === "object" && message.params !== null ? message.params : {};
        if (message.id === undefined) hear(message.method, params);
        else answer(message.id, message.method, params);
    }

    function hear(method, params) {
        if (method === "ui/notifications/initialized") {
            send({ method: "ui/notifications/tool-input", params: { arguments: item.arguments ?? {} } });
            send({ method: "ui/notifications/tool-result", params: resultOf(item.result) });
        } else if (method === "ui/notifications/size-changed" && Number.isFinite(params.height)) {
            frame.style.height = `${Math.max(40, Math.min(TALLEST, params.height))}px`;
        }
    }

    async function answer(id, method, params) {
        try {
            send({ id, result: await resultFor(method, params) });
        } catch (error) {
            send({ id, error: { code: error.code ?? -32603, message: error.message } });
        }
    }

    async function resultFor(method, params) {
        if (method === "ping") return {};
        if (method === "ui/initialize")
            return {
                protocolVersion: VERSION,
                hostInfo: { name: "forge-console", version: "1" },
                hostCapabilities: { serverTools: {} },
                hostContext: { displayMode: "inline", availableDisplayModes: ["inline"] },
            };
        if (method !== "tools/call") throw refusal(-32601, "this host does not offer that method");
        const local = Object.hasOwn(app.tools, params.name) ? app.tools[params.name] : null;
        if (!local) throw refusal(-32602, "an app may only call tools of its own server");
        if (calls >= MOST) throw refusal(-32603, "too many calls at once");
        calls += 1;
        try {
            return await callTool(local, params.arguments ?? {}, () => frame.isConnected);
        } finally {
            calls -= 1;
        }
    }

    window.addEventListener("message", receive);
    return frame;
}

/** Calls a tool as a run, with the same rules and approvals as every call. */
async function callTool(name, given, isWanted) {
    const { run } = await post(`/api/tools/${part(name)}/call`, { arguments: given });
    while (isWanted()) {
        const now = await get(`/api/runs/${part(run.id)}`);
        if (OVER.has(now.status)) return resultOfRun(run.id, now);
        await new Promise((done) => setTimeout(done, PAUSE));
    }
    throw refusal(-32603, "the app was closed");
}

async function resultOfRun(id, run) {
    const { events } = await get(`/api/runs/${part(id)}/events`, { tail: 50 });
    const last = events.map((one) => one.event ?? one).findLast((one) => one.event === "tool_finished");
    return last ? resultOf(last.result) : { content: [{ type: "text", text: run.error || run.text }], isError: true };
}

function resultOf(result) {
    const { for_llm: text = "", is_error: isError = false, data = {} } = result ?? {};
    const structured = data?.structured;
    return {
        content: [{ type: "text", text: String(text) }],
        isError: Boolean(isError),
        ...(structured && typeof structured === "object" ? { structuredContent: structured } : {}),
    };
}

function refusal(code, message) {
    return Object.assign(new Error(message), { code });
}
