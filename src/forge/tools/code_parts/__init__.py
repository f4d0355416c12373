"""Parts that the tools of code mode share. No tool lives here."""
