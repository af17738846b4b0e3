"""What an exception is about, told by the code that raised it: a table, the settings, a field of a record.

The class alone does not tell: a KeyError of pandas names a column that the data lack, one of ``params["shuffle"]`` a
setting. A traceback quotes both, the file and the line.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.triage.evidence.frames import innermost_file, raising_line
from perdure.triage.evidence.matching import Hit
from perdure.triage.text.patterns import capturing, compiled

_OF_TABLES = (
    r"(?:^|/)(?:pandas/(?:_libs|core)|polars|pyarrow|h5py|xarray|zarr)/"
    r"|/sklearn/utils/(?:validation|multiclass)\.py$|/datasets/(?:dataset_dict|arrow_dataset|builder|load)\.py$"
)
"""Files of libraries that raise where the data are not what was asked of them."""

_BY_DATA = frozenset({"index", "shape", "config"})
"""Categories of an exception that such a library raises about the data handed to it."""

_OF_KEYS, _OF_ATTRIBUTES = "python-index", "python-api"
"""The rules of a bare KeyError, and of a bare AttributeError or TypeError: what others name is not read again."""

_OF_SETTINGS = (
    r"(?i)^_*(?:\w+_)?(?:args?|argv|cfgs?|conf|configs?|configuration|flags|h?params?|opts?|options?|settings?)$"
)
"""Names that programs give to their settings."""

_OF_RECORDS = r"(?i)^_*(?:\w+_)?(?:df|dataframe|table|rows?|records?|columns?|dataset)$"
"""Names of what was read from a file."""

_KEY = r"""^\s*KeyError: (?:'([^']{1,80})'|"([^"]{1,80})")$"""
_ATTRIBUTE = r"^\s*AttributeError: '\w+' object has no attribute '(\w{1,80})'"
_LOOKUPS = b"['%s']", b'["%s"]'
_NAME_BEFORE = r"([A-Za-z_]\w*)(?:\[[^\[\]]{0,80}\])*$"


def subject_of(primary: Hit) -> str | None:
    """The category of what an exception is about; None where its code does not tell."""
    cause, line = primary.cause, primary.text.encode().rstrip()
    attribute = capturing(_ATTRIBUTE).search(line) if cause.name == _OF_ATTRIBUTES else None
    of_data = cause.wider in _BY_DATA or cause.name == _OF_ATTRIBUTES
    if of_data and not attribute and compiled(_OF_TABLES).search(innermost_file(primary)):
        return "data"
    key = capturing(_KEY).search(line) if cause.name == _OF_KEYS else None
    if key is None and attribute is None:
        return None
    source = raising_line(primary)
    forms = [b"." + attribute[1]] if attribute else [form % (key[1] or key[2]) for form in _LOOKUPS] if key else []
    owner = _owner(source, forms)
    if owner and compiled(_OF_SETTINGS).search(owner):
        return "config"
    if owner and compiled(_OF_RECORDS).search(owner):
        return "data"
    return "api" if key and b"[" in source else None


def _owner(source: bytes, forms: Sequence[bytes]) -> bytes:
    """The name of what is asked for a field, in one of these forms, in a line of source; b"" where no plain name is."""
    at = max(source.find(form) for form in forms)
    found = capturing(_NAME_BEFORE).search(source[:at]) if at > 0 else None
    return found[1] if found else b""
