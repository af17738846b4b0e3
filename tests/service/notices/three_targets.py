"""A drained node that one target was told of, another refused to hear of, and a third does not answer for."""

from __future__ import annotations

from pathlib import Path

from perdure.model.nodes import NodeState
from perdure.service.notices.channels.webhook import Webhook
from perdure.service.notices.notifier import Notifier
from perdure.service.notices.secrets import Secret
from perdure.service.notices.settings import NoticesSettings, Targets
from tests.copying import replace
from tests.service.notices.receivers import receiving
from tests.service.web_world import World


def tell(world: World, folder: Path, reason: str = "<b>fan</b>") -> None:
    """Drain gpu02 for `reason`, and try to tell targets ops, tickets and phone of it; `folder` is the state's."""
    with receiving() as takes, receiving(410) as refuses, receiving(503) as fails:
        urls = {"ops": takes.url, "tickets": refuses.url, "phone": fails.url}
        targets = Targets({name: Webhook(Secret(value=url)) for name, url in urls.items()})
        settings = NoticesSettings(targets=targets, group_s=0.0, disk_low_mib=0)
        notifier = Notifier(world.journal.store, world.cluster, settings, folder, "", lambda: world.now)
        notifier.begin()
        world.nodes["gpu02"] = replace(world.nodes["gpu02"], state=NodeState.DRAINED, reason=reason)
        world.look()
        notifier.gather()
        for target in urls:
            assert notifier.send(target)
