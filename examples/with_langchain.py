"""Our tools in a loop of LangChain's, and a LangChain tool among them. A real model takes the fake one's place."""

from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool as langchain_tool

from forge import rules, tool_group
from forge.frameworks.langchain import from_langchain, to_langchain


@langchain_tool
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


ours = [*tool_group("code-agent"), from_langchain(shout, permissions=())]
tools = {one.name: one for one in to_langchain(ours, policy=rules("allow read", "deny write"))}
calls = [("shout", {"text": "hello"}), ("file_write", {"path": "a.txt", "content": ""})]
asked = [{"name": name, "args": arguments, "id": name} for name, arguments in calls]
model = FakeMessagesListChatModel(responses=[AIMessage("", tool_calls=asked), AIMessage("Said, not written.")])

messages: list[BaseMessage] = [HumanMessage("Say hello and write it down")]
while isinstance(answer := model.invoke(messages), AIMessage) and answer.tool_calls:  # a real one: model.bind_tools(…)
    messages += [answer, *(tools[call["name"]].invoke(call) for call in answer.tool_calls)]
print(*(f"{message.type}: {message.content}" for message in [*messages, answer]), sep="\n")
