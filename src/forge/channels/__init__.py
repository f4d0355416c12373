"""Delivers text and files to people: on the terminal, in a file, to a webhook, Slack or Telegram."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge.channels.channel import Channel as Channel
    from forge.channels.channel import Channels as Channels
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
