"""Runs segments of stored runs on DBOS: queues, recorded steps, questions, children.

Words, with one meaning each:

    segment           a part of a run. It ends when the run waits or is over, after 200 recorded steps, or when its
                      worker leaves. A `SegmentKey` names it: the run, and the number from 1
    workflow          what DBOS runs: one start of a segment. A segment that is taken over is started again
    attempt           what one process does in a workflow. Of a segment's attempts, only the last can store anything
    lost              of an attempt: another one runs the segment, and this one stores nothing more (`LostSegment`). Of
                      a worker: its heartbeats ended. Stored as the state of a segment: tried too often, given up
    recorded step     the stored answer of the model or the stored result of a call, by number (`RecordedStep`)
    step              without "recorded", a step of the pipeline, as everywhere in Forge
    intent            a row that says: this attempt is about to run this call, which must not be repeated
    to replay         to take a recorded step instead of doing its work again

The path of a segment, file by file:

    start_segments    puts a segment into its queue, as a row. Programs that only submit runs need no more than this
    queues            the limits of queues, and a segment's place in its queue
    claims            claims queued segments for a worker, with one statement; no two workers claim the same one
    engine            polls, starts a DBOS workflow for each claimed segment, and notes how it ended
    segment           the workflow: begins an attempt, drives the agent, and stores the outcome in one transaction
    attempt           this process's attempt at the segment: replays what is recorded, and records what happens
    record_turns      records the model's answers: another attempt does not ask again
    record_events     records events, for readers elsewhere
    record_calls      records the result of each call; before a call that must not be repeated, its intent
    reconcile         settles a call that a lost attempt was about to run: its tool is asked whether it happened
    follow_up         starts what the new state of a run requires: its next segment, or its parent's

What a segment may need on its way:

    worker_context    the worker as its segments see it; `engine` makes it
    agents            finds the agent of a run, and the tools that stored runs are offered
    approval          stores a question for a person; the run waits as a row
    wait_tool         the tool `wait`; the run waits as a row
    children          starts the runs that other runs wait for: sub-agents, and calls on another worker
    scripts           keeps the journals of `run_code` scripts
    spilled_files     keeps the files of long results, for other workers and the client
    held_work         holds background work, which outlives its segment, and tells the run when it is done
    session_programs  ends programs that calls left running, when their run is over
    tasks             ends asyncio tasks together
    tracing           continues the trace of the process that submitted the run
    connections       makes DBOS's connections to the database
    dbos_private      all that Forge knows of DBOS beyond its public interface
"""
