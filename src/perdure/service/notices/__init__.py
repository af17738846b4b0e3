"""Notices: what happened, told to people by webhook, mail, chat or push message."""
