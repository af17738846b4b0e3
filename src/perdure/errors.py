"""Every exception that Perdure raises on purpose: where it is, what is wrong, how to fix it."""


class PerdureError(Exception):
    """Base of every error raised on purpose.

    ``perdure.toml:3: unknown key 'polls_s'. Use one of: poll_s, port, state.``
    """

    def __init__(self, where: str, what: str, fix: str) -> None:
        super().__init__(where, what, fix)  # all three in args: the error survives copying between processes

    @property
    def where(self) -> str:
        return str(self.args[0])

    @property
    def what(self) -> str:
        return str(self.args[1])

    @property
    def fix(self) -> str:
        return str(self.args[2])

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.fix}."


class InputError(PerdureError, ValueError):
    """A file, argument or request breaks its format."""


class ConfigError(PerdureError, ValueError):
    """A setting is unknown or has a value that cannot be used."""


class StateError(PerdureError):
    """The state directory or the journal in it cannot be used as it is."""


class InUse(StateError):
    """Another service has the journal open; it is free once that one ends."""


class TakenOver(InUse):
    """Another service has taken the journal over; what this one remembers is old."""


class LogRefused(PerdureError):
    """A log file is not one that may be read: a link, a device, or somebody else's."""


class ClusterError(PerdureError):
    """The resource manager refused; asking again cannot help."""


class ClusterBusy(PerdureError):
    """The resource manager did not answer; asking again may help, and what was asked may have been done."""


class JobBusy(ClusterBusy):
    """The resource manager answers, but takes no change of this one job now."""


class NotPermitted(PerdureError):
    """The token is wrong, or its role may not do this."""


class NotFound(PerdureError, LookupError):
    """No job, node or action of that name is known."""


class NotDelivered(PerdureError):
    """A notice did not reach its target; trying again may help."""


class NoticeRefused(NotDelivered):
    """The target answered that it does not take this notice: the same again would be refused again."""


class MissingExtra(PerdureError, ImportError):
    """A command needs an optional part that is not installed."""


class ForecastFailed(PerdureError):
    """It could not be said when waiting jobs start; trying again may help."""


class Fenced(PerdureError):
    """A newer incarnation of this job has taken over; this one must not write."""


class Unauthenticated(PerdureError):
    """Nobody that is known asks."""


class TooMany(PerdureError):
    """More was asked for at a time than is given."""
