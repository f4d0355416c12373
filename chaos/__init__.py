"""Workers killed and paused by chance while runs go on: every run must finish, and nothing may happen twice."""
