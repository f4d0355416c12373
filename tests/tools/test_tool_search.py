"""Finding tools among a thousand."""

from __future__ import annotations

import time

import pytest

from forge.core.registry import REVEALED_TURNS
from forge.core.tool import Tool
from forge.tools import tool_search as module
from forge.tools.tool_search import ToolIndex, VectorRanking, weigh_words


@pytest.fixture(scope="module")
def thousand():
    """Hidden tools, three of which mean something."""
    return [
        raw("github_create_pull_request", "Open a pull request from a branch.", "base_branch", "title"),
        raw("github_list_issues", "List the open issues of a repository.", "label"),
        raw("weather_forecast", "Tell tomorrow's weather for a city.", "city"),
        *(raw(f"filler_{n}", f"Do the thing with the number {n}.", "value") for n in range(997)),
    ]


@pytest.fixture
def many(bench, thousand):
    """The built-ins and a thousand hidden tools."""
    bench.registry.add(*thousand)
    return bench


def raw(name, description, *parameters, hidden=True):
    schema = {"type": "object", "properties": {key: {"type": "string"} for key in parameters}}
    return Tool.from_schema(name, description, schema, lambda **_: "ran", hidden=hidden)


def names(result):
    return [found["name"] for found in result.data["tools"]]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("create pull request", "github_create_pull_request"),
        ("pull requests", "github_create_pull_request"),
        ("issue", "github_list_issues"),
        ("weather", "weather_forecast"),
        ("city", "weather_forecast"),
        ("baseBranch", "github_create_pull_request"),
        ("generate a uuid", "uuid_generate"),
        ("arithmetic expression", "math_calculate"),
        ("weather_forecast", "weather_forecast"),
        ("Filler_500", "filler_500"),
        ("message", "send_message"),
    ],
)
def test_words_find_the_tool_that_is_meant(many, query, best):
    assert names(many.call("tool_search", query=query))[0] == best


def test_the_answer_is_a_line_for_each_tool(many):
    result = many.call("tool_search", query="weather tomorrow")
    assert result.for_llm == "- `weather_forecast` - Tell tomorrow's weather for a city."


def test_a_hidden_tool_is_shown_for_a_few_turns_after_it_was_found(many):
    assert "weather_forecast" not in shown(many)
    many.call("tool_search", query="weather")
    assert "weather_forecast" in shown(many)
    assert "github_list_issues" not in shown(many)
    for _ in range(REVEALED_TURNS):
        many.registry.next_turn("bench")
    assert "weather_forecast" not in shown(many)


def test_another_session_does_not_see_it(many):
    many.call("tool_search", query="weather")
    assert "weather_forecast" not in {spec.name for spec in many.registry.specs("other")}


def test_a_thousand_hidden_tools_cost_the_model_nothing(many):
    assert len(many.registry) > 1_000
    assert len(many.registry.definitions(session_id="bench")) < 50


def test_no_more_than_asked_for_come_back_and_the_rest_is_counted(many):
    result = many.call("tool_search", query="thing", max_results=3)
    assert len(names(result)) == 3
    assert result.data["truncated"] is True
    assert f"3 of {result.data['total']}" in result.for_llm
    assert len(shown(many) & set(names(result))) == 3


def test_nothing_found_is_said_and_is_no_error(many):
    result = many.call("tool_search", query="zzzzqqq")
    assert result.success
    assert result.data["tools"] == []
    assert "No tool matches" in result.for_llm


def test_it_does_not_find_itself(many):
    assert "tool_search" not in names(many.call("tool_search", query="find tools by what they do", max_results=50))


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("^github_", ["github_create_pull_request", "github_list_issues"]),
        ("WEATHER", ["weather_forecast"]),
        ("weather|issues of", ["weather_forecast", "github_list_issues"]),
        (r"filler_99[78]?\b", ["filler_99"]),
        ("base_branch", ["github_create_pull_request"]),
    ],
)
def test_a_pattern_finds_every_match_with_hits_in_the_name_first(many, pattern, found):
    assert names(many.call("tool_search", query=pattern, regex=True)) == found


@pytest.mark.parametrize("pattern", ["(", "[a-", "*", r"(?=x)", r"(a)\1", "a{99999999999}", "(?P<x", "\\", "a)(b"])
def test_a_pattern_that_cannot_be_used_is_refused(refusal, pattern):
    failure = refusal("tool_search", query=pattern, regex=True)
    assert failure.kind == "validation_error"
    assert "pattern" in failure.message
    assert "\n" not in failure.message


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(.*)*x$", "(a|aa)+$", "(x+x+)+y", "((a{100}){100}){100}", "(.|a)*" * 50]
)
def test_a_hostile_pattern_is_answered_at_once(many, pattern):
    many.registry.add(raw("long", "a" * 50_000 + "!", hidden=False))
    started = time.process_time()
    many.call("tool_search", query=pattern, regex=True)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("query", ["", "  ", "x" * 1_001])
def test_an_empty_or_endless_query_is_refused(refusal, query):
    assert refusal("tool_search", query=query).kind == "validation_error"


@pytest.mark.parametrize("count", [0, -1, 51])
def test_a_number_of_results_out_of_range_is_refused(refusal, count):
    assert refusal("tool_search", query="x", max_results=count).kind == "validation_error"


def test_a_tool_added_later_is_found_and_a_removed_one_is_not(many):
    assert names(many.call("tool_search", query="submarine")) == []
    many.registry.add(raw("dive", "Steer the submarine."))
    assert names(many.call("tool_search", query="submarine")) == ["dive"]
    many.registry.remove("dive")
    assert names(many.call("tool_search", query="submarine")) == []


def test_only_new_and_changed_tools_are_indexed(many, monkeypatch):
    read = []

    def note(tool):
        read.append(tool.spec.name)
        return weigh_words(tool)

    monkeypatch.setattr(module, "weigh_words", note)
    for query in ("weather", "issue", "pull"):
        many.call("tool_search", query=query)
    assert sorted(read) == sorted(set(many.registry) - {"tool_search", "run_code"}), "each tool once"
    read.clear()
    many.registry.add(raw("dive", "Steer the submarine."), raw("weather_forecast", "Guess.", hidden=True), replace=True)
    many.registry.remove("filler_1")
    assert names(many.call("tool_search", query="submarine")) == ["dive"]
    assert names(many.call("tool_search", query="weather")) == ["weather_forecast"]
    assert names(many.call("tool_search", query="tomorrow")) == []
    assert sorted(read) == ["dive", "weather_forecast"]


def test_an_index_that_grew_ranks_like_a_new_one(thousand):
    grown, new = ToolIndex(), ToolIndex()
    for size in (1, 10, 900, 950, 1_000, 20, 25, 1_000):
        grown.update(by_name(thousand[:size]))
    new.update(by_name(thousand))
    for query in ("weather tomorrow", "list the open issues", "thing 37", "filler_500"):
        ours, fresh = grown.rank_by_words(query), new.rank_by_words(query)
        assert [hit.tool.spec.name for hit in ours[0]] == [hit.tool.spec.name for hit in fresh[0]]
        assert ours[1] == fresh[1]


def test_words_of_any_script_are_found(bench):
    bench.registry.add(raw("translate", "Übersetzt Texte, переводит тексты, 翻訳.", hidden=False))
    for query in ("übersetzt", "ПЕРЕВОДИТ", "翻訳"):
        assert names(bench.call("tool_search", query=query)) == ["translate"]


def test_an_empty_registry_has_nothing_to_find(bench):
    index = ToolIndex()
    index.update({})
    assert index.rank_by_words("anything") == ([], 0)
    assert index.find_matching(".*") == ([], 0)


def shown(bench):
    return {spec.name for spec in bench.registry.specs("bench")}


def test_words_of_parameters_and_choices_find_a_tool_and_common_words_do_not(bench):
    schema = {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["espresso", "cappuccino"]},
            "where": {"type": "object", "properties": {"room": {"type": "string", "description": "Its storey."}}},
        },
    }
    brew = Tool.from_schema("brew", "Make a drink.", schema, lambda **_: "ran")
    other = Tool.from_schema("what_can_you_do", "Tell what I can do for you.", {"type": "object"}, lambda: "ran")
    bench.registry.add(brew, other)
    for query in ("espresso", "could you get me a cappuccino please", "which storey"):
        assert names(bench.call("tool_search", query=query))[0] == "brew"
    assert names(bench.call("tool_search", query="what can you do"))[0] == "what_can_you_do"


class Topics:
    """Vectors by topic: each topic is a direction, and its words point there."""

    topics = ("weather forecast rain umbrella sunny", "pull request branch merge code", "issue bug defect")

    def __init__(self):
        self.texts = []

    def __call__(self, texts):
        self.texts += texts
        return [[self._count(text, topic) for topic in self.topics] for text in texts]

    def _count(self, text, topic):
        return sum(word in text.lower() for word in topic.split())


def test_an_embedder_finds_tools_that_share_no_word_with_the_query(bench):
    bench.registry.add(raw("weather_forecast", "Tell what tomorrow brings.", "city"), raw("dive", "Steer a boat."))
    assert names(bench.call("tool_search", query="do I need an umbrella")) == []
    search(bench).rank_by_meaning(Topics())
    assert names(bench.call("tool_search", query="do I need an umbrella")) == ["weather_forecast"]
    assert "weather_forecast" in shown(bench)
    assert names(bench.call("tool_search", query="zzzzqqq")) == []


def test_an_embedder_reorders_what_the_words_found_but_an_exact_name_stays_first(many):
    many.registry.add(
        raw("umbrella", "Sell the thing."), raw("forecast_rain", "Tell the weather: a sunny thing.", "umbrella")
    )
    assert names(many.call("tool_search", query="umbrella thing"))[0] == "umbrella"
    search(many).rank_by_meaning(Topics())
    assert names(many.call("tool_search", query="rain thing, sunny forecast, umbrella"))[0] == "forecast_rain"
    assert names(many.call("tool_search", query="umbrella"))[0] == "umbrella"


def test_the_vector_of_a_tool_is_made_once_and_shared_with_selections(many):
    embed = Topics()
    search(many).rank_by_meaning(embed)
    many.call("tool_search", query="weather")
    many.call("tool_search", query="weather in a city")
    assert len(embed.texts) == len(set(embed.texts))
    assert "weather in a city" in embed.texts
    selected = many.registry.select(lambda spec: True)
    assert selected["tool_search"]._ranking is search(many)._ranking


def test_a_thousand_tools_are_not_all_embedded(many):
    embed = Topics()
    search(many).rank_by_meaning(embed)
    many.call("tool_search", query="weather")
    assert len(embed.texts) < 60


def test_an_embedder_that_fails_leaves_the_words(many, caplog):
    def fail(texts):
        raise RuntimeError("no weights")

    search(many).rank_by_meaning(fail)
    assert names(many.call("tool_search", query="weather")) == ["weather_forecast"]
    assert names(many.call("tool_search", query="weather city")) == ["weather_forecast"]
    assert caplog.text.count("no weights") == 1


def test_a_slow_embedder_ranks_only_what_it_has_time_for(thousand):
    index = ToolIndex()
    index.update(by_name(thousand))
    hits, total = index.rank_by_words("the thing with the number")
    embed = Topics()
    ranked = VectorRanking(embed, seconds=0.0).rank("the thing", hits, index.tools)
    assert len(embed.texts) == 1 + 8
    assert {hit.tool.spec.name for hit in ranked} == {hit.tool.spec.name for hit in hits}
    assert total == 997


def search(bench):
    return bench.registry["tool_search"]


def by_name(tools):
    return {tool.spec.name: tool for tool in tools}


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("look something up for March 5th", "date"),
        ("look something up at 8:30 pm", "time"),
        ("look something up in Paris", "city"),
        ("look up https://x.example/y", "url"),
        ("look up ann@home.example", "email"),
    ],
)
def test_a_value_finds_the_tool_that_takes_such_values(query, parameter):
    def one(name: str, key: str) -> Tool:
        schema = {"type": "object", "properties": {key: {"type": "string"}}}
        return Tool.from_schema(name, "Look something up.", schema, lambda **given: "")

    index = ToolIndex()
    index.update({"lookup_a": one("lookup_a", "color"), "lookup_b": one("lookup_b", parameter)})
    assert [hit.tool.spec.name for hit in index.rank_by_words(query)[0]][:1] == ["lookup_b"]
    assert [hit.tool.spec.name for hit in index.rank_by_words("the color")[0]][:1] == ["lookup_a"]
    alone = query.replace("look", "").replace("something", "").replace("up", "")
    assert index.rank_by_words(alone)[1] == 0, "a value alone finds nothing"
