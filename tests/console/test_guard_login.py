"""A link works once, a cookie counts for a while, and a page's token belongs to its cookie."""

from __future__ import annotations

from forge.console.guard import OPEN, STAYS, Entrance, new_key


def test_a_link_becomes_a_cookie():
    entrance = Entrance(new_key(), "born")
    cookie = entrance.enter(entrance.new_link())
    assert cookie is not None
    assert entrance.knows(cookie)


def test_a_link_works_once():
    entrance = Entrance(new_key(), "born")
    link = entrance.new_link()
    assert entrance.enter(link) is not None
    assert entrance.enter(link) is None


def test_a_link_is_too_old_after_ten_minutes_and_a_cookie_after_a_week():
    now = [1_000_000.0]
    entrance = Entrance(new_key(), "born", lambda: now[0])
    late, link = entrance.new_link(), entrance.new_link()
    cookie = entrance.enter(link)
    assert cookie is not None
    now[0] += OPEN + 1
    assert entrance.enter(late) is None
    assert entrance.knows(cookie)
    now[0] += STAYS
    assert not entrance.knows(cookie)


def test_links_of_an_earlier_server_do_not_work_but_its_cookies_do():
    key = new_key()
    before, after = Entrance(key, "one"), Entrance(key, "two")
    cookie = before.enter(before.new_link())
    assert cookie is not None
    assert after.enter(before.new_link()) is None
    assert after.knows(cookie)
    assert after.page_token(cookie) == before.page_token(cookie)


def test_nothing_stands_for_something_else():
    entrance = Entrance(new_key(), "born")
    link = entrance.new_link()
    cookie = entrance.enter(entrance.new_link())
    assert cookie is not None
    assert not entrance.knows(link)
    assert entrance.enter(cookie) is None
    assert not entrance.is_page_token(cookie, cookie)
    assert not entrance.is_page_token(cookie, entrance.look_key(cookie))
    assert not entrance.is_look_key(cookie, entrance.page_token(cookie))
    assert entrance.is_page_token(cookie, entrance.page_token(cookie))
    assert entrance.is_look_key(cookie, entrance.look_key(cookie))


def test_what_was_changed_or_signed_by_others_is_refused():
    entrance, other = Entrance(new_key(), "born"), Entrance(new_key(), "born")
    link = entrance.new_link()
    longer = f"9{link}"
    for wrong in (longer, link[:-1], link + "0", "", ".", "..", "é" * 10, other.new_link(), "9999999999.x."):
        assert entrance.enter(wrong) is None
    assert entrance.enter(link) is not None
