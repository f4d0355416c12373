"""The server over HTTP as a protected resource: it accepts the access tokens of an authorization server."""
