"""Tools of other frameworks as ours (`from_…`), and ours as theirs (`to_…`): LangChain, OpenAI Agents, pydantic-ai."""
