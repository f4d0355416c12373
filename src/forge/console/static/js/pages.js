// The console's pages, in the order of the menu: path, title, drawing, what opens it, and its key.

import { openApprovals } from "./pages/approvals.js";
import { openMemory } from "./pages/memory.js";
import { openOverview } from "./pages/overview.js";
import { openPolicy } from "./pages/policy.js";
import { openRuns } from "./pages/runs.js";
import { openSchedules } from "./pages/schedules.js";
import { openTools } from "./pages/tools.js";
import { openTrends } from "./pages/trends.js";
import { openWorkers } from "./pages/workers.js";

export const PAGES = [
    ["", "Overview", "home", openOverview, "o"],
    ["approvals", "Approvals", "approvals", openApprovals, "1"],
    ["runs", "Runs", "runs", openRuns, "2"],
    ["tools", "Tools", "tools", openTools, "3"],
    ["policy", "Policy", "policy", openPolicy, "4"],
    ["schedules", "Schedules", "schedules", openSchedules, "5"],
    ["memory", "Memory", "memory", openMemory, "6"],
    ["workers", "Workers", "workers", openWorkers, "7"],
    ["trends", "Trends", "trends", openTrends, "8"],
];
