// Numbers as they were written: a browser's own have 53 bits, and what is shown must be what runs.

const MAY_BE_TOO_LARGE = /[:[,]\s*-?\d{16}|^\s*-?\d{16}/;
const WHOLE = /^-?(?:0|[1-9]\d*)$/;

export function parseExactly(text) {
    if (!MAY_BE_TOO_LARGE.test(text) || !JSON.rawJSON) return JSON.parse(text);
    return JSON.parse(text, (_, value, { source }) =>
        typeof value === "number" && WHOLE.test(source) ? numberFrom(source) : value,
    );
}

/** A number that a browser can hold, or else a value that `JSON.stringify` writes as it stands here. */
export function numberFrom(text) {
    const found = Number(text);
    return WHOLE.test(text) && !Number.isSafeInteger(found) && JSON.rawJSON ? JSON.rawJSON(text) : found;
}

export const isNumber = (value) => typeof value === "number" || Boolean(JSON.isRawJSON?.(value));
