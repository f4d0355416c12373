"""Delivers text and files to people: on the terminal, in a file, to a webhook, Slack or Telegram."""
