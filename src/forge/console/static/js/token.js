// The token that this browser was given by its link, kept where only pages of this port can read it: a browser shows
// the cookie to every server of this machine.

const KEPT = "forge-token";
let here = ""; // where nothing can be kept, it counts until the page is left

/** From the address, where the link led (`#/enter/TOKEN`, `#/enter/TOKEN/runs/ID`): it is taken out of it at once. */
export function takeToken() {
    const found = /^#\/enter\/([0-9a-f]{64})(\/.*)?$/.exec(location.hash);
    if (!found) return;
    here = found[1];
    try {
        localStorage.setItem(KEPT, here);
    } catch {
        // it may not keep anything
    }
    history.replaceState(null, "", `#${found[2] ?? "/"}`);
}

/** Another tab may have been opened with a newer link. */
export function token() {
    try {
        return localStorage.getItem(KEPT) ?? here;
    } catch {
        return here;
    }
}
