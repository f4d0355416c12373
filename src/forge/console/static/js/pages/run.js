// One run, or one conversation at a terminal: what belongs to it, and when it must be looked at again.

import { get, part } from "../api.js";
import { soon } from "../pace.js";
import { report, showMissing } from "../parts/notices.js";
import { listen } from "../stream.js";
import { OVER, runView } from "./run_view.js";

export function openRun(place, id, query, scope) {
    const base = `/api/runs/${part(id)}`;
    const family = new Set([id]);
    let run = null;
    let isLoaded = false;
    const isOurs = (one) => family.has(one) || one.startsWith(`${id}-`);
    const view = runView({
        place,
        base,
        id,
        where: ["runs", id],
        step: query.get("step") ?? "",
        find: query.get("find") ?? "",
        scope,
        hasFiles: true,
        isOurs,
        questionOf,
    });

    function questionOf(item) {
        return run?.questions.findLast((one) => one.run === item.run && one.call === item.id) ?? null;
    }

    async function look() {
        try {
            run = await get(base, {}, scope.signal);
        } catch (error) {
            return run ? report(error) : showMissing(place, "Run", error, scope);
        }
        const isUnknown = run.children.some((one) => !isOurs(one.id));
        for (const child of run.children) family.add(child.id);
        view.show(run);
        if (isUnknown && isLoaded) view.feed.reload().catch(report);
        return run;
    }

    const again = soon(look, 120, scope);
    scope.add(
        listen("changed", ({ what, runs }) => {
            const isAbout = !runs.length || runs.includes("*") || runs.some(isOurs);
            if ((what.includes("runs") || what.includes("questions")) && isAbout) again();
        }),
    );
    view.answered = again;
    return look()
        .then(async (found) => {
            if (!found || !scope.isOpen()) return;
            await view.load(!OVER.has(found.status));
            isLoaded = true;
        })
        .catch(report);
}

/** A conversation at a terminal: there is a log of it, and nothing to stop. */
export function openSession(place, name, query, scope) {
    const base = `/api/sessions/${part(name)}`;
    const view = runView({
        place,
        base,
        id: `session:${name}`,
        where: ["sessions", name],
        step: query.get("step") ?? "",
        find: query.get("find") ?? "",
        scope,
        hasFiles: false,
        isOurs: () => false,
        questionOf: () => null,
        isLive: false,
    });
    const again = soon(() => view.feed.load().catch(() => {}), 120, scope);
    scope.add(
        listen("changed", ({ what }) => {
            if (what.includes("sessions")) again();
        }),
    );
    return get(base, {}, scope.signal)
        .then((session) => {
            view.showSession(session);
            return view.load(false);
        })
        .catch((error) => showMissing(place, "Session", error, scope));
}
