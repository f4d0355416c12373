"""Packs the events of a row: a line each, compressed.

Events are small and much alike. Postgres compresses only rows of more than 2 kB, and SQLite compresses nothing. The
compression knows the words that most events have, so that it makes even a single event half as long.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator

from forge.core.errors import ErrorKind
from forge.workspace.state.store import StoreError

_FORMAT = b"\x01"  # the first byte; another dictionary needs another one
_LEVEL = 6
_RAW = -15  # no header and no checksum: the database has its own
# What a row may refer to; the most frequent words last. It must never change for a format.
_DICTIONARY = (
    b"text_delta reasoning_delta tool_arguments_delta tool_output_chunk tool_progress approval_requested permission"
    b' target retrying message_received run_started compacted "reason":" "error_type":"permission_error'
    b'","suggestion":" "is_error":true "success":false "for_user":" "progress":" "total":null,"message":"'
    b' "labels":[["untrusted","path":" "output":" "data":{" "exit_code":0, "duration": "truncated":false'
    b'"1:turn_started::"\t{"event":"turn_started","ts":1790000000. ,"seq": ,"session":" ","agent":"main","turn":'
    b'\n"1:text::"\t{"event":"text","ts":17 ,"seq": ,"session":" ","agent":"main","text":"'
    b'\n"1:turn_finished: ::"\t{"event":"turn_finished","ts":17 ,"seq": ,"session":" ","agent":"main","turn": '
    b',"usage":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"cost":0.'
    b'\n"1:tool_call_start: ::"\t{"event":"tool_call_start","ts":17 ,"seq": ,"session":" ","agent":"main",'
    b'"call":{"id":"call_ ","name":"file_read","arguments":{"path":" "}}}'
    b'\n"1:tool_call_end: ::"\t{"event":"tool_call_end","ts":17 ,"seq": ,"session":" ","agent":"main","call":{"id":"'
    b'call_ ","name":" ","arguments":{"command":" "}},"success":true,"result":{"id":" ","name":" ","success":true,'
    b'"is_error":false,"for_llm":" ","silent":false,"async":false,"title":" ","data":{},"attachments":[],"error":""},'
    b'"seconds":0.000'
)


def pack(lines: Iterable[tuple[str | None, str]]) -> bytes:
    """Packs events: of each the key and its JSON, which has no line ends and no tabs as such."""
    text = "\n".join(f"{json.dumps(key)}\t{event}" for key, event in lines)
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW, zdict=_DICTIONARY)
    return b"".join((_FORMAT, packer.compress(text.encode()), packer.flush()))


def unpack(packed: bytes) -> Iterator[tuple[str | None, str]]:
    """Yields the key and the JSON of each event."""
    if not packed.startswith(_FORMAT):
        words = "a row of events was packed by a newer Forge"
        raise StoreError(words, ErrorKind.CONFIG, "Update Forge on this machine.")
    text = zlib.decompressobj(_RAW, zdict=_DICTIONARY).decompress(memoryview(packed)[1:]).decode()
    for line in text.split("\n"):
        key, _, event = line.partition("\t")
        yield json.loads(key), event
