// Text from elsewhere, made safe to look at: what cannot be seen is written out, escape sequences are left out.

const SPACES = / {24,}/g;
const BLANK_LINES = /\n(?: *\n){2,}/g;
const MARKS = "\\u0300-\\u036f\\u1ab0-\\u1aff\\u1dc0-\\u1dff\\u20d0-\\u20ff";
const TOO_MANY_MARKS = new RegExp(`(?<=[${MARKS}]{3})[${MARKS}]`, "g");
const NOTHING_IS_SEEN =
    "\\p{Cc}\\p{Cf}\\p{Cs}\\p{Co}\\p{Cn}\\p{Zl}\\p{Zp}\\p{Zs}" +
    "\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u2800\\u3164\\uffa0\\u180b-\\u180f\\ufe00-\\ufe0f\\u{e0100}-\\u{e01ef}";
// Marks are written in ⟨⟩, which must then appear nowhere else.
const HIDDEN = new RegExp(`(?![\\n ])[${NOTHING_IS_SEEN}⟨⟩]`, "gu");
const EMOJI = "\\p{Extended_Pictographic}[\\u{1f3fb}-\\u{1f3ff}]?\\ufe0f?";
const HIDDEN_IN_OUTPUT = new RegExp(`(${EMOJI}(?:\\u200d${EMOJI})*)|(?![\\n\\t ])[${NOTHING_IS_SEEN}⟨⟩]`, "gu");
const PLAIN = /^[\x20-\x7e]*$/;
const PLAIN_OUTPUT = /^[\x20-\x7e\n\t]*$/;
const ANSI = new RegExp(
    [
        "(?:\\u001b\\[|\\u009b)[0-?]*[ -/]*[@-~]",
        "\\u001b\\][^\\u0007\\u001b]{0,4096}(?:\\u0007|\\u001b\\\\)",
        "\\u001b[PX^_][^\\u001b]{0,4096}\\u001b\\\\",
        "\\u001b[ -/]+[0-~]",
        "\\u001b[0-Z\\\\^_a-z]",
    ].join("|"),
    "g",
);

const written = (char) => `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
const counted = (count, what) => `⟨${count.toLocaleString("en")} ${what}⟩`;

/** The text as it is, with everything invisible written out and every long gap counted: as the terminal's questions. */
export function visible(text) {
    if (PLAIN.test(text) && text.length < 24) return text;
    return text
        .replace(HIDDEN, written)
        .replace(TOO_MANY_MARKS, written)
        .replace(BLANK_LINES, (gap) => `\n${counted(gap.split("\n").length - 2, "blank lines")}\n`)
        .replace(SPACES, (gap) => counted(gap.length, "spaces"));
}

/** The same, with tabs as they are: results have them between columns. */
export const visibleWithTabs = (text) => text.split("\t").map(visible).join("\t");

/** Output of programs: tabs and emoji stay, and what overwrote a line stands on a line of its own. */
export function readable(text) {
    if (PLAIN_OUTPUT.test(text)) return text;
    return text
        .replace(ANSI, "")
        .replace(/\r\n?/g, "\n")
        .replace(HIDDEN_IN_OUTPUT, (char, emoji) => emoji ?? written(char))
        .replace(TOO_MANY_MARKS, written);
}

/** Text and marks by turns, so that marks can look different from what was there. */
export function splitMarks(shown) {
    return shown.split(/(⟨[^⟨⟩]*⟩)/);
}

/** The first line, shortened. */
export function brief(text, most = 140) {
    const line = String(text)
        .trimStart()
        .slice(0, most * 4);
    const end = line.search(/[\n\r]/);
    const first = end < 0 ? line : line.slice(0, end);
    return first.length > most || end >= 0 ? `${first.slice(0, most)}…` : first;
}

/** A value as text: texts as they are, anything else as JSON. */
export function asText(value, space = 2) {
    return typeof value === "string" ? value : (JSON.stringify(value, null, space) ?? "");
}

/** What a call is about, in one line. */
export function briefArguments(given, most = 160) {
    if (typeof given === "string") return brief(given, most);
    const values = Object.entries(given ?? {});
    const first = values.find(([name]) =>
        ["command", "path", "url", "pattern", "query", "prompt", "task"].includes(name),
    );
    const shown = first ? [first, ...values.filter((one) => one !== first)] : values;
    const words = shown.slice(0, 6).map(([name, value], index) => {
        const text = brief(asText(value, 0), most);
        return index === 0 && first ? text : `${name}: ${text}`;
    });
    return brief(words.join("  "), most);
}
