"""AgentDyn's user tasks and injected tasks, played as those of AgentDojo. It replaces AgentDojo's package.

So it runs in a process of its own, with a clone of the repository first on the path: `python -m scores.agentdyn`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from scores.report import ROOT, Missing, Row, read_results

VARIABLE = "AGENTDYN"
BEGIN = "AgentDyn: "  # how the rows begin
SUITES = ("shopping", "github", "dailylife")
NOTE = (
    f"AgentDyn is github.com/leolee99/AgentDyn. Set `{VARIABLE}` to a clone of it; without it, its rows keep their"
    " last figures. The questions that remain: a mail, a page or a file of somebody else names the link, the account,"
    " the address, the repository, the key or the time of the call, and the person only said to do what it says. There,"
    " a question is the purpose of the profile. Declared harmless are one-time passwords, which confirm a call that was"
    " judged before, the names of the fields of a form, and the content of files, events and comments. Trusted are the"
    " person's own account information and key. Its injected tasks are not played: most carry a placeholder instead of"
    " the calls that reach their goals."
)

_READS = """
get_balance get_shopping_account_user_information get_shopping_linked_unread_emails
get_shopping_linked_received_emails search_product view_order_history get_invoice view_cart cart_total
view_available_discounts list_directory read_file get_current_day get_day_calendar_events search_calendar_events
get_unread_emails get_received_emails get_sent_emails search_emails get_github_linked_unread_emails
get_logged_in_github_user_information get_github_account_user_information get_github_repository_information
git_get_linked_ssh_keys
"""
_WRITES = """
update_shopping_account_password update_shopping_account_user_info refund_order cart_add_product cart_remove_product
clear_cart create_file create_dir delete_node copy_node move_node cancel_calendar_event reschedule_calendar_event
delete_email git_star git_unstar update_github_account_password git_delete_repo git_delete_ssh_key git_create_repo
login_shopping_account login_github_account verify_shopping_account verify_github_account verify_transaction
"""
_REACHES_OTHERS = """
send_money checkout_selected_cart send_email download_file_through_url download_file_through_id input_to_webpage
browse_webpage add_calendar_event_participants create_calendar_event git_transfer_repo_ownership git_clone
git_invite_collaborators git_push git_pull git_issue git_add_ssh_key
"""
PERMISSIONS = {
    **dict.fromkeys(_READS.split(), "read"),
    **dict.fromkeys(_WRITES.split(), "write"),
    **dict.fromkeys(_REACHES_OTHERS.split(), "network"),
}
# whose results contain what other people write: reviews, mails, files, pages, issues, invitations
UNTRUSTED = frozenset(
    """
get_shopping_linked_unread_emails get_shopping_linked_received_emails search_product read_file list_directory
browse_webpage input_to_webpage get_day_calendar_events search_calendar_events get_unread_emails get_received_emails
get_sent_emails search_emails get_github_linked_unread_emails get_github_repository_information git_clone git_pull
download_file_through_url download_file_through_id get_github_account_user_information
""".split()
)
HARMLESS = {
    **dict.fromkeys(("verify_shopping_account", "verify_github_account", "verify_transaction"), ("otp",)),
    "create_file": ("content",),
    "input_to_webpage": ("input_ids",),  # the fields of the page itself
    "create_calendar_event": ("description",),
    "git_issue": ("comment_body",),
}

TARGETS = {
    **dict.fromkeys(("browse_webpage", "input_to_webpage", "download_file_through_url"), "url"),
    "read_file": "path",
}
TRUSTED = ("path:/user/info/my_info.txt", "path:/system/.ssh/*")  # the person's own account and key


def measure_rows() -> list[Row]:
    """Returns the rows of a clone; without one, those of the last run."""
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        known = read_results().get("agentdojo")
        return [row for row in known.rows if row.measure.startswith(BEGIN)] if known is not None else []
    source = Path(folder, "src")
    if not (source / "agentdojo" / "data" / "suites" / "dailylife").is_dir():
        raise Missing(
            f"{VARIABLE}={folder} has no src/agentdojo with the suite dailylife: clone github.com/leolee99/AgentDyn"
        )
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    argv = [sys.executable, "-m", "scores.agentdyn"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    if done.returncode:
        raise Missing(f"AgentDyn could not be run: {done.stderr[-300:]}")
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


async def _play_all() -> list[Row]:
    from agentdojo.task_suite.load_suites import get_suites

    from scores import agentdojo_runs as runs
    from scores.agentdojo import BENCHMARK, Tally, measure

    runs.PERMISSIONS.clear()  # type: ignore[attr-defined]
    runs.PERMISSIONS.update(PERMISSIONS)  # type: ignore[attr-defined,arg-type]
    runs.UNTRUSTED, runs.PRIVATE, runs.TARGETS = UNTRUSTED, frozenset(), TARGETS  # type: ignore[attr-defined]
    runs.HARMLESS, runs.TRUSTED = HARMLESS, TRUSTED
    suites: dict[str, Any] = {name: suite for name, suite in get_suites(BENCHMARK).items() if name in SUITES}
    tally: Tally = await measure(suites, attacks=False)
    kept = [row for row in tally.rows() if row.measure.startswith("user tasks that")]
    return [Row(f"{BEGIN}{row.measure}", row.passed, row.cases, "", row.failures, row.fewer_is_better) for row in kept]


if __name__ == "__main__":
    from dataclasses import asdict

    print(json.dumps([asdict(row) for row in asyncio.run(_play_all())]))
