"""Parts that several file tools share. No tool lives here."""
