"""Hugging Face libraries without network access and without progress bars of their own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from colafier._optional import required

OFFLINE = "HF_HUB_OFFLINE"


@contextmanager
def offline() -> Iterator[None]:
    """Inside there is no network and no progress bar of transformers; afterwards all is restored.

    The hub's library reads the variable once, when it is imported. It is imported here first, so
    that the variable has no effect on the rest of the process.
    """
    hub = required("huggingface_hub", "text")
    logging = required("transformers.utils.logging", "text")
    before, shown = os.environ.get(OFFLINE), logging.is_progress_bar_enabled()
    constant = hub.constants.HF_HUB_OFFLINE
    os.environ[OFFLINE] = "1"
    hub.constants.HF_HUB_OFFLINE = True
    logging.disable_progress_bar()
    try:
        yield
    finally:
        hub.constants.HF_HUB_OFFLINE = constant
        if before is None:
            os.environ.pop(OFFLINE)
        else:
            os.environ[OFFLINE] = before
        if shown:
            logging.enable_progress_bar()
