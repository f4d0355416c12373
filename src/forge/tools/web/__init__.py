"""Parts that the web tools share: content, downloads, pages as Markdown. No tool lives here."""
