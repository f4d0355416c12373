"""Parts that several tools share: paths, changes of files, listings, confinement, signatures. No tool lives here."""
