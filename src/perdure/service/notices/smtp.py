"""SMTP on a connection that was checked, and its errors without the server's words."""

from __future__ import annotations

import smtplib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perdure.errors import NotDelivered, PerdureError


class Connected(smtplib.SMTP):
    """SMTP on a connection that is there already."""

    def __init__(self, sock: socket.socket, host: str, timeout_s: float) -> None:
        self._given = sock
        super().__init__(host, 25, local_hostname="localhost", timeout=timeout_s)

    def _get_socket(self, host: str, port: int, timeout: float) -> Any:  # noqa: ARG002
        return self._given


@contextmanager
def told_as(host: str) -> Iterator[None]:
    """What goes wrong, without what the server said: it may repeat what it was sent."""
    try:
        yield
    except PerdureError:
        raise
    except smtplib.SMTPAuthenticationError as err:
        raise NotDelivered(host, f"refused the login ({err.smtp_code})", "See login and the password") from err
    except smtplib.SMTPRecipientsRefused as err:
        raise NotDelivered(host, "refused every address", "See `to`") from err
    except smtplib.SMTPResponseException as err:
        raise NotDelivered(host, f"answered {err.smtp_code}", "See the mail server's log") from err
    except (smtplib.SMTPException, OSError, ValueError) as err:
        raise NotDelivered(host, f"mail cannot be sent ({type(err).__name__})", "See the mail server's log") from err
