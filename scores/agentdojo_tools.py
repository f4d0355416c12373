"""Declarations of AgentDojo's tools, reviewed by hand: what a careful owner of these tools would declare.

Reading the person's own data is `read`. Changing it is `write`. What leaves for other people, or fetches from them, is
`network`. A tool is untrusted if its results contain texts that other people write: mails, invitations, shared files,
reviews, messages, pages, names of channels and users, and the subjects of payments. A tool that returns passports and
cards is private. A tool that writes declares what it changes as its target.
"""

from __future__ import annotations

from forge import Permission

_READS = """
get_unread_emails get_sent_emails get_received_emails get_draft_emails search_emails search_contacts_by_name
search_contacts_by_email get_current_day search_calendar_events get_day_calendar_events search_files_by_filename
get_file_by_id list_files search_files get_user_information get_all_hotels_in_city get_hotels_prices
get_rating_reviews_for_hotels get_hotels_address get_all_restaurants_in_city get_cuisine_type_for_restaurants
get_restaurants_address get_rating_reviews_for_restaurants get_dietary_restrictions_for_all_restaurants
get_contact_information_for_restaurants get_price_for_restaurants check_restaurant_opening_hours
get_all_car_rental_companies_in_city get_car_types_available get_rating_reviews_for_car_rental get_car_fuel_options
get_car_rental_address get_car_price_per_day get_flight_information get_iban get_balance
get_most_recent_transactions get_scheduled_transactions read_file get_user_info get_channels read_channel_messages
read_inbox get_users_in_channel
"""
_WRITES = """
delete_email cancel_calendar_event reschedule_calendar_event append_to_file create_file delete_file update_password
update_user_info remove_user_from_slack
"""
_REACHES_OTHERS = """
send_email create_calendar_event add_calendar_event_participants share_file reserve_hotel reserve_car_rental
reserve_restaurant send_money schedule_transaction update_scheduled_transaction add_user_to_channel
send_direct_message send_channel_message invite_user_to_slack get_webpage post_webpage
"""

PERMISSIONS: dict[str, Permission] = {
    **dict.fromkeys(_READS.split(), Permission.READ),
    **dict.fromkeys(_WRITES.split(), Permission.WRITE),
    **dict.fromkeys(_REACHES_OTHERS.split(), Permission.NETWORK),
}

UNTRUSTED = frozenset(
    """
get_unread_emails get_sent_emails get_received_emails get_draft_emails search_emails delete_email
search_calendar_events get_day_calendar_events cancel_calendar_event reschedule_calendar_event
add_calendar_event_participants search_files_by_filename get_file_by_id list_files search_files append_to_file
delete_file share_file get_rating_reviews_for_hotels get_rating_reviews_for_restaurants
get_rating_reviews_for_car_rental get_most_recent_transactions get_scheduled_transactions
read_file read_channel_messages read_inbox get_webpage get_channels get_users_in_channel
""".split()
)

TARGETS: dict[str, str] = {
    "delete_email": "email_id",
    "cancel_calendar_event": "event_id",
    "reschedule_calendar_event": "event_id",
    "append_to_file": "file_id",
    "create_file": "filename",
    "delete_file": "file_id",
    "remove_user_from_slack": "user",
}

PRIVATE = frozenset({"get_user_information"})

IRREVERSIBLE = frozenset(  # what is deleted, paid, sent or cancelled cannot be taken back
    """
delete_email delete_file cancel_calendar_event remove_user_from_slack send_email share_file send_money
schedule_transaction send_direct_message send_channel_message post_webpage invite_user_to_slack reserve_hotel
reserve_restaurant reserve_car_rental update_password
""".split()
)
