"""`forge memory`: searches, shows and indexes the notes of a workspace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from forge.cli.group import CommandGroup
from forge.cli.options import Options, with_options
from forge.cli.refusal import refusals
from forge.cli.terminal.print_result import harmless

if TYPE_CHECKING:  # loaded by the command that needs it
    from forge.memory.memory import Memory


@click.group("memory", cls=CommandGroup)
def command() -> None:
    """Search and read the agent's notes, and update their index."""


@command.command()
@click.argument("query")
@with_options()
@click.option(
    "--max-results",
    metavar="N",
    type=click.IntRange(1, 1_000),
    default=5,
    show_default=True,
    help="Maximum number of results.",
)
def search(options: Options, query: str, max_results: int) -> None:
    """Search the notes, as the agent does.

    \b
    forge memory search "favourite colour"

    With --json: {"results": [{text, source, line_start, line_end, score}], "remarks": []}.
    """
    import asyncio

    with _memory(options) as memory:
        found = asyncio.run(memory.search(query, max_results))
    if options.json:
        _print_json({"results": [hit._asdict() for hit in found.hits], "remarks": found.remarks})
        return
    for hit in found.hits:
        location = f"{hit.source}:{hit.line_start}"
        click.echo(f"{click.style(harmless(location), bold=True)}  {click.style(f'{hit.score:.3f}', dim=True)}")
        click.echo("".join(f"    {harmless(line)}\n" for line in hit.text.split("\n")))
    if not found.hits:
        click.echo("No results.", err=True)
    _print_remarks(found.remarks)


@command.command()
@click.argument("file", required=False)
@with_options()
def show(options: Options, file: str | None) -> None:
    """Print a note, or list all of them.

    \b
    forge memory show MEMORY.md

    With --json: {path, content}, or {"notes": [name]}.
    """
    with _memory(options) as memory:
        if file is None:
            _print_names(memory, options)
            return
        text = memory.read(file)
        name = memory.notes.name_of(memory.notes.resolve(file))
    if options.json:
        _print_json({"path": name, "content": text})
        return
    click.echo(harmless(text), nl=not text.endswith("\n"))


@command.command()
@with_options()
@click.option("--rebuild", is_flag=True, help="Delete the index first, and build it again.")
@click.option("--anew", is_flag=True, hidden=True, help="The former name of --rebuild.")
def reindex(options: Options, rebuild: bool, anew: bool) -> None:
    """Update the index of the notes. A search does this, too, but computes only some of the missing vectors.

    \b
    forge memory reindex

    With --json: {notes, changed, chunks, embedded, seconds, remarks}.
    """
    import asyncio

    with _memory(options) as memory:
        done = asyncio.run(memory.reindex(anew=rebuild or anew))
    if options.json:
        _print_json(done._asdict())
        return
    embedded = f", {done.embedded:,} embedded" if done.embedded else ""
    click.echo(
        f"{_count(done.notes, 'note')} in {_count(done.chunks, 'piece')}; {done.changed:,} changed{embedded},"
        f" in {done.seconds:.2f} s."
    )
    _print_remarks(done.remarks)


@command.command()
@with_options()
def stats(options: Options) -> None:
    """Show the folder and size of the notes and their index.

    \b
    forge memory stats --json

    With --json: {directory, embedder, notes, chunks, vectors, without_vector, index, index_bytes, remarks}.
    """
    with _memory(options) as memory:
        found = memory.stats()
    if options.json:
        _print_json(found)
        return
    rows = {
        "notes": f"{found['notes']:,} in {found['directory']}",
        "pieces": f"{found['chunks']:,}",
        "embedder": found["embedder"],
        "vectors": f"{found['vectors']:,}"
        + (f", {found['without_vector']:,} missing" if found["without_vector"] else ""),
        "index": f"{found['index']} ({found['index_bytes']:,} bytes)" if found["index"] else "none",
    }
    for name, value in rows.items():
        click.echo(f"{name:<9} {harmless(value)}")
    _print_remarks(found["remarks"])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _print_names(memory: Memory, options: Options) -> None:
    names = memory.names()
    if options.json:
        _print_json({"notes": names})
        return
    if not names:
        click.echo("There are no notes.", err=True)
    for name in names:
        click.echo(harmless(name))


@contextmanager
def _memory(options: Options) -> Iterator[Memory]:
    with refusals():
        from forge.project.assemble.knowledge import project_memory

        memory: Memory = project_memory(options)
        try:
            yield memory
        finally:
            memory.close()


def _print_remarks(remarks: list[str]) -> None:
    for remark in remarks:
        click.echo(click.style(harmless(remark), dim=True), err=True)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))
