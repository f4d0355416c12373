// Code in colours: comments, texts, numbers and the words of a language. What it does not know stays plain.

const MOST = 50_000; // characters
const C_WORDS =
    "abstract as async await break case catch class const continue default delete do else enum export extends false finally for from function if implements import in instanceof interface let new null of private protected public return static super switch this throw true try type typeof undefined var void while yield";
const WORDS = {
    python: "and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield",
    javascript: C_WORDS,
    bash: "case do done elif else esac export fi for function if in local return set then until while",
    sql: "all and as asc between by case create delete desc distinct drop else end exists false from group having in index inner insert into is join left like limit not null on or order outer primary select set table then true union unique update values view when where with",
    go: "break case chan const continue default defer else fallthrough false for func go goto if import interface map nil package range return select struct switch true type var",
    rust: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
    java: `${C_WORDS} boolean byte char double final float int long package short synchronized throws volatile`,
    json: "true false null",
    yaml: "true false null yes no",
    css: "",
};
const SAME = {
    py: "python", python3: "python", js: "javascript", jsx: "javascript", ts: "javascript", typescript: "javascript", tsx: "javascript",
    mjs: "javascript", sh: "bash", shell: "bash", zsh: "bash", console: "bash", rs: "rust", golang: "go", c: "java", cpp: "java",
    "c++": "java", "c#": "java", cs: "java", kotlin: "java", swift: "java", php: "java", jsonc: "json", json5: "json", ndjson: "json",
    yml: "yaml", toml: "yaml", ini: "yaml", scss: "css", postgresql: "sql", sqlite: "sql",
};
const HASHES = new Set(["python", "bash", "yaml"]);

const LONG_TEXT = '"""[\\s\\S]*?(?:"""|$)|' + "'''[\\s\\S]*?(?:'''|$)";
const TEXT = '"(?:[^"\\\\\\n]|\\\\.)*"?|' + "'(?:[^'\\\\\\n]|\\\\.)*'?";
const NUMBER = "\\b(?:0[xob][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\b";

/** Nodes of a code; its texts are shown as they are. */
export function highlighted(code, language) {
    const name = SAME[language.toLowerCase()] ?? language.toLowerCase();
    if (name === "diff" || name === "patch") return differing(code);
    if (!Object.hasOwn(WORDS, name) || code.length > MOST) return [document.createTextNode(code)];
    const words = new Set((name === "sql" ? `${WORDS.sql} ${WORDS.sql.toUpperCase()}` : WORDS[name]).split(" "));
    const made = [];
    let last = 0;
    for (const found of code.matchAll(tokens(name))) {
        const [text] = found;
        const kind = found.groups.comment ? "comment" : found.groups.text ? "string" : found.groups.number ? "number" : words.has(text) ? "keyword" : "";
        if (!kind) continue;
        made.push(document.createTextNode(code.slice(last, found.index)), span(kind, text));
        last = found.index + text.length;
    }
    made.push(document.createTextNode(code.slice(last)));
    return made;
}

function tokens(name) {
    const line = HASHES.has(name) ? "(?<![\\w$])#[^\\n]*" : name === "sql" ? "--[^\\n]*" : name === "json" || name === "css" ? "" : "\\/\\/[^\\n]*";
    const comment = [line, HASHES.has(name) ? "" : "\\/\\*[\\s\\S]*?(?:\\*\\/|$)"].filter(Boolean).join("|");
    const text = [name === "python" ? LONG_TEXT : "", TEXT, name === "javascript" || name === "go" ? "`(?:[^`\\\\]|\\\\.)*`?" : ""].filter(Boolean).join("|");
    return new RegExp(`(?<comment>${comment})|(?<text>${text})|(?<number>${NUMBER})|[A-Za-z_$][\\w$]*`, "g");
}

function differing(code) {
    return code.split(/(?<=\n)/).map((line) => {
        const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@@") ? "hunk" : "";
        return kind ? span(kind, line) : document.createTextNode(line);
    });
}

function span(kind, text) {
    const made = document.createElement("span");
    made.className = kind;
    made.textContent = text;
    return made;
}
