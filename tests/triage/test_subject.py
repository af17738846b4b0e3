"""What an exception is about, by the file that raised it and by whom its line asks."""

import pytest

from perdure.triage.judge import judge

HEAD = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 3, in <module>\n    run()\n'
LIBRARY = '  File "/opt/env/lib/python3.11/site-packages/{}", line 97, in checked\n    raise ValueError(message)\n'
OWN = '  File "/home/ada/model.py", line 9, in run\n    {}\n'


def category(log: str) -> str:
    return judge(log.encode()).category


@pytest.mark.parametrize("file", ["pandas/core/indexes/base.py", "datasets/dataset_dict.py", "h5py/_objects.pyx"])
def test_a_key_that_a_library_of_tables_misses_is_of_the_data(file: str) -> None:
    assert category(f"{HEAD}{LIBRARY.format(file)}KeyError: 'price'\n") == "data"
    assert category(f"{HEAD}{LIBRARY.format('torch/nn/functional.py')}KeyError: 'price'\n") == "index"


def test_what_a_library_checks_of_the_data_handed_to_it_is_of_the_data() -> None:
    said = "ValueError: Found input variables with inconsistent numbers of samples: [53, 837]\n"
    assert category(f"{HEAD}{LIBRARY.format('sklearn/utils/validation.py')}{said}") == "data"
    assert category(f"{HEAD}{said}") == "shape"
    unfitted = "sklearn.exceptions.NotFittedError: This SVC instance is not fitted yet.\n"
    assert category(f"{HEAD}{LIBRARY.format('sklearn/utils/validation.py')}{unfitted}") == "api"
    attribute = "AttributeError: 'torch.dtype' object has no attribute 'kindly'\n"
    assert category(f"{HEAD}{LIBRARY.format('pandas/core/dtypes/cast.py')}{attribute}") != "data"


def test_frames_of_a_notebook_are_read() -> None:
    frame = "File ~/.conda/envs/e/lib/python3.8/site-packages/pandas/core/indexes/base.py:3623, in get_loc(self)\n"
    assert category(f"{frame}-> 3623     raise KeyError(key) from err\n\nKeyError: 'price'\n") == "data"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("self.shuffle = params['shuffle']", "config"),
        ('names = self.model_cfg["data"]["shuffle"]', "config"),
        ("first = row['shuffle']", "data"),
        ("loss = model(batch['shuffle'])", "api"),
        ("loss = model({k: batch[k] for k in wanted})", "api"),
        ("config.check(); x = batch['shuffle']", "api"),  # the settings are named, and not asked
        ("run(shuffle)", "index"),
    ],
)
def test_a_missing_key_is_of_whom_its_line_asks(source: str, name: str) -> None:
    assert category(f"{HEAD}{OWN.format(source)}KeyError: 'shuffle'\n") == name


def test_a_missing_attribute_of_the_settings_is_of_the_settings() -> None:
    missing = "AttributeError: 'dict' object has no attribute 'rate'\n"
    assert category(f"{HEAD}{OWN.format('step(config.rate)')}{missing}") == "config"
    assert category(f"{HEAD}{OWN.format('step(model.rate)')}{missing}") == "api"


def test_a_message_that_its_own_rule_names_is_not_read_again() -> None:
    message = "KeyError: 'getpwuid(): uid not found: 5012'\n"
    assert category(f"{HEAD}{OWN.format('x = users[uid]')}{message}") == category(message)


@pytest.mark.parametrize("key", ["a']b", "[[[[", "\\1", "ü", "'" * 70])
def test_any_key_is_looked_up_as_it_is(key: str) -> None:
    assert category(f"{HEAD}{OWN.format('x = batch[key]')}KeyError: '{key}'\n")
