// Events, folded into what is shown: texts, calls with all that belongs to them, sub-agents below the call that began them.
// Nothing here knows of the page.

const MOST_OUTPUT = 4_000_000; // characters of one call that are kept
const DELEGATES = new Set(["task", "agent", "delegate"]);

/** What is shown of one run and the runs it started. */
export class Fold {
    constructor(root) {
        this.root = root;
        this.branches = new Map();
        this.parents = new Map(); // run → {run, call}
        this.agents = new Map(); // run → the agent and the task that it began with
        this.delegations = new Map(); // run and task → the call that an agent works for
        this.changed = new Set(); // items that look different than before
        this.trunk = this.branch(root);
    }

    /** Which run was started by which call. */
    know(runs) {
        for (const run of runs) if (run.parent) this.parents.set(run.id, { run: run.parent, call: run.parent_call });
        for (const branch of this.branches.values()) if (branch !== this.trunk && !branch.below) this.attach(branch);
    }

    add(entry) {
        const branch = this.branchOf(entry);
        const { event } = entry;
        branch.first ??= event.ts;
        branch.last = Math.max(branch.last ?? 0, event.ts);
        (ADDING[event.event] ?? unknown)(this, branch, entry, event);
    }

    branch(key, agent = "") {
        let found = this.branches.get(key);
        if (!found) {
            found = {
                key,
                agent,
                items: [],
                calls: new Map(),
                drafts: new Map(), // calls that are being written
                open: new Set(),
                thinking: null,
                spans: [],
                below: null,
                turns: 0,
                usage: {},
                isOver: false,
            };
            this.branches.set(key, found);
        }
        return found;
    }

    /** Runs of their own, and agents that worked inside of a run (as at a terminal). */
    branchOf({ run, event }) {
        const agent = event.agent ?? "";
        const who = `${agent} ${event.task ?? ""}`;
        if (!this.agents.has(run)) this.agents.set(run, who);
        const key = this.agents.get(run) === who ? run : `${run} ${event.task || agent}`;
        const known = this.branches.get(key);
        if (known) {
            known.agent ||= agent;
            return known;
        }
        const made = this.branch(key, agent);
        this.attach(made);
        return made;
    }

    attach(branch) {
        const [run] = branch.key.split(" ");
        const parent = this.parents.get(run);
        const above = parent ? this.branches.get(parent.run) : this.trunk;
        const item =
            this.delegations.get(branch.key) ??
            (parent ? above?.calls.get(parent.call) : latestDelegation(this.branches.get(run) ?? this.trunk));
        if (!item || branch === this.trunk) return;
        branch.below = item;
        item.branches.push(branch);
        this.touch(item);
    }

    push(branch, item) {
        item.branch = branch;
        branch.items.push(item);
        this.touch(item);
        return item;
    }

    /** An item changed, and so did those that it is shown in. */
    touch(item) {
        for (let one = item; one && !this.changed.has(one); one = one.branch?.below) this.changed.add(one);
    }

    takeChanged() {
        const found = this.changed;
        this.changed = new Set();
        return found;
    }
}

const ADDING = {
    run_started(fold, branch, entry, event) {
        branch.thinking = event.ts;
        branch.isOver = false;
        if (event.prompt) fold.push(branch, { kind: "prompt", n: entry.n, at: event.ts, text: event.prompt });
    },
    message_received(fold, branch, entry, event) {
        fold.push(branch, { kind: "prompt", n: entry.n, at: event.ts, text: event.text });
    },
    text_delta(fold, branch, entry, event) {
        const last = branch.items.at(-1);
        if (last?.kind === "text" && !last.isClosed) {
            last.text += event.text;
            fold.touch(last);
        } else if (event.text) fold.push(branch, { kind: "text", n: entry.n, at: event.ts, text: event.text });
    },
    reasoning_delta(fold, branch, entry, event) {
        const last = branch.items.at(-1);
        if (last?.kind === "reasoning" && !last.isClosed) {
            last.text += event.text;
            fold.touch(last);
        } else if (event.text) fold.push(branch, { kind: "reasoning", n: entry.n, at: event.ts, text: event.text });
    },
    tool_arguments_delta(fold, branch, entry, event) {
        if (branch.calls.has(event.call.id)) return;
        const known = branch.drafts.get(event.call.id);
        const item = known ?? { kind: "draft", n: entry.n, at: event.ts, name: event.call.name, text: "" };
        item.text += event.text;
        if (item.text.length > MOST_OUTPUT) item.text = item.text.slice(-MOST_OUTPUT / 2);
        if (known) return fold.touch(known);
        branch.drafts.set(event.call.id, item);
        return fold.push(branch, item);
    },
    retrying(fold, branch, entry, event) {
        dropDrafts(fold, branch);
        const { reason, seconds, attempt, status } = event;
        fold.push(branch, { kind: "retry", n: entry.n, at: event.ts, reason, seconds, attempt, status });
    },
    context_shortened(fold, branch, entry, event) {
        const { repeats, outputs, summaries, tokens } = event;
        fold.push(branch, { kind: "shortened", n: entry.n, at: event.ts, repeats, outputs, summaries, tokens });
    },
    tool_call_start(fold, branch, entry, event) {
        think(branch, event.ts);
        dropDrafts(fold, branch);
        const known = branch.calls.get(event.call.id);
        if (known && known.state === "waiting") return resumed(fold, known, event);
        if (known?.reconciled && known.state === "running") return fold.touch(known);
        const item = {
            kind: "call",
            n: entry.n,
            at: event.ts,
            run: entry.run,
            id: event.call.id,
            name: event.call.name,
            arguments: event.call.arguments,
            argumentsCut: entry.clipped ? entry.n : null,
            state: "running",
            output: "",
            outputSize: 0,
            progress: null,
            reconciled: null,
            asked: null,
            answered: null,
            result: null,
            resultAt: null,
            resultCut: false,
            seconds: null,
            spans: [{ kind: "tool", from: event.ts, to: null }],
            branches: [],
        };
        branch.calls.set(item.id, item);
        fold.delegations.set(`${entry.run} ${event.task ? `${event.task}/` : ""}${item.id}`, item);
        branch.open.add(item.id);
        return fold.push(branch, item);
    },
    tool_progress(fold, branch, entry, event) {
        const item = called(fold, branch, entry);
        item.progress = { title: event.title, data: event.data };
        fold.touch(item);
    },
    tool_output_chunk(fold, branch, entry, event) {
        const item = called(fold, branch, entry);
        item.outputSize += event.text.length;
        item.output += event.text;
        if (item.output.length > MOST_OUTPUT) item.output = item.output.slice(-MOST_OUTPUT / 2);
        fold.touch(item);
    },
    permission_asked(fold, branch, entry, event) {
        const item = called(fold, branch, entry);
        const others = event.others ?? [];
        const isAgain =
            item.asked?.target === event.target &&
            item.asked.permission === event.permission &&
            JSON.stringify(item.asked.others) === JSON.stringify(others);
        if (!isAgain) {
            item.asked = {
                at: event.ts,
                permission: event.permission,
                target: event.target,
                rule: event.rule,
                others,
                origins: event.origins ?? [],
            };
            item.answered = null;
        }
        item.state = "waiting";
        span(item, "person", event.ts);
        fold.touch(item);
    },
    permission_answered(fold, branch, entry, event) {
        const item = called(fold, branch, entry);
        item.answered ??= { at: event.ts, answer: event.answer, by: event.by };
        if (item.state === "waiting") item.state = "running";
        span(item, "tool", event.ts);
        fold.touch(item);
    },
    error() {}, // its call's end says the same
    tool_call_end(fold, branch, entry, event) {
        const item = called(fold, branch, entry);
        if (event.waits) {
            item.state = "waiting";
            span(item, waitsFor(item), event.ts);
            return fold.touch(item);
        }
        ended(item, event.ts);
        branch.open.delete(item.id);
        if (!branch.open.size) branch.thinking = event.ts;
        item.seconds = event.seconds;
        item.state = event.success ? "done" : isDenial(event.result) ? "denied" : "failed";
        return resulted(fold, item, entry, event);
    },
    tool_completed(fold, branch, entry, event) {
        const item = called(fold, branch, entry);
        item.state = event.result?.is_error ? "failed" : "done";
        resulted(fold, item, entry, event);
    },
    tool_reconciled(fold, branch, entry, event) {
        const item = called(fold, branch, entry);
        item.reconciled = { at: event.ts, state: event.state, reason: event.reason };
        fold.touch(item);
    },
    turn_finished(fold, branch, entry, event) {
        think(branch, event.ts);
        dropDrafts(fold, branch);
        branch.thinking = branch.open.size ? null : event.ts;
        branch.turns = Math.max(branch.turns, event.turn ?? 0);
        for (const [name, value] of Object.entries(event.usage ?? {}))
            branch.usage[name] = (branch.usage[name] ?? 0) + value;
        const last = branch.items.at(-1);
        if (last) last.isClosed = true;
    },
    run_finished(fold, branch, entry, event) {
        think(branch, event.ts);
        branch.thinking = null;
        branch.isOver = true;
        const item = { kind: "end", n: entry.n, at: event.ts };
        for (const name of ["reason", "turns", "usage", "calls", "cost", "error"]) item[name] = event[name];
        const isSaid = branch.items.some((one) => one.kind === "text" && one.text.includes(event.text));
        item.text = isSaid ? "" : event.text;
        fold.push(branch, item);
    },
    run_marked(fold, branch, entry, event) {
        const { verdict, note, by } = event;
        fold.push(branch, { kind: "mark", n: entry.n, at: event.ts, text: note ?? "", verdict, by });
    },
};

function unknown(fold, branch, entry, event) {
    fold.push(branch, { kind: "event", n: entry.n, at: event.ts, event });
}

/** The calls that were being written begin now, or are written again. */
function dropDrafts(fold, branch) {
    for (const item of branch.drafts.values()) {
        item.isClosed = true;
        item.text = "";
        fold.touch(item);
    }
    branch.drafts.clear();
}

function resumed(fold, item, event) {
    item.state = "running";
    span(item, "tool", event.ts);
    fold.touch(item);
}

/** The card of a call, also where its start was not seen. */
function called(fold, branch, entry) {
    const { call, ts, task } = entry.event;
    return (
        branch.calls.get(call?.id) ??
        ADDING.tool_call_start(fold, branch, entry, { call: call ?? { id: "", name: "?" }, ts, task })
    );
}

function resulted(fold, item, entry, event) {
    item.result = event.result ?? null;
    item.resultAt = entry.n;
    item.resultCut = Boolean(entry.clipped);
    fold.touch(item);
}

/** For a yes that was asked for and did not come; else for the agent that it began. */
function waitsFor(item) {
    if (item.asked && !item.answered) return "person";
    return item.branches.length || DELEGATES.has(item.name) ? "run" : "person";
}

const isDenial = (result) => result?.error_type === "permission_error" || result?.error_type === "security_error";

/** From now on the time goes to something else. */
function span(item, kind, at) {
    const last = item.spans.at(-1);
    if (last && last.to === null) {
        if (last.kind === kind) return;
        last.to = Math.max(last.from, at);
    }
    item.spans.push({ kind, from: at, to: null });
}

function ended(item, at) {
    const last = item.spans.at(-1);
    if (last && last.to === null) last.to = Math.max(last.from, at);
}

function think(branch, at) {
    if (branch.thinking !== null && at - branch.thinking > 0.005)
        branch.spans.push({ kind: "model", from: branch.thinking, to: at });
    branch.thinking = null;
}

function latestDelegation(branch) {
    const calls = [...branch.calls.values()].reverse();
    return (
        calls.find((one) => one.state === "running" && DELEGATES.has(one.name)) ??
        calls.find((one) => one.state === "running") ??
        null
    );
}
