// The theme: light, dark, or that of the system.

const KEPT = "forge-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };

export const themeWords = () => `Theme: ${kept()}`;

export function nextTheme() {
    const next = NEXT[kept()];
    localStorage.setItem(KEPT, next);
    applyTheme();
    return themeWords();
}

function applyTheme() {
    if (kept() === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = kept();
}

function kept() {
    const found = localStorage.getItem(KEPT);
    return found in NEXT ? found : "system";
}

applyTheme();
