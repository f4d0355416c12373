"""`bash` and the tools that look after its background jobs."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from forge.core.activity import ActivityStream
from forge.core.context import Root, Scope
from forge.core.events import Event, ToolFinished, ToolOutput
from forge.core.execution.session_programs import end_started
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.process.sandbox import Tier
from forge.tools.bash import Bash, BashJobs, BashKill, BashOutput
from tests.patience import longer
from tests.process.attacks import needs
from tests.process.planting import found, mark, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def work(tmp_path):
    """Calls behind the standard steps, all allowed unless a test says otherwise."""

    class Work:
        scope = Scope(session_id=f"session of {tmp_path}", workspace=tmp_path)

        def executor(self, *allowed: str, activity: ActivityStream | None = None, **settings: Any) -> ToolExecutor:
            trial = settings.pop("trial", "auto")
            tools = [Bash(**settings), BashOutput(), BashKill(), BashJobs()]
            made = rules(*(allowed or ("allow execute",)))
            return standard_executor(tools, policy=made, activity=activity, trial=trial)

        def call(self, tool: str, /, *, executor: ToolExecutor | None = None, **arguments: Any) -> ToolResult:
            chosen = executor or self.executor()
            return asyncio.run(chosen.execute(ToolCall(tool, arguments), self.scope))

        def bash(self, command: str, /, **more: Any) -> ToolResult:
            return self.call("bash", command=command, **more)

    yield Work()
    end_started(f"session of {tmp_path}")


def test_output_and_exit_code_come_back(work):
    result = work.bash("echo out; echo err >&2")
    assert result.success
    assert result.for_llm == "out\nerr"
    assert result.data.items() >= {"output": "out\nerr\n", "exit_code": 0, "return_code": 0, "signal": ""}.items()
    assert result.data["timed_out"] is False
    assert result.data["sandbox"] in ("none", "landlock", "bubblewrap")
    assert result.data["duration"] > 0


def test_a_failing_command_is_a_result_that_says_so(work):
    result = work.bash("echo no; exit 3")
    assert result.success
    assert result.for_llm == "no\n[exit code 3]"
    assert result.data["exit_code"] == result.data["return_code"] == 3


def test_a_signal_is_told_apart(work):
    assert work.bash("kill -9 $$").data["signal"] == "SIGKILL"
    result = work.bash("kill -9 $$", executor=work.executor(sandbox="off"))
    assert result.for_llm == "(no output)\n[ended by SIGKILL]"
    assert (result.data["exit_code"], result.data["signal"]) == (None, "SIGKILL")


@pytest.mark.parametrize("sandbox", ["auto", "bubblewrap", "landlock", "off"])
def test_an_exit_code_that_looks_like_a_signal_is_none(work, sandbox):
    if sandbox in ("bubblewrap", "landlock"):
        needs(Tier(sandbox))
    executor = work.executor(sandbox=sandbox)
    result = work.bash("exit 137", executor=executor)
    assert (result.data["exit_code"], result.data["signal"]) == (137, "")
    assert result.for_llm == "(no output)\n[exit code 137]"
    assert work.bash("echo said >&2; kill -9 $$", executor=executor).data["signal"] == "SIGKILL"


def test_no_output_is_said(work):
    assert work.bash("true").for_llm == "(no output)"


@pytest.mark.parametrize("name", ["bash", "shell", "execute_command"])
def test_its_other_names_work(work, name):
    assert work.call(name, cmd="echo hi").for_llm == "hi"


def test_it_runs_in_the_workspace_or_below(work, tmp_path):
    (tmp_path / "sub").mkdir()
    assert work.bash("pwd").for_llm == str(tmp_path)
    assert work.bash("pwd", working_dir="sub").for_llm == str(tmp_path / "sub")
    assert work.bash("pwd", cwd=str(tmp_path / "sub")).for_llm == str(tmp_path / "sub")


@pytest.mark.parametrize("directory", ["..", "/etc", "~", "a\0b", "missing", "file", "link"])
def test_it_runs_nowhere_else(work, tmp_path, directory):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/etc")
    result = work.bash("pwd", working_dir=directory)
    assert result.failure is not None
    assert result.failure.kind in ("security_error", "not_found", "user_error")


def test_further_roots_are_places_to_run_in(work, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    scope = Scope(workspace=work.scope.workspace, roots=(Root(other),))
    call = ToolCall("bash", {"command": "pwd", "working_dir": str(other)})
    assert asyncio.run(work.executor().execute(call, scope)).for_llm == str(other)


def test_something_can_be_given_to_read(work):
    assert work.bash("cat", stdin="given").for_llm == "given"
    assert work.bash("cat").for_llm == "(no output)"


@pytest.mark.parametrize("command", ["", "  \n", "echo a\0b", "\ud800", "x" * 1_000_000])
def test_what_is_no_command_line_is_an_error(work, command):
    result = work.bash(command)
    assert result.failure is not None
    assert result.failure.kind == "validation_error"


def test_a_command_that_takes_too_long_fails_with_what_it_wrote(work):
    word = mark()
    for seconds in longer(0.3):
        result = work.bash(f"echo so far; setsid sleep {word} & sleep {word}", timeout=seconds)
        if "so far" in result.for_llm:
            break
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    assert f"timed out after {seconds:g} s" in result.for_llm
    assert "so far" in result.for_llm
    assert result.data["timed_out"] is True
    assert result.data["output"] == "so far\n"
    assert until(lambda: not found(word))


def test_a_project_sets_the_time_and_its_limit(work):
    executor = work.executor(timeout=0.2, max_timeout=60.0)
    assert "timed out after 0.2 s" in work.bash("sleep 60", executor=executor).for_llm
    assert work.bash("sleep 0.3", executor=executor, timeout=60).success
    refused = work.bash("true", executor=executor, timeout=61)
    assert refused.failure is not None
    assert refused.failure.kind == "validation_error"


def test_what_goes_on_in_the_background_is_told_and_left_running(work):
    word = mark()
    started = time.monotonic()
    result = work.bash(f"sleep {word} & echo hi", executor=work.executor(sandbox="off"))
    assert time.monotonic() - started < 60
    assert result.data["sandbox"] == "none"
    assert result.for_llm.startswith("hi\n[still running, until the session ends: ")
    assert word in result.data["still_running"][0]
    assert found(word)
    end_started(work.scope.session_id)
    assert until(lambda: not found(word))


def test_it_returns_at_once_however_it_is_confined(work):
    started = time.monotonic()
    assert work.bash("sleep 600 & echo hi").for_llm.startswith("hi")
    assert time.monotonic() - started < 60


def test_output_is_shown_while_it_runs(work, tmp_path):
    seen: list[str] = []
    stream = ActivityStream()

    def listen(event: Event) -> None:
        if isinstance(event, ToolOutput):
            seen.append(event.text)
            (tmp_path / "seen").touch()

    stream.subscribe(listen)
    executor = work.executor(activity=stream)
    result = work.bash("echo 1; until [ -e seen ]; do sleep 0.01; done; echo 2", executor=executor, timeout=60)
    assert result.for_llm == "1\n2"
    assert "".join(seen) == "1\n2\n"


async def test_cancelled_it_leaves_nothing(work):
    word = mark()
    ready, stream = asyncio.Event(), ActivityStream()
    stream.subscribe(lambda _: ready.set(), ToolOutput)
    call = ToolCall("bash", {"command": f"setsid sleep {word} & echo ready; sleep {word}"})
    task = asyncio.create_task(work.executor(activity=stream).execute(call, work.scope))
    await ready.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert until(lambda: not found(word))


def test_long_output_keeps_both_ends_and_says_what_is_missing(work):
    result = work.bash("seq 1000000")
    assert result.for_llm.startswith("1\n2\n3\n")
    assert "\n999999\n1000000\n" in result.for_llm
    assert "lines left out …]" in result.for_llm
    assert " of 1000000 lines shown, 6888896 bytes in all; the whole text is in " in result.for_llm
    assert result.data["truncated"] is True
    assert len(result.for_llm) < 60_000


def test_strange_bytes_are_answered(work):
    result = work.bash(r"printf 'a\xffb\0c'")
    assert result.for_llm == "a\ufffdb␀c"
    assert result.data["output"] == "a\ufffdb\0c"


def test_secrets_stay_here_unless_they_are_passed_through(work, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "t0ken")
    assert work.bash("echo [$MY_TOKEN] $TERM").for_llm == "[] dumb"
    assert work.bash("echo [$MY_TOKEN]", executor=work.executor(env_passthrough=["MY_TOKEN"])).for_llm == "[t0ken]"


def test_another_shell_can_be_set(work):
    assert work.bash("echo $0", executor=work.executor(shell="sh")).for_llm.endswith("sh")
    missing = work.bash("true", executor=work.executor(shell="no-such-shell"))
    assert missing.failure is not None
    assert missing.failure.kind == "config_error"


def test_a_shell_of_the_workspace_is_not_taken(work, tmp_path, monkeypatch):
    fake = tmp_path / "bash"
    fake.write_text("#!/bin/sh\necho fake")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert work.bash("echo real").for_llm == "real"


def test_limits_of_the_project_hold(work):
    assert work.bash("ulimit -n", executor=work.executor(limits={"open_files": 77})).for_llm == "77"
    wrong = work.bash("true", executor=work.executor(limits={"colour": 1}))
    assert wrong.failure is not None
    assert wrong.failure.kind == "config_error"


def test_it_asks_to_execute_the_line(work):
    result = work.bash("touch made", executor=work.executor("allow read"))
    assert result.failure is not None
    assert result.failure.kind == "permission_error"
    assert not (work.scope.workspace / "made").exists()
    assert work.bash("touch made", executor=work.executor("allow execute touch *")).success


def test_a_line_that_only_reads_asks_to_read(work, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    reading = work.executor("allow read", trial="off")
    assert work.bash("cat a.txt", executor=reading).for_llm == "text"
    assert work.bash("cat a.txt | wc -c", executor=reading).success
    assert work.bash("cat $(echo a.txt)", executor=reading).for_llm == "text"
    for line in (
        "cat $(echo a.txt) > b.txt",
        "cat $(touch b.txt)",
        "cat a.txt > b.txt",
        "cat /etc/hostname",
        "sed -i s/a/b/ a.txt",
    ):
        assert work.bash(line, executor=reading).failure is not None


def test_a_denied_path_is_denied_to_a_line_that_only_reads(work, tmp_path):
    (tmp_path / "secret.txt").write_text("s3cret")
    (tmp_path / "open.txt").write_text("text")
    executor = work.executor("allow read", "deny read secret*")
    refused = work.bash("cat secret.txt", executor=executor)
    assert refused.failure is not None
    assert "s3cret" not in refused.for_llm
    assert work.bash("cat open.txt", executor=executor).for_llm == "text"


def test_a_rule_about_executing_counts_for_lines_that_only_read(work, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    refused = work.bash("cat a.txt", executor=work.executor("allow read", "deny execute cat *"))
    assert refused.failure is not None
    assert refused.failure.kind == "permission_error"
    assert work.bash("cat a.txt", executor=work.executor("allow read", "deny execute rm *")).success


@pytest.mark.parametrize("line", ["rm -rf /", "mkfs.ext4 /dev/sda", "dd if=/dev/zero of=/dev/sda", ":(){ :|:& };:"])
@pytest.mark.parametrize("background", [False, True])
def test_what_destroys_is_refused_though_everything_is_allowed(work, monkeypatch, line, background):
    def start(*_: object, **__: object) -> None:
        raise AssertionError("nothing may start, here least of all")

    for place in (
        "forge.process.running.run.start",
        "forge.process.running.jobs.start",
    ):  # should the refusal ever fail
        monkeypatch.setattr(place, start)
    result = work.bash(line, background=background)
    assert result.failure is not None
    assert result.failure.kind == "security_error"


def test_what_only_names_destruction_runs(work):
    assert work.bash('echo "rm -rf /"').for_llm == "rm -rf /"


def test_a_job_is_started_read_and_killed(work, tmp_path):
    started = work.bash("echo one; until [ -e go ]; do sleep 0.01; done; echo two; sleep 60", background=True)
    name = started.data["job_id"]
    assert started.success
    assert name in started.for_llm
    first = work.call("bash_output", id=name, wait=10)
    assert first.data["output"] == "one\n"
    assert first.data["running"] is True
    (tmp_path / "go").touch()
    second = work.call("bash_output", job_id=name, wait=10)
    assert second.for_llm.startswith(f"two\n[{name}: running for")
    listed = work.call("bash_jobs")
    assert [job["job_id"] for job in listed.data["jobs"]] == [name]
    assert name in listed.for_llm
    killed = work.call("bash_kill", id=name)
    assert killed.data["killed"] is True
    assert killed.data["status"] == "killed"
    assert work.call("bash_output", id=name, since=0).data["output"] == "one\ntwo\n"


def test_a_job_that_ended_says_how(work):
    name = work.bash("echo out; exit 4", background=True).data["job_id"]
    for _ in range(3):
        result = work.call("bash_output", id=name, wait=10)
        if not result.data["running"]:
            break
    assert result.data["exit_code"] == 4
    assert "ended, with exit code 4" in result.for_llm


def test_jobs_of_a_session_are_its_own(work):
    name = work.bash("sleep 60", background=True).data["job_id"]
    scope = Scope(session_id="somebody else", workspace=work.scope.workspace)
    for tool in ("bash_output", "bash_kill"):
        result = asyncio.run(work.executor().execute(ToolCall(tool, {"id": name}), scope))
        assert result.failure is not None
        assert result.failure.kind == "not_found"
    assert work.call("bash_jobs").data["jobs"][0]["running"] is True


def test_looking_after_a_job_asks_nobody(work):
    name = work.bash("sleep 60", background=True).data["job_id"]
    strict = work.executor("allow read")
    assert work.call("bash_output", id=name, executor=strict).success
    assert work.call("bash_kill", id=name, executor=strict).success
    assert work.call("bash_jobs", executor=strict).success


async def test_polling_a_job_is_no_loop(work):
    executor = work.executor()
    started = await executor.execute(ToolCall("bash", {"command": "sleep 60", "background": True}), work.scope)
    for _ in range(10):
        call = ToolCall("bash_output", {"id": started.data["job_id"]})
        result = await executor.execute(call, work.scope)
    assert "stop" not in result.data


def test_only_so_many_jobs_run_at_once(work):
    executor = work.executor(max_jobs=1)
    assert work.bash("sleep 60", background=True, executor=executor).success
    refused = work.bash("sleep 60", background=True, executor=executor)
    assert refused.failure is not None
    assert "1 jobs are already running" in refused.for_llm


def test_the_oldest_output_of_a_job_goes_to_a_file_first(work):
    executor = work.executor(max_log_bytes=1_000)
    name = work.bash("seq 100000; echo done; exec sleep 60", background=True, executor=executor).data["job_id"]
    shown = ""
    while "done" not in shown:
        shown = work.call("bash_output", id=name, since=0).for_llm
    assert "bytes before this are not shown" in shown
    assert " of 100001 lines shown, " in shown
    assert len(shown) < 1_500


def test_it_is_never_a_reader_of_the_home_directory(work):
    assert work.bash("echo ${BASH_ENV-none} ${ENV-none}").for_llm == "none none"
    assert Path(work.bash("echo $HOME").for_llm).is_absolute()


@pytest.fixture
def sandboxed(work):
    from forge.process.sandbox import Tier, problem

    if problem(Tier.BUBBLEWRAP):
        pytest.skip(f"needs bubblewrap: {problem(Tier.BUBBLEWRAP)}")
    return work


def test_a_failure_for_want_of_a_network_says_whose_it_is(sandboxed):
    failing = "echo Could not resolve host: example.com; exit 6"
    assert "[programs have no network in this sandbox" in sandboxed.bash(failing).for_llm
    assert sandboxed.bash(failing, executor=sandboxed.executor(network=True)).for_llm.endswith("[exit code 6]")
    assert sandboxed.bash("echo Could not resolve host").for_llm == "Could not resolve host"


def test_it_is_said_also_when_time_is_up(sandboxed):
    for seconds in longer(0.3):
        result = sandboxed.bash("echo Could not resolve host: example.com; sleep 60", timeout=seconds)
        if "resolve host" in result.for_llm:
            break
    assert result.failure.kind == "timeout"
    assert "no network in this sandbox" in result.for_llm


@pytest.mark.parametrize(
    "line", ["sleep 600 & echo hi", "(sleep 60 &) ; echo hi", "nohup sleep 60 >/dev/null & echo hi"]
)
def test_that_nothing_outlives_its_line_in_a_sandbox_is_said(sandboxed, line):
    assert "[in this sandbox, processes end with the command that started them" in sandboxed.bash(line).for_llm


@pytest.mark.parametrize(
    "line", ["true & wait; echo hi", "sleep 60 & kill $!; echo hi", "true && echo hi", "echo 'a & b'"]
)
def test_of_a_line_that_leaves_nothing_that_is_not_said(sandboxed, line):
    assert "sandbox" not in sandboxed.bash(line).for_llm


def test_that_a_job_cannot_be_reached_is_said_when_it_starts(sandboxed):
    assert "cannot connect to it" in sandboxed.bash("sleep 60", background=True).for_llm
    connected = sandboxed.executor(network=True)
    assert "connect" not in sandboxed.bash("sleep 61", background=True, executor=connected).for_llm


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_the_signal_that_ended_a_job_is_named(work, sandbox):
    executor = work.executor(sandbox=sandbox)
    job = work.bash("echo ready; exec sleep 60", background=True, executor=executor).data["job_id"]
    assert "ready" in work.call("bash_output", id=job, wait=10, executor=executor).for_llm
    result = work.call("bash_kill", id=job, executor=executor)
    assert result.data["signal"] == "SIGTERM"
    assert "killed, by SIGTERM" in result.for_llm


async def test_cancelled_it_ends_with_what_it_wrote_until_then(work):
    ends: list[ToolFinished] = []
    written = asyncio.Event()
    activity = ActivityStream(Secrets(["hunter2hunter2"]))
    activity.subscribe(ends.append, ToolFinished)
    activity.subscribe(lambda _: written.set(), ToolOutput)
    call = ToolCall("bash", {"command": "echo so far hunter2hunter2; sleep 60"})
    task = asyncio.create_task(work.executor(activity=activity).execute(call, work.scope))
    await written.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await activity.drain()
    (end,) = ends
    assert end.result.failure is not None
    assert end.result.failure.kind == "cancelled"
    assert "Its output until then:\nso far" in end.result.for_llm
    assert end.result.data["timed_out"] is False
    assert "hunter2hunter2" not in str(end.result.to_dict())


@pytest.mark.parametrize("how", ["ends", "is killed", "is too slow"])
async def test_a_secret_in_two_writes_reaches_no_one_in_halves(work, how, tmp_path):
    activity, seen = ActivityStream(Secrets(["hunter2hunter2"])), list[str]()

    def listen(event: ToolOutput) -> None:
        seen.append(event.text)
        (tmp_path / "seen").touch()

    activity.subscribe(listen, ToolOutput)
    line = "printf 'first hunter2'; until [ -e seen ]; do sleep 0.01; done; printf 'hunter2 then hunter2hun'"
    rest = {"ends": "", "is killed": "; kill -9 $$", "is too slow": "; sleep 60"}[how]
    call = ToolCall("bash", {"command": f"{line}{rest}", "timeout": 5 if how == "is too slow" else 60})
    await work.executor(activity=activity).execute(call, work.scope)
    await activity.drain()
    assert "".join(seen) == "first [secret] then [secret]"
    assert seen[0] == "first "  # at once


async def test_the_output_of_a_job_is_not_read_in_halves_of_a_secret(work, tmp_path):
    tools = [Bash(), BashOutput(), BashKill()]
    executor = standard_executor(tools, policy=rules("allow execute"), secrets=["hunter2hunter2"])

    async def call(tool: str, **arguments: object) -> ToolResult:
        return await executor.execute(ToolCall(tool, arguments), work.scope)

    line = "printf 'first hunter2'; until [ -e go ]; do sleep 0.01; done; printf 'hunter2 then hunter2'; sleep 60"
    job = (await call("bash", command=line, background=True)).data["job_id"]
    first = await call("bash_output", id=job, wait=30)
    assert first.data["output"] == "first "
    (tmp_path / "go").touch()
    second = await call("bash_output", id=job, wait=30)
    assert second.data["output"] == "[secret] then "
    inside = await call("bash_output", id=job, since=len("first hunt"))
    assert inside.data["output"] == "[secret] then "
    after = await call("bash_output", id=job, since=len("first hunter2hunter2"))
    assert after.data["output"] == " then "
    ended = await call("bash_kill", id=job)
    assert ended.data["output"] == "hunter2"
