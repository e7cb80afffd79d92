"""Libraries around the Hugging Face hub, kept from the network and from drawing their own bars."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from colafier._optional import required

OFFLINE = "HF_HUB_OFFLINE"


@contextmanager
def offline() -> Iterator[None]:
    """No network and no progress bar of transformers inside; afterwards all is as it was.

    The hub's library reads the variable once, when it is imported, so that it is imported first:
    the variable must not stay in force for the rest of the process.
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
