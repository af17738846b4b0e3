"""SMTP on a connection that was checked, and its errors with the server's words, but for those on a login."""

from __future__ import annotations

import smtplib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perdure.errors import NotDelivered, NoticeRefused, PerdureError
from perdure.service.notices.notice import of_text

MAX_WORDS = 200  # characters of what a server says
LOG = "See the mail server's log"


class Connected(smtplib.SMTP):
    """SMTP on a connection that is there already."""

    def __init__(self, sock: socket.socket, host: str, timeout_s: float) -> None:
        self._given = sock
        super().__init__(host, 25, local_hostname="localhost", timeout=timeout_s)

    def _get_socket(self, host: str, port: int, timeout: float) -> Any:  # noqa: ARG002
        return self._given


@contextmanager
def told_as(host: str) -> Iterator[None]:
    """What goes wrong; a code from 500 on is a refusal for good.

    What a server says of a login may repeat it, and is not shown.
    """
    try:
        yield
    except PerdureError:
        raise
    except smtplib.SMTPAuthenticationError as err:
        raise _error(err.smtp_code)(host, f"refused the login ({err.smtp_code})", "See login and the password") from err
    except smtplib.SMTPRecipientsRefused as err:
        code, words = min(err.recipients.values())  # any that may still be taken is worth another try
        raise _error(code)(host, f"refused every address: {_said(code, words)}", "See `to`") from err
    except smtplib.SMTPResponseException as err:
        raise _error(err.smtp_code)(host, f"answered {_said(err.smtp_code, err.smtp_error)}", LOG) from err
    except smtplib.SMTPNotSupportedError as err:
        raise NotDelivered(host, f"offers less than is asked for: {str(err).rstrip('.')}", "See tls and login") from err
    except (smtplib.SMTPException, OSError, ValueError) as err:
        raise NotDelivered(host, f"mail cannot be sent ({type(err).__name__})", LOG) from err


def _error(code: int) -> type[NotDelivered]:
    return NoticeRefused if code >= 500 else NotDelivered


def _said(code: int, words: bytes | str) -> str:
    """The server's answer on one line; what smtplib makes up has no code."""
    text = words.decode("utf-8", "replace") if isinstance(words, bytes) else words
    return of_text(f"{code} {text}".strip(), MAX_WORDS).rstrip(".")
