"""Where text and files are delivered: the terminal, a file, a webhook, Slack, Telegram."""
