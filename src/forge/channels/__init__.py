"""Delivers text and files to people: terminal, file, webhook, Slack, Telegram; the last two also receive."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge.channels.channel import Button as Button
    from forge.channels.channel import Channel as Channel
    from forge.channels.channel import Channels as Channels
    from forge.channels.channel import Incoming as Incoming
    from forge.channels.channel import IncomingFile as IncomingFile
    from forge.channels.channel import Receive as Receive
    from forge.channels.channel import Receiver as Receiver
    from forge.channels.channel import TakesRequests as TakesRequests
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
