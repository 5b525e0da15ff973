"""What the transport may still write into is kept, whoever lets go of the group."""

import gc
import weakref

import numpy as np
import pytest

from collectives import CollectiveTimeoutError, Options
from collectives.communicator import Communicator
from collectives.group import Group
from collectives.topology import single_host
from collectives.transport.loopback import Loopback, Mailboxes


def test_a_group_whose_call_was_given_up_is_kept():
    messages = Loopback(Mailboxes(), 0, 2)
    comm = Communicator(Group(messages, single_host(0, 2)), Options(timeout_s=0.01))
    group = weakref.ref(comm._group)
    with pytest.raises(CollectiveTimeoutError):
        comm.all_reduce(np.ones(3))
    del comm
    gc.collect()
    assert group() is not None
