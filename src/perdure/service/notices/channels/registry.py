"""All channels, by the word that a target in the settings gives as its `kind`."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.service.notices.channels.mail import Mail
from perdure.service.notices.channels.ntfy import Ntfy
from perdure.service.notices.channels.protocol import Channel
from perdure.service.notices.channels.slack import Slack
from perdure.service.notices.channels.webhook import Webhook

CHANNELS: Mapping[str, type[Channel]] = {
    "webhook": Webhook,
    "mail": Mail,
    "slack": Slack,
    "ntfy": Ntfy,
}
