"""Parts that the tools which start programs share. No tool lives here."""
